"""What the user names as a base → `Brought`.

It may be:

    ./all-MiniLM-L6-v2       a directory of Hugging Face, sentence-transformers, model2vec, WordLlama or spaCy
    vectors.vec, glove.txt   word vectors, one word per line
    hf:NAME, hf:NAME@REV     a model of the Hugging Face hub: downloaded, since the user asked for it
    package:NAME             an installed package that carries such a directory; none of its code is run

A run of rehead is none of these: `rehead.runs.run` opens it.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any

from rehead.bases.brought import Brought
from rehead.bases.files import PICKLED, Kind, list_files, pickle_refusal, recognise
from rehead.bases.words import SUFFIXES, convert_words
from rehead.errors import UserError, short_repr

HUB, PACKAGE = "hf:", "package:"
PATTERNS = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "README.md", "LICENSE*"]
IGNORED = ["onnx/*", "openvino/*", "*/onnx/*"]
KINDS: tuple[Kind, ...] = ("encoder", "model2vec", "sentence-static", "wordllama", "words")  # as runs carry them
FORMATS = "a directory of Hugging Face, sentence-transformers, model2vec, WordLlama or spaCy, or word vectors (.vec)"


def is_brought(source: str | Path) -> bool:
    """Tell whether this names a base that others pretrained, rather than a run."""
    if str(source).startswith((HUB, PACKAGE)):
        return True
    path = Path(source)
    if path.is_file():
        return path.name.endswith((*SUFFIXES, *PICKLED))
    return path.is_dir() and recognise(path) not in (None, "run")


def open_brought(source: str | Path, *, link: bool = False) -> Brought:
    """Find a base and check its files; nothing is loaded yet."""
    root, name = _find(str(source))
    if root.is_file() and not root.name.endswith(SUFFIXES):
        raise UserError(f"{pickle_refusal(root)} Of fastText's vectors give the .vec.")
    if root.is_file() or recognise(root) == "spacy":
        made = convert_words(root)
        table = Path(made.name)
        files = list_files(table, "words")
        return Brought(f"static:{slug(name)}", table, files, str(source), holder=made)
    kind = recognise(root)
    if kind not in KINDS:
        raise UserError(f"{source}: not a base that is known. Give {FORMATS}.")
    view = "encoder" if kind == "encoder" else "static"
    stated = _license(root) or _package_license(str(source))
    return Brought(f"{view}:{slug(name)}", root, list_files(root, kind), str(source), stated, linked=link)


def reopen(name: str, root: Path, files: dict[str, str], facts: dict[str, Any]) -> Brought:
    """Open the base that a run refers to: the same checks, and the same files as when the classifier was made."""
    kind = recognise(root)
    if kind not in KINDS or (kind == "encoder") != name.startswith("encoder:"):
        raise UserError(f"{root}: the base {name} is not there. Restore the directory from a copy.")
    found = list_files(root, kind)
    for each in sorted(files.keys() | found.keys()):
        if files.get(each) != found.get(each):
            raise UserError(
                f"{root}: {short_repr(each)} is not the file that the classifier was made with (its SHA-256 differs). "
                "Restore it from a copy, or fine-tune again."
            )
    return Brought(name, root, files, facts["source"], facts["license"], linked=facts["link"] is not None)


def slug(name: str) -> str:
    """Make a name that view names can hold: letters, digits, - and _."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:48] or "base"


def _find(source: str) -> tuple[Path, str]:
    """Find the directory or file that is meant, and what to call it."""
    if source.startswith(HUB):
        return _download(source.removeprefix(HUB))
    if source.startswith(PACKAGE):
        return _in_package(source.removeprefix(PACKAGE))
    path = Path(source)
    if not path.exists():
        raise UserError(f"{source}: no such base. Give a run, {FORMATS}, hf:NAME or package:NAME.")
    whole = path.resolve()
    if whole.parent.name == "snapshots":  # of the hub's cache: its own name is a digest
        return whole, whole.parent.parent.name.rpartition("--")[2]
    return path, re.sub(r"(\.(vec|txt|gz|zst))+$", "", whole.name)


def _download(name: str) -> tuple[Path, str]:
    name, _, revision = name.partition("@")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise UserError(f"hf:{name}: not the name of a model. Give hf:OWNER/NAME, as on the hub.")
    try:
        import huggingface_hub
    except ImportError:
        raise UserError("hf: needs huggingface_hub: pip install 'rehead[hub]'.") from None
    try:
        found = huggingface_hub.snapshot_download(
            name, revision=revision or None, allow_patterns=PATTERNS, ignore_patterns=IGNORED
        )
    except Exception as error:  # of the network, the hub, the disk: all end here
        short = name.rpartition("/")[2]
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"hf:{name} cannot be downloaded ({type(error).__name__}: {short_repr(reason)}). On a machine with "
            f"internet run: hf download {name} --include '*.safetensors' '*.json' '*.txt' '*.model' --local-dir {short}"
            f"; copy the directory {short} here and give --from ./{short}."
        ) from error
    return Path(found), name.rpartition("/")[2]


def _in_package(name: str) -> tuple[Path, str]:
    """Find the directory with weights that an installed distribution carries, by the list of its files."""
    if not re.fullmatch(
        r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name
    ):  # pip would take others for a path or an option
        raise UserError(f"package:{name}: not the name of a package. Give package:NAME, as on PyPI.")
    try:
        files = metadata.files(name) or []
    except (metadata.PackageNotFoundError, ValueError):
        raise UserError(f"package:{name} is not installed: pip install {name}.") from None
    tried: dict[Path, None] = {}
    for file in sorted(files, key=lambda each: len(each.parts)):
        if file.name.endswith((".safetensors", ".bin")) or file.name == "key2row":
            folder = Path(str(file.locate())).parent
            tried |= {folder: None, folder.parent: None}
    for folder in tried:
        if folder.is_dir() and recognise(folder) not in (None, "run"):
            return folder, name
    raise UserError(f"package:{name} carries no base. Expected {FORMATS} among its files.")


def _license(root: Path) -> str | None:
    """Read the licence that the README of a model states, if it does."""
    try:
        text = (root / "README.md").read_text(encoding="utf-8", errors="replace")[: 1 << 14]
    except OSError:
        return None
    found = re.search(r"^license:\s*([\w.+-]{1,60})\s*$", text, re.MULTILINE) if text.startswith("---") else None
    return found[1] if found else None


def _package_license(source: str) -> str | None:
    """Read the licence that an installed package states, if the base is one."""
    if not source.startswith(PACKAGE):
        return None
    about = metadata.metadata(source.removeprefix(PACKAGE))
    given = [each for name in ("License-Expression", "License") for each in about.get_all(name) or ()]
    first = next(iter(given), "").strip().partition("\n")[0].strip()
    return first if re.fullmatch(r"[\w.+() -]{1,60}", first) else None
