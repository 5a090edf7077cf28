"""The options of `rehead compare`. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from rehead.compare.kinds import Kind
from rehead.errors import UserError
from rehead.options import CommonOptions, flag, positional
from rehead.text.documents import ReadOptions

KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(kw_only=True)
class CompareOptions(CommonOptions, ReadOptions):
    """Compare scratch, pretrained and linear baselines on the same labels, and write a report."""

    labelled: list[str] = positional(metavar="LABELLED")
    "Labelled text: files, folders, or a built-in part such as imdb:train."

    base: list[str] = flag(name="--from", metavar="RUN")
    "Pretrained runs. Scratch trains the shape of each from random weights."

    out: Path = flag(metavar="DIR")
    "Where report.html and results.json go."

    test: list[str] | None = flag(None, metavar="FILE")
    "Labelled text to test on. Left out: a fifth of LABELLED is held out for it."

    valid: list[str] | None = flag(None, metavar="FILE")
    "Labelled text to choose epochs by. Left out: a fifth of what is left to learn from."

    labels: tuple[int, ...] | None = flag(None, metavar="N,N,…")
    "Numbers of labels to learn from, such as 20,100,500. Left out: all there are."

    seeds: int = flag(3, metavar="N")
    "How often each method learns, with other labels drawn and other chance."

    seed: int = flag(0, metavar="N")
    "Start of all chance: the split, and the first of the seeds."

    methods: tuple[str, ...] = KINDS
    "What to compare."

    unlabelled: list[str] | None = flag(None, metavar="FILE")
    "Unlabelled text that the default recipe may use too."

    epochs: float | None = flag(None, metavar="N")
    "How often scratch and pretrained read their labelled texts (default: by their number)."

    batch: int | None = flag(None, metavar="TOKENS")
    "Tokens in a step of scratch and pretrained."

    length: int | None = flag(None, metavar="T")
    "Tokens that the layers of scratch and pretrained read of a document (default: 256). A bag reads all of it."

    lr: float = 1.0
    "Multiply the learning rates of scratch and pretrained by this."

    control: bool = True
    "Also teach every method with shuffled labels, which must fall to chance."

    resume: bool = False
    "Go on with a comparison that was interrupted: the same command, and this."

    overwrite: bool = False
    "Replace a comparison that is already there."


def check_compare(options: CompareOptions) -> None:
    """Refuse what contradicts itself before anything is read or written."""
    if options.seeds < 1:
        raise UserError(f"--seeds {options.seeds}: must be 1 or more.")
    if unknown := [each for each in options.methods if each not in KINDS]:
        raise UserError(f"--methods {unknown[0]}: not known. There are: {', '.join(KINDS)}.")
    if not options.methods:
        raise UserError(f"--methods: name at least one of {', '.join(KINDS)}.")
    if options.labels is not None and (not options.labels or min(options.labels) < 4):
        raise UserError("--labels: give numbers of labels, 4 or more each, such as 20,100,500.")
    if options.resume and options.overwrite:
        raise UserError("--resume goes on with a comparison and --overwrite throws it away. Give one.")
    if options.unlabelled and "recipe" not in options.methods:
        raise UserError("--unlabelled is for the default recipe. Name recipe among the --methods, or drop it.")
    doubles = [each for number, each in enumerate(options.base) if each in options.base[:number]]
    if doubles:
        raise UserError(f"--from {doubles[0]} is named twice. Drop one.")
