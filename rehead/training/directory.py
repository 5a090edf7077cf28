"""The directory of an unfinished run: creating it, and checking whether it can be resumed.

A description (`pretrain.json`, `finetune.json`) holds the options of the run. It is written first, so that a run can be
resumed whenever it was interrupted. A resumed run must have the same options; an error names the one that differs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rehead.disk import check_overwrite, read_checksummed_json, write_checksummed_json
from rehead.errors import UserError

TOKENS, TOKENIZER = "tokens", "tokenizer.json"
BASE = ".base"  # the base of a classifier's own, while it and the classifier are made
DESCRIPTIONS = ("pretrain.json", "finetune.json")
OURS = (
    *DESCRIPTIONS, TOKENS, f".{TOKENS}.lock", BASE, "checkpoints", "metrics.jsonl", "curves.png", "curves.svg", ".run",
    "config.json", "model.safetensors", TOKENIZER, "labels.json", "README.md", "bases",
)  # fmt: skip
ADAPTED = "adapted.json"  # what a base consists of that others pretrained, and that was adapted here
REPLACED = ".replaced"  # the run that was there before, until the new one reaches its first step
LEFT_OVER = re.compile(r"\..+\.(partial|old)")  # of a process that was killed


def create_directory(out: Path, *, overwrite: bool) -> None:
    """Create the directory of a new run; a run that it replaces is set aside until the new one can be resumed."""
    if not overwrite and any((out / each).exists() for each in DESCRIPTIONS):
        raise UserError(
            f"{out} exists already: a run that is not finished. Resume it (--resume), replace it (--overwrite), "
            "or choose another name."
        )
    left = [each.name for each in out.iterdir() if LEFT_OVER.fullmatch(each.name)] if out.is_dir() else []
    check_overwrite(out, (*_ours(out), *left, REPLACED) if overwrite else None)
    if out.is_dir():
        _set_aside(out)
    out.mkdir(parents=True, exist_ok=True)


def read_description(out: Path, name: str, *, asked: bool) -> dict[str, Any] | None:
    """Read the description of a run to resume; None if it never started. `asked`: --resume was given."""
    if (out / name).exists():
        return read_checksummed_json(out / name)
    if (out / "config.json").exists():
        raise UserError(f"{out} is finished: there is nothing to resume. Start another with another --out.")
    if asked:
        raise UserError(f"{out} holds no run to resume ({name} is missing). Drop --resume.")
    return None


def compare_options(out: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume a run with other options than it was started with; name the first that differs."""
    for name in sorted(now):
        was, given = before.get(name), now[name]
        if was != given:
            begun, asked = _shown(name, was), _shown(name, given)
            raise UserError(f"{out} was started {begun}, not {asked}. Resume it with the same options.")


def _shown(name: str, value: object) -> str:
    """Write an option as the user would give it: with --length 64, without --next-sentence."""
    flag = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return f"without {flag}"
    return f"with {flag}" if value is True else f"with {flag} {value}"


def write_description(out: Path, name: str, asked: Mapping[str, Any]) -> None:
    """Write the description of a run."""
    beside = out / f".{name}.partial"
    write_checksummed_json(beside, dict(asked))
    beside.replace(out / name)


def _set_aside(out: Path) -> None:
    """Move the existing run into a subdirectory, from which `roll_back` can restore it."""
    aside = out / REPLACED
    if aside.exists():  # the new run never reached its first step: keep the one before it
        _clear(out)
        return
    there = [*out.iterdir()]
    if there:
        aside.mkdir()
    for each in there:
        each.rename(aside / each.name)


def roll_back(out: Path) -> None:
    """Delete a run that was refused before its first step, and restore the one it would have replaced."""
    _clear(out)
    if (out / REPLACED).exists():
        for each in (out / REPLACED).iterdir():
            each.rename(out / each.name)
        (out / REPLACED).rmdir()


def discard_replaced(out: Path) -> None:
    """Delete the run that this one replaces: from now on this one can be resumed."""
    shutil.rmtree(out / REPLACED, ignore_errors=True)


def _ours(out: Path) -> set[str]:
    """Name what a run may have put into its directory."""
    try:
        files = read_checksummed_json(out / ADAPTED)["files"] if (out / ADAPTED).is_file() else {}
        return {*OURS, ADAPTED, *(str(name).partition("/")[0] for name in files)}
    except (UserError, KeyError, TypeError):  # not as it was written: then what is there may be somebody else's
        return set(OURS)


def _clear(out: Path) -> None:
    ours = _ours(out)
    for each in out.iterdir():
        if each.name in ours or LEFT_OVER.fullmatch(each.name):
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def remove_leftovers(path: Path, name: str) -> None:
    """Delete what a finished run does not need: tokenized text, its own base, temporary files, and the description."""
    shutil.rmtree(path / TOKENS, ignore_errors=True)
    shutil.rmtree(path / BASE, ignore_errors=True)
    for left_over in (each for each in path.iterdir() if LEFT_OVER.fullmatch(each.name)):
        shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
    (path / f".{TOKENS}.lock").unlink(missing_ok=True)
    (path / name).unlink(missing_ok=True)  # last: until then --resume can finish the clean-up
