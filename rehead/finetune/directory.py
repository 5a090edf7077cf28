"""The directory of a fine-tuning run in progress, and `finetune.json`, which --resume checks."""

from __future__ import annotations

import dataclasses
from typing import Any

from rehead.disk import sha256
from rehead.errors import UserError
from rehead.finetune.options import FinetuneOptions
from rehead.runs.run import Run
from rehead.runs.starting import fingerprint
from rehead.text.documents import LabelledData
from rehead.training.directory import compare_options, create_directory, read_description, write_description
from rehead.training.options import FREE_TO_CHANGE

DESCRIPTION = "finetune.json"
PATHS = (
    "labelled",
    "valid",
    "unlabelled",
    "out",
    "base",
    "tokenizer",
)  # files may move between start and resume; their content may not change


def open_directory(options: FinetuneOptions, given: dict[str, Any], *, resume: bool) -> None:
    """Create the directory, or check that a resumed run has the same options and data. `given` is a `description`."""
    out = options.out
    before = read_description(out, DESCRIPTION, asked=options.resume) if resume else None
    if before is None:
        write_description(create_directory(out, overwrite=options.overwrite), DESCRIPTION, given)
        return
    compare_options(out, before["options"], given["options"])
    for name, flag in (
        ("base", "--from"),
        ("unlabelled", "--unlabelled"),
        ("tokenizer", "--tokenizer"),
        ("train", "examples"),
        ("valid", "--valid"),
    ):
        if before.get(name) != given[name]:
            raise UserError(
                f"{out} was started with other {flag}, so it cannot be resumed. Start again with --overwrite."
            )


def description(
    options: FinetuneOptions,
    train: LabelledData,
    valid: LabelledData | None,
    unlabelled: str | None,
    base: Run | None,
) -> dict[str, Any]:
    """Describe a run by its options and the fingerprints of its data: a resumed run must have the same."""
    kept = {
        name: value
        for name, value in dataclasses.asdict(options).items()
        if name not in FREE_TO_CHANGE and name not in PATHS
    }
    return {
        "options": kept,
        "train": train.fingerprint(),
        "valid": None if valid is None else valid.fingerprint(),
        "unlabelled": unlabelled,
        "base": None if base is None else fingerprint(base),
        "tokenizer": None if options.tokenizer is None else sha256(options.tokenizer),
    }
