"""The options of `rehead lab`. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rehead.errors import UserError
from rehead.model.size_options import ModelSizeOptions
from rehead.options import CommonOptions, flag
from rehead.text.documents import ReadOptions

SHORTEST = 0.5  # minutes


@dataclass(kw_only=True)
class LabOptions(CommonOptions, ModelSizeOptions, ReadOptions):
    """Answer the five questions of the classic transfer-learning experiment from a live run, in one page."""

    GROUP = "training"
    MOST_USED = ("out", "text", "labelled", "minutes", "sentence")

    out: Path = flag(metavar="DIR", group="writes")
    "Output directory, for lab.html, lab.json, and the runs they are made from."

    text: list[str] | None = flag(None, metavar="FILE", group="reads")
    "Unlabelled text to pretrain on (default: the built-in film reviews)."

    labelled: list[str] | None = flag(None, metavar="FILE", group="reads")
    "Labelled text to fine-tune and measure on; a fifth of it is held out (default: the built-in film reviews)."

    sentence: str | None = flag(None, metavar="TEXT", group="reads")
    """A sentence whose attention is drawn, and in which a token is changed and words are filled in (default: the
    beginning of a text that is measured on)."""

    minutes: float = flag(15.0, metavar="N")
    "Time for everything, in minutes. More of it pretrains longer, and reads the labelled texts longer and more often."

    seeds: int = flag(3, metavar="N")
    "Number of random seeds of scratch and pretrained, at most; where time is short there are fewer."

    labels: tuple[int, ...] | None = flag(None, metavar="N,N,…")
    "Training set sizes (default: a sixteenth, a quarter and all of the labelled examples, at most 1,600)."

    vocab: int = flag(8192, metavar="N", group="model")
    "Vocabulary size."

    seed: int = flag(0, metavar="N")
    "Random seed of the split, and the first of --seeds."

    resume: bool = flag(False, group="writes")
    "Continue an interrupted lab: repeat its command with this flag."

    overwrite: bool = flag(False, group="writes")
    "Replace an existing lab."


def check_lab(options: LabOptions) -> None:
    """Refuse contradicting options before anything is read or written."""
    if options.resume and options.overwrite:
        raise UserError("--resume continues a lab and --overwrite deletes it. Give one.")
    if (options.text is None) != (options.labelled is None):
        given, missing = ("--text", "--labelled") if options.labelled is None else ("--labelled", "--text")
        raise UserError(f"{given} is given without {missing}. Give both, or neither for the built-in film reviews.")
    if not SHORTEST <= options.minutes < float("inf"):
        raise UserError(f"--minutes {options.minutes:g}: must be {SHORTEST:g} or more.")
    if options.seeds < 1:
        raise UserError(f"--seeds {options.seeds}: must be 1 or more.")
    if options.labels is not None and (not options.labels or min(options.labels) < 4):
        raise UserError("--labels: give training set sizes of 4 or more each, such as 100,400,1600.")
    if options.sentence is not None and not options.sentence.strip():
        raise UserError("--sentence is empty. Give a few words, or leave it out.")
