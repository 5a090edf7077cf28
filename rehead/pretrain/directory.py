"""The directory of a run that is going on: making room for it, and finding out whether it may go on.

`pretrain.json` says what the run was asked to do. It is the first file that is written, so whatever interrupts a run
leaves one that can go on. A resumed run must be asked the same; what differs is named.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rehead.disk import check_free, file_inside, read_signed, sha256, write_signed
from rehead.errors import DamagedError, UserError
from rehead.pretrain.options import PretrainOptions, shape_of
from rehead.pretrain.recipe import DOCUMENT
from rehead.training.options import FREE_TO_CHANGE

if TYPE_CHECKING:
    from rehead.text.tokenizer import Tokenizer

DESCRIPTION, TOKENS, TOKENIZER = "pretrain.json", "tokens", "tokenizer.json"
OURS = (
    DESCRIPTION, TOKENS, f".{TOKENS}.lock", "checkpoints", "metrics.jsonl", "curves.png", "curves.svg", ".run",
    "config.json", "model.safetensors", TOKENIZER,
)  # fmt: skip
REPLACED = ".replaced"  # the run that was there before, until the new one has come as far as its first step
LEFT_OVER = re.compile(r"\..+\.(partial|old)")  # of a process that was killed


def open_directory(options: PretrainOptions, fingerprint: str, *, resume: bool) -> bool:
    """Make room for the run, or compare the one that is there with what is asked for; tell if its tokenizer is made."""
    out, now = options.out, description(options, fingerprint)
    if not resume:
        left = [each.name for each in out.iterdir() if LEFT_OVER.fullmatch(each.name)] if out.is_dir() else []
        check_free(out, (*OURS, *left, REPLACED) if options.overwrite else None)
        if out.is_dir():
            _set_aside(out)
    elif (out / DESCRIPTION).exists():
        before = read_signed(out / DESCRIPTION)
        _compare(options, before, now)
        if before["tokenizer"] is not None and before["tokenizer"] != sha256(file_inside(out, TOKENIZER)):
            raise DamagedError(f"{out / TOKENIZER}: not the file that was saved. Start again with --overwrite.")
        return before["tokenizer"] is not None
    elif (out / "config.json").exists():
        raise UserError(f"{out} is finished: there is nothing to resume. Start another with another --out.")
    elif options.resume:
        raise UserError(f"{out} holds no run to resume ({DESCRIPTION} is missing). Drop --resume.")
    out.mkdir(parents=True, exist_ok=True)
    _describe(out, now, None)
    return False


def _compare(options: PretrainOptions, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Name what a run that is resumed was not begun with."""
    for name in sorted(now["options"]):
        was, given = before["options"].get(name), now["options"][name]
        if was != given:
            begun, asked = _shown(name, was), _shown(name, given)
            raise UserError(f"{options.out} was begun {begun}, not {asked}. Resume it with the same options.")
    if before.get("tokenizer_file") != now["tokenizer_file"]:
        raise UserError(f"{options.out} was begun with another --tokenizer. Resume it with the same one.")
    if before.get("text") != now["text"]:
        raise UserError(f"{options.out} was begun with other text than {', '.join(options.texts)}. It cannot go on.")


def _shown(name: str, value: object) -> str:
    """Say an option as the user would give it: with --length 64, without --next-sentence."""
    flag = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return f"without {flag}"
    return f"with {flag}" if value is True else f"with {flag} {value}"


def description(options: PretrainOptions, fingerprint: str) -> dict[str, Any]:
    """Say what a run was asked to do: what a resumed one must be asked again."""
    given = dataclasses.asdict(options)
    places = ("texts", "out", "tokenizer")  # where things are may change; what they are may not
    free = FREE_TO_CHANGE
    by_rows = shape_of(options).ngrams > 1 or any(name in options.objective for name in DOCUMENT)
    if by_rows or options.optimizer == "muon":  # what moves rows, and Muon, give way to AdamW in a sharded run
        free -= {"shard"}
    kept = {name: value for name, value in given.items() if name not in free and name not in places}
    tokenizer = None if options.tokenizer is None else sha256(options.tokenizer)
    return {"options": kept, "text": fingerprint, "tokenizer_file": tokenizer}


def keep_tokenizer(options: PretrainOptions, fingerprint: str, tokenizer: Tokenizer) -> None:
    """Save the tokenizer; from now on a resumed run takes this one."""
    tokenizer.save(options.out / TOKENIZER)
    _describe(options.out, description(options, fingerprint), sha256(options.out / TOKENIZER))


def _describe(out: Path, asked: dict[str, Any], tokenizer: str | None) -> None:
    beside = out / f".{DESCRIPTION}.partial"
    write_signed(beside, asked | {"tokenizer": tokenizer})
    beside.replace(out / DESCRIPTION)


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


def tidy(path: Path) -> None:
    """Clear away what a finished run need not carry about: the user's text as tokens, and what resuming needs."""
    shutil.rmtree(path / TOKENS, ignore_errors=True)
    for left_over in (each for each in path.iterdir() if LEFT_OVER.fullmatch(each.name)):
        shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
    (path / f".{TOKENS}.lock").unlink(missing_ok=True)
    (path / DESCRIPTION).unlink(missing_ok=True)  # last: until then --resume can finish the tidying
