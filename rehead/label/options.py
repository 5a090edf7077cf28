"""The options of `rehead label`. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rehead.errors import UserError
from rehead.options import flag, positional
from rehead.text.documents import ReadOptions
from rehead.use.serve.options import ServerOptions, check_server


@dataclass(kw_only=True)
class LabelOptions(ServerOptions, ReadOptions):
    """Label texts in the browser, while a classifier learns from every label; write labels and a classifier."""

    GROUP = "other"
    MOST_USED = ("labels", "out", "multilabel", "blind", "base")

    texts: list[str] = positional(metavar="TEXT")
    "Texts to label: csv, tsv, jsonl, parquet or txt files, folders or globs, or - for standard input."

    labels: tuple[str, ...] | None = flag(None, metavar="A,B,C", group="reads")
    "Names of the classes; more can be added in the page (default: none)."

    out: Path = flag(metavar="DIR", group="writes")
    "Directory of the project: texts, labels, classifier. The same command goes on with it."

    multilabel: bool = flag(False, group="reads")
    "A text may have any number of labels."

    blind: bool = False
    "Never show what the classifier guesses, or what is suggested: guesses bias people."

    base: list[str] | None = flag(None, name="--from", metavar="BASE", group="model")
    """Bases to start from, as rehead finetune takes them (default: pretrain a base on the texts, while they are
    labelled)."""

    labelled: list[str] | None = flag(None, metavar="FILE", group="reads")
    "Texts that have labels already; those among TEXT are not asked again (default: none)."

    suggested: str | None = flag(None, metavar="COLUMN", group="reads")
    """Column of TEXT with labels that a rule or a model suggests. They are shown, and count for nothing until a person
    has agreed (default: none)."""

    confidence: str | None = flag(None, metavar="COLUMN", group="reads")
    "Column with the confidence of these suggestions, from 0 to 1 (default: none)."

    seed: int = flag(0, group="other")
    "Random seed: it decides which texts are asked at random."


def check_label(options: LabelOptions, token: str | None) -> None:
    """Refuse options that contradict each other, before anything is read."""
    check_server(options, token)
    if options.confidence is not None and options.suggested is None:
        raise UserError("--confidence says how sure suggestions are, and there are none. Give --suggested COLUMN, too.")
    names = options.labels or ()
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"--labels names {twice!r} twice. Drop one.")
    if options.multilabel and any("|" in name for name in names):
        raise UserError("--labels: with --multilabel, | separates labels. Choose names without it.")
    if options.multilabel and options.single_label:
        raise UserError("--multilabel and --single-label contradict each other. Drop one.")
    for each in options.base or ():
        if Path(each).absolute() == options.out.absolute():
            raise UserError(f"--out {options.out} is the base given by --from. Choose another directory.")
