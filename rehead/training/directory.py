"""The directory of a run that is going on: making room for it, and finding out whether it may go on.

A description (`pretrain.json`, `finetune.json`) says what the run was asked to do. It is the first file that is
written, so whatever interrupts a run leaves one that can go on. A resumed run must be asked the same; what differs is
named.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rehead.disk import check_free, read_signed, write_signed
from rehead.errors import UserError

TOKENS, TOKENIZER = "tokens", "tokenizer.json"
DESCRIPTIONS = ("pretrain.json", "finetune.json")
OURS = (
    *DESCRIPTIONS, TOKENS, f".{TOKENS}.lock", "checkpoints", "metrics.jsonl", "curves.png", "curves.svg", ".run",
    "config.json", "model.safetensors", TOKENIZER, "labels.json", "README.md",
)  # fmt: skip
REPLACED = ".replaced"  # the run that was there before, until the new one has come as far as its first step
LEFT_OVER = re.compile(r"\..+\.(partial|old)")  # of a process that was killed


def make_room(out: Path, *, overwrite: bool) -> None:
    """Make a directory for a new run; one that may be replaced is set aside until the new one can go on."""
    if not overwrite and any((out / each).exists() for each in DESCRIPTIONS):
        raise UserError(
            f"{out} exists already: a run that is not finished. Go on with it (--resume), replace it (--overwrite), "
            "or choose another name."
        )
    left = [each.name for each in out.iterdir() if LEFT_OVER.fullmatch(each.name)] if out.is_dir() else []
    check_free(out, (*OURS, *left, REPLACED) if overwrite else None)
    if out.is_dir():
        _set_aside(out)
    out.mkdir(parents=True, exist_ok=True)


def find_again(out: Path, name: str, *, asked: bool) -> dict[str, Any] | None:
    """Read what a run that is to go on was asked to do; None if it never began. `asked`: by the user."""
    if (out / name).exists():
        return read_signed(out / name)
    if (out / "config.json").exists():
        raise UserError(f"{out} is finished: there is nothing to resume. Start another with another --out.")
    if asked:
        raise UserError(f"{out} holds no run to resume ({name} is missing). Drop --resume.")
    return None


def compare_options(out: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Name the option that a run that is resumed was not begun with."""
    for name in sorted(now):
        was, given = before.get(name), now[name]
        if was != given:
            begun, asked = _shown(name, was), _shown(name, given)
            raise UserError(f"{out} was begun {begun}, not {asked}. Resume it with the same options.")


def _shown(name: str, value: object) -> str:
    """Say an option as the user would give it: with --length 64, without --next-sentence."""
    flag = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return f"without {flag}"
    return f"with {flag}" if value is True else f"with {flag} {value}"


def describe(out: Path, name: str, asked: Mapping[str, Any]) -> None:
    """Write down what the run is asked to do."""
    beside = out / f".{name}.partial"
    write_signed(beside, dict(asked))
    beside.replace(out / name)


def _set_aside(out: Path) -> None:
    """Put the run that is there where it can be fetched back from, if the new one is refused."""
    aside = out / REPLACED
    if aside.exists():  # the new one never came to its first step: what it stands before is still to be kept
        _clear(out)
        return
    there = [*out.iterdir()]
    if there:
        aside.mkdir()
    for each in there:
        each.rename(aside / each.name)


def forget(out: Path) -> None:
    """Clear away a run that was refused before its first step, and fetch back what it was to replace."""
    _clear(out)
    if (out / REPLACED).exists():
        for each in (out / REPLACED).iterdir():
            each.rename(out / each.name)
        (out / REPLACED).rmdir()


def let_go(out: Path) -> None:
    """Delete the run that this one replaces: from now on this one can go on whatever happens."""
    shutil.rmtree(out / REPLACED, ignore_errors=True)


def _clear(out: Path) -> None:
    for each in out.iterdir():
        if each.name in OURS or LEFT_OVER.fullmatch(each.name):
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def tidy(path: Path, name: str) -> None:
    """Clear away what a finished run need not carry about: the user's text as tokens, and what resuming needs."""
    shutil.rmtree(path / TOKENS, ignore_errors=True)
    for left_over in (each for each in path.iterdir() if LEFT_OVER.fullmatch(each.name)):
        shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
    (path / f".{TOKENS}.lock").unlink(missing_ok=True)
    (path / name).unlink(missing_ok=True)  # last: until then --resume can finish the tidying
