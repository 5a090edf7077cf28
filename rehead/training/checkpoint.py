"""Checkpoints: everything needed to resume a run exactly.

    RUN/checkpoints/step-000123/
      model.safetensors       the objective's parameters and buffers: the model and the heads of its own
      optimizer.safetensors   the optimizers' state, by parameter
      state.json              the rest of the loop's state: step, tokens, seconds, best validation
      MANIFEST.json           sha256 of each file, and its own

A checkpoint is there whole or not at all (`rehead.disk.atomic_directory`). Resuming uses the newest one whose digests
match; damaged ones are reported and skipped. Data order and dropout are functions of the step number, so there is no
state of a random generator to save.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rehead.disk import (
    atomic_directory,
    file_inside,
    os_error_in,
    read_checksummed_json,
    read_json,
    sha256,
    write_checksummed_json,
    write_json,
)
from rehead.errors import DamagedError

FORMAT = 1
MODEL, OPTIMIZER, STATE, MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"
FILES = (MODEL, OPTIMIZER, STATE)
NAME = re.compile(r"step-(\d{6,})")

Tensors = dict[str, Tensor]


@dataclass
class Checkpoint:
    """The content of a checkpoint."""

    model: Tensors
    optimizer: Tensors
    state: dict[str, Any]
    "Anything JSON can hold; `step` is in it."


def name(step: int) -> str:
    """Name the checkpoint of a step."""
    return f"step-{step:06d}"


def save(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write a checkpoint into the folder of checkpoints, named after its step."""
    path = folder / name(checkpoint.state["step"])
    with atomic_directory(path, replace=(*FILES, MANIFEST)) as directory:
        try:
            save_file(_ready(checkpoint.model), directory / MODEL)
            save_file(_ready(checkpoint.optimizer), directory / OPTIMIZER)
        except SafetensorError as error:
            raise os_error_in(error) from error
        write_json(directory / STATE, checkpoint.state)
        digests = {file: sha256(directory / file) for file in FILES}
        write_checksummed_json(directory / MANIFEST, {"format": FORMAT, "files": digests})
    return path


def load(path: Path) -> Checkpoint:
    """Read one checkpoint, or raise `DamagedError`."""
    try:
        manifest = read_checksummed_json(file_inside(path, MANIFEST))
        if manifest.get("format") != FORMAT:
            raise DamagedError(f"{path}: format {manifest.get('format')} is not known; this version reads {FORMAT}.")
        for file in FILES:
            if sha256(file_inside(path, file)) != manifest["files"].get(file):
                raise DamagedError(f"{path / file}: not the file that was saved (its SHA-256 differs).")
        state = read_json(path / STATE)
        return Checkpoint(_tensors(path / MODEL), _tensors(path / OPTIMIZER), state)
    except (OSError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{path}: cannot be read ({error}).") from None


def newest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """Read the newest intact checkpoint; say which ones were skipped, and why. None if there is no checkpoint.

    If all of them are damaged, raises: the user decides whether to start again.
    """
    why = None
    for path in reversed(listed(folder)):
        try:
            return load(path)
        except DamagedError as error:  # noqa: PERF203 (a handful, and each costs a read from disk)
            why = error
            say(f"skipped a damaged checkpoint: {error}")
    if why is not None:
        raise DamagedError(f"{why} There is no intact checkpoint in {folder}. Start again with --overwrite.")
    return None


def listed(folder: Path) -> list[Path]:
    """List the checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), each) for each in folder.iterdir() if (match := NAME.fullmatch(each.name))]
    return [path for _, path in sorted(found)]


def clear(folder: Path, keep: int) -> None:
    """Delete all but the last `keep` checkpoints, and the partial files of killed processes."""
    _delete(folder, listed(folder)[:-keep])


def clear_after(folder: Path, step: int) -> None:
    """Delete the checkpoints after a step: damaged ones, when a run is resumed from there."""
    _delete(folder, [path for path in listed(folder) if int(path.name.removeprefix("step-")) > step])


def clear_but(folder: Path, steps: Collection[int]) -> None:
    """Delete the checkpoints of all other steps."""
    _delete(folder, [path for path in listed(folder) if path.name not in map(name, steps)])


def _delete(folder: Path, paths: Iterable[Path]) -> None:
    clear_leftovers(folder)
    for path in paths:
        # Rename first: a half-deleted directory must not look like a checkpoint.
        hidden = path.with_name(f".{path.name}.gone")
        path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def clear_leftovers(folder: Path) -> None:
    """Delete what killed processes left half written or half deleted."""
    for left_over in (*folder.glob(".step-*.partial"), *folder.glob(".step-*.gone"), *folder.glob(".step-*.old")):
        shutil.rmtree(left_over, ignore_errors=True)


def put_back(tensors: Mapping[str, Tensor], into: Mapping[str, Tensor], what: str) -> None:
    """Check that names, shapes and types match; raise `DamagedError` for the first that does not."""
    if missing := sorted(into.keys() - tensors.keys()):
        raise DamagedError(f"{what}: {missing[0]} is missing.")
    if extra := sorted(tensors.keys() - into.keys()):
        raise DamagedError(f"{what}: {extra[0]} is not part of this run.")
    for each, tensor in into.items():
        if tensors[each].shape != tensor.shape or tensors[each].dtype != tensor.dtype:
            raise DamagedError(f"{what}: {each} is {tuple(tensors[each].shape)} instead of {tuple(tensor.shape)}.")


def _tensors(path: Path) -> Tensors:
    try:
        with safe_open(path, framework="pt") as file:
            return {each: file.get_tensor(each) for each in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise DamagedError(f"{path}: not a whole safetensors file ({error}).") from None


def _ready(tensors: Tensors) -> Tensors:
    return {key: each.detach().cpu().contiguous() for key, each in tensors.items()}
