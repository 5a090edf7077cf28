"""The directory of an unfinished run: creating it, checking whether it can be resumed, and finishing it.

A description (`pretrain.json`, `finetune.json`) holds the options of the run. It is written first, so that a run can be
resumed whenever it was interrupted, and deleted last. A resumed run must have the same options; an error names the one
that differs. A run that replaces another is made beside it (`rehead.replacing`): the old one answers until then.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rehead.disk import atomic_file, read_checksummed_json, write_checksummed_json
from rehead.errors import UserError
from rehead.replacing import MARK, begin, discard, publish, working_directory

TOKENS, TOKENIZER = "tokens", "tokenizer.json"
BASE = ".base"  # the base of a classifier's own, while it and the classifier are made
DESCRIPTIONS = ("pretrain.json", "finetune.json")
OURS = (
    *DESCRIPTIONS, TOKENS, f".{TOKENS}.lock", BASE, "checkpoints", "metrics.jsonl", "curves.png", "curves.svg", ".run",
    "config.json", "model.safetensors", TOKENIZER, "labels.json", "README.md", "bases", MARK,
    ".replaced",  # where earlier versions kept the run that was being replaced
)  # fmt: skip
ADAPTED = "adapted.json"  # what a base consists of that others pretrained, and that was adapted here
LEFT_OVER = re.compile(r"\..+\.(partial|old)")  # of a process that was killed


def create_directory(out: Path, *, overwrite: bool) -> Path:
    """Create the directory of a new run; give where it is made: beside the run that it replaces, or in `out`."""
    work = working_directory(out)
    if not overwrite and any((work / each).exists() for each in DESCRIPTIONS):
        raise UserError(
            f"{out} exists already: a run that is not finished. Resume it (--resume), replace it (--overwrite), "
            "or choose another name."
        )
    if out.is_dir() and all(LEFT_OVER.fullmatch(each.name) for each in out.iterdir()):
        _clear(out)  # of a process that was killed before it had written a description
    return begin(out, _replaced(out) if overwrite else None)


def _replaced(out: Path) -> list[str]:
    """Name what may be replaced: what runs consist of, and what killed processes leave behind."""
    left = [each.name for each in out.iterdir() if LEFT_OVER.fullmatch(each.name)] if out.is_dir() else []
    return [*_ours(out), *left]


def read_description(out: Path, name: str, *, asked: bool) -> dict[str, Any] | None:
    """Read the description of a run to resume; None if it never started. `asked`: --resume was given."""
    work = working_directory(out)
    if (work / name).exists():
        return read_checksummed_json(work / name)
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
    try:
        with atomic_file(out / name) as partial:
            write_checksummed_json(partial, dict(asked))
    except OSError as error:
        raise UserError(f"{out / name} cannot be written: {error.strerror or error}.") from error


def roll_back(out: Path) -> None:
    """Delete a run that was refused before its first step; the one it would have replaced has never been touched."""
    if working_directory(out) == out:
        _clear(out)
    discard(out)


def is_whole(out: Path) -> bool:
    """Tell whether the run in progress is complete, and was stopped while it was cleaned up or put in its place."""
    return (working_directory(out) / "config.json").exists()


def finish(out: Path, name: str) -> None:
    """Delete what a finished run does not need, and put it in the place of the one that it replaces."""
    remove_leftovers(working_directory(out))
    publish(out, _replaced(out))
    (out / name).unlink(missing_ok=True)  # last: until then --resume can finish the clean-up


def describe_place(out: Path, say: Callable[[str], None]) -> None:
    """Say where a run is made that replaces another."""
    if (work := working_directory(out)) != out:
        say(f"{out} stays as it is until the new run is complete, which is made in {work}")


@contextmanager
def keeping(out: Path) -> Iterator[None]:
    """Add to an error that the run which was to be replaced is still there."""
    try:
        yield
    except (UserError, OSError) as error:
        if working_directory(out) == out:
            raise
        said = UserError(f"{error.strerror or error}.") if isinstance(error, OSError) else error
        raise type(said)(f"{said} {kept(out)}") from error


def kept(out: Path) -> str:
    """Say what the directory of a run that is being replaced holds."""
    return f"{out} still holds the run from before."


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


def remove_leftovers(path: Path) -> None:
    """Delete what a finished run does not need: tokenized text, its own base, and temporary files."""
    shutil.rmtree(path / TOKENS, ignore_errors=True)
    shutil.rmtree(path / BASE, ignore_errors=True)
    for left_over in (each for each in path.iterdir() if LEFT_OVER.fullmatch(each.name)):
        shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
    (path / f".{TOKENS}.lock").unlink(missing_ok=True)
