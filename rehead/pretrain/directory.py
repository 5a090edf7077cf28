"""The directory of a run that is going on: making room for it, and finding out whether it may go on.

`pretrain.json` says what the run was asked to do. A resumed run must be asked the same; what differs is named.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from rehead.disk import check_free, read_signed, sha256, write_signed
from rehead.errors import UserError
from rehead.pretrain.options import PretrainOptions
from rehead.training.options import FREE_TO_CHANGE

DESCRIPTION, TOKENS = "pretrain.json", "tokens"
OURS = (
    DESCRIPTION, TOKENS, f".{TOKENS}.lock", "checkpoints", "metrics.jsonl", "curves.png", "curves.svg", ".run",
    "config.json", "model.safetensors", "tokenizer.json",
)  # fmt: skip


def open_directory(options: PretrainOptions, fingerprint: str, *, resume: bool) -> bool:
    """Make room for the run; tell whether there is one to go on with, after comparing it with what is asked for."""
    there = options.out / DESCRIPTION
    if not resume:
        check_free(options.out, OURS if options.overwrite else None)
        if options.out.is_dir():
            for each in options.out.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        options.out.mkdir(parents=True, exist_ok=True)
        return False
    if (options.out / "config.json").exists() and not there.exists():
        raise UserError(f"{options.out} is finished: there is nothing to resume. Start another with another --out.")
    if not there.exists():
        if options.resume:
            raise UserError(f"{options.out} holds no run to resume ({DESCRIPTION} is missing). Drop --resume.")
        options.out.mkdir(parents=True, exist_ok=True)
        return False
    before, now = read_signed(there), description(options, fingerprint)
    if before.get("text") != now["text"]:
        raise UserError(f"{options.out} was begun with other text than {', '.join(options.texts)}. It cannot go on.")
    for name in sorted(now["options"]):
        was, given = before["options"].get(name), now["options"][name]
        if was != given:
            flag_name = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{options.out} was begun with {flag_name} {was}, not {given}. Resume it with the same options."
            )
    if before.get("tokenizer_file") != now["tokenizer_file"]:
        raise UserError(f"{options.out} was begun with another --tokenizer. Resume it with the same one.")
    return True


def description(options: PretrainOptions, fingerprint: str) -> dict[str, Any]:
    """Say what a run was asked to do: what a resumed one must be asked again."""
    given = dataclasses.asdict(options)
    places = ("texts", "out", "tokenizer")  # where things are may change; what they are may not
    kept = {name: value for name, value in given.items() if name not in FREE_TO_CHANGE and name not in places}
    tokenizer = None if options.tokenizer is None else sha256(options.tokenizer)
    return {"options": kept, "text": fingerprint, "tokenizer_file": tokenizer}


def describe(options: PretrainOptions, fingerprint: str) -> None:
    """Write down what a run was asked to do."""
    beside = options.out / f".{DESCRIPTION}.partial"
    write_signed(beside, description(options, fingerprint))
    beside.replace(options.out / DESCRIPTION)


def tidy(path: Path) -> None:
    """Clear away what a finished run need not carry about: the user's text as tokens, and what resuming needs."""
    (path / DESCRIPTION).unlink(missing_ok=True)
    shutil.rmtree(path / TOKENS, ignore_errors=True)
    (path / f".{TOKENS}.lock").unlink(missing_ok=True)
