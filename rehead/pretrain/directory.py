"""The directory of a pretraining run that is going on, and its description: `pretrain.json`, and the tokenizer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rehead.disk import file_inside, sha256
from rehead.errors import DamagedError, UserError
from rehead.model.objectives import specs_of
from rehead.pretrain.options import PretrainOptions, objective_of, shape_of, stages_of
from rehead.pretrain.warm import digest_of
from rehead.replacing import working_directory
from rehead.training.directory import TOKENIZER, compare_options, create_directory, read_description, write_description
from rehead.training.options import FREE_TO_CHANGE

if TYPE_CHECKING:
    from rehead.text.tokenizer import Tokenizer

DESCRIPTION = "pretrain.json"


def open_directory(options: PretrainOptions, fingerprint: str, *, resume: bool, base: str | None = None) -> bool:
    """Make room for the run, or compare the one that is there with what is asked for; tell if its tokenizer is made.

    `base` is the digest of the base that others pretrained, if the run starts from one.
    """
    out, now = options.out, description(options, fingerprint, base)
    before = read_description(out, DESCRIPTION, asked=options.resume) if resume else None
    if before is None:
        _describe(create_directory(out, overwrite=options.overwrite), now, None)
        return False
    _compare(options, before, now)
    work = working_directory(out)
    if before["tokenizer"] is not None and before["tokenizer"] != sha256(file_inside(work, TOKENIZER)):
        raise DamagedError(f"{work / TOKENIZER}: not the file that was saved. Start again with --overwrite.")
    return before["tokenizer"] is not None


def _compare(options: PretrainOptions, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Name what a run that is resumed was not begun with."""
    compare_options(options.out, before["options"], now["options"])
    if before.get("tokenizer_file") != now["tokenizer_file"]:
        raise UserError(f"{options.out} was started with another --tokenizer. Resume it with the same one.")
    if before.get("embeddings") != now.get("embeddings"):
        raise UserError(f"{options.out} was started with other --embeddings. Resume it with the same ones.")
    if before.get("base") != now["base"]:
        raise UserError(
            f"{options.out} was started from another base than {options.base}. Resume it with the same one."
        )
    if before.get("text") != now["text"]:
        raise UserError(
            f"{options.out} was started with other text than {', '.join(options.texts)}. It cannot be resumed."
        )


def description(options: PretrainOptions, fingerprint: str, base: str | None = None) -> dict[str, Any]:
    """Say what a run was asked to do: what a resumed one must be asked again."""
    given = dataclasses.asdict(options) | {"objective": objective_of(options)}
    places = ("texts", "out", "tokenizer", "base", "embeddings")  # where things are may change; what they are may not
    free = FREE_TO_CHANGE
    by_rows = options.base is None and (
        shape_of(options).ngrams > 1 or any(spec.reads_documents for spec in specs_of(stages_of(options)))
    )
    if by_rows or options.optimizer == "muon":  # what moves rows, and Muon, give way to AdamW in a sharded run
        free -= {"shard"}
    kept = {name: value for name, value in given.items() if name not in free and name not in places}
    tokenizer = None if options.tokenizer is None else sha256(options.tokenizer)
    warm = {} if options.embeddings is None else {"embeddings": digest_of(options.embeddings)}
    return {"options": kept, "text": fingerprint, "tokenizer_file": tokenizer, "base": base, **warm}


def keep_tokenizer(options: PretrainOptions, fingerprint: str, tokenizer: Tokenizer) -> None:
    """Save the tokenizer; from now on a resumed run takes this one."""
    tokenizer.save(options.out / TOKENIZER)
    _describe(options.out, description(options, fingerprint), sha256(options.out / TOKENIZER))


def _describe(out: Path, asked: dict[str, Any], tokenizer: str | None) -> None:
    write_description(out, DESCRIPTION, asked | {"tokenizer": tokenizer})
