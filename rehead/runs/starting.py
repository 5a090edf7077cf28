"""What a classifier starts from: one base, or several as one run.

At most one of them is rehead's own. The others are bases that others pretrained, and each becomes a view of its own.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rehead.bases.sources import is_brought
from rehead.errors import UserError
from rehead.runs.bases import brought_digest
from rehead.runs.run import Run, bring, load


def open_bases(sources: Sequence[str | Path | Run], *, link: bool = False) -> Run:
    """Open all bases that the user names, as one run to start from."""
    return combine([each if isinstance(each, Run) else open_base(each, link=link) for each in sources])


def open_base(source: str | Path, *, link: bool = False) -> Run:
    """Open one base, and check that it can read text."""
    if is_brought(source):
        return bring(source, link=link)
    run = load(source)
    if run.model.config.empty and not run.model.brought:
        raise UserError(
            f"{source} has no base: its classifier reads words and characters. Give the base it started from."
        )
    if run.tokenizer is None and not run.model.config.empty:
        raise UserError(f"{source} has no tokenizer, so it cannot read text. Give a run made by rehead pretrain.")
    return run


def combine(runs: Sequence[Run]) -> Run:
    """Make one run of several: at most one with a base of its own, and all that others pretrained."""
    own = [run for run in runs if not run.model.config.empty]
    if len(own) > 1:
        raise UserError(
            f"{len(own)} bases of rehead's own are given. A classifier has one: give one run, and any number of bases "
            "that others pretrained."
        )
    first = own[0] if own else runs[0]
    if len(runs) == 1:
        return first
    model = copy.copy(first.model)  # the same weights
    model.brought = {}
    for each in (each for run in runs for each in run.model.brought.values()):
        if any(other.digest == each.digest for other in model.brought.values()):
            raise UserError(f"the base {each.source} is given twice. Drop one.")
        name, number = each.name, 1
        while name in model.brought:
            number += 1
            name = f"{each.name}-{number}"
        model.brought[name] = dataclasses.replace(each, name=name)
    return dataclasses.replace(first, model=model, digest=first.digest if own else brought_digest(model.brought))


def fingerprint(run: Run) -> list[str | None]:
    """Give the digests of all bases in a run to start from: its own, then those of others."""
    return [None if run.model.config.empty else run.digest, *(each.digest for each in run.model.brought.values())]
