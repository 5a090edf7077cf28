"""A brought encoder with other weights: its files as they are, but for those of the network, which are written anew."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from rehead.bases.brought import Brought
from rehead.bases.encoder import import_transformers, quietly
from rehead.bases.files import CONFIG, INDEX, list_files, transformer_folder
from rehead.disk import os_error_in


def write_network(brought: Brought, network: Any, directory: Path) -> None:  # noqa: ANN401 (a module of transformers)
    """Write the files of a base, with a network of other weights: pooling, tokenizer and licence stay byte for byte."""
    folder = transformer_folder(brought.root)
    for file in brought.files:
        path = Path(file)
        of_network = path.parent == Path(folder) and (path.suffix == ".safetensors" or path.name in (CONFIG, INDEX))
        if not of_network:
            (directory / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(brought.root / file, directory / file)
    try:
        with quietly(import_transformers()):
            network.save_pretrained(directory / folder)
    except SafetensorError as error:
        raise os_error_in(error) from error


def with_weights(brought: Brought, network: Any) -> Brought:  # noqa: ANN401
    """Make a base of its own of a fine-tuned network; its files are in a temporary directory, which a run copies."""
    made = tempfile.TemporaryDirectory(prefix="rehead-")
    root = Path(made.name)
    write_network(brought, network, root)
    source = f"fine-tuned {brought.source}"  # first, since long names are cut
    return Brought(brought.name, root, list_files(root, "encoder"), source, brought.license, holder=made)
