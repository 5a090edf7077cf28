"""The directory of a fine-tuning run that is going on, and its description: `finetune.json`."""

from __future__ import annotations

import dataclasses
from typing import Any

from rehead.disk import sha256
from rehead.errors import UserError
from rehead.finetune.options import FinetuneOptions
from rehead.text.documents import LabelledData
from rehead.training.directory import compare_options, create_directory, read_description, write_description
from rehead.training.options import FREE_TO_CHANGE

DESCRIPTION = "finetune.json"
PLACES = (
    "labelled",
    "valid",
    "unlabelled",
    "out",
    "base",
    "tokenizer",
)  # where things are may change; what they are may not


def open_directory(options: FinetuneOptions, given: dict[str, Any], *, resume: bool) -> None:
    """Make room for the run, or compare the one that is there with what is asked for: `given` is a `description`."""
    out = options.out
    before = read_description(out, DESCRIPTION, asked=options.resume) if resume else None
    if before is None:
        create_directory(out, overwrite=options.overwrite)
        write_description(out, DESCRIPTION, given)
        return
    compare_options(out, before["options"], given["options"])
    for name, said in (
        ("base", "--from"),
        ("unlabelled", "--unlabelled"),
        ("tokenizer", "--tokenizer"),
        ("train", "examples"),
        ("valid", "--valid"),
    ):
        if before.get(name) != given[name]:
            raise UserError(f"{out} was begun with another {said}: it cannot go on. Start again with --overwrite.")


def description(
    options: FinetuneOptions, train: LabelledData, valid: LabelledData | None, unlabelled: str | None
) -> dict[str, Any]:
    """Say what a run is asked to do: what a resumed one must be asked again."""
    kept = {
        name: value
        for name, value in dataclasses.asdict(options).items()
        if name not in FREE_TO_CHANGE and name not in PLACES
    }
    return {
        "options": kept,
        "train": train.fingerprint(),
        "valid": None if valid is None else valid.fingerprint(),
        "unlabelled": unlabelled,
        "base": None if options.base is None else sha256(options.base / "config.json"),
        "tokenizer": None if options.tokenizer is None else sha256(options.tokenizer),
    }
