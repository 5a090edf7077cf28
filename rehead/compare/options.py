"""The options of `rehead compare`. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rehead.compare.kinds import OPTIONAL, Kind
from rehead.errors import UserError
from rehead.options import CommonOptions, flag, positional
from rehead.text.documents import ReadOptions
from rehead.training.options import check_rates

KINDS: tuple[str, ...] = get_args(Kind)
DEFAULT: tuple[str, ...] = tuple(each for each in KINDS if each not in OPTIONAL)


@dataclass(kw_only=True)
class CompareOptions(CommonOptions, ReadOptions):
    """Compare training from scratch, pretraining and linear baselines on the same labels; write a report."""

    GROUP = "training"
    MOST_USED = ("base", "out", "test", "labels", "seeds")

    labelled: list[str] = positional(metavar="LABELLED")
    "Labelled text: files, folders, or a split of a built-in dataset, such as imdb:train."

    base: list[str] = flag(name="--from", metavar="BASE", group="model")
    """Bases, each compared by itself: pretrained runs, or models that others pretrained (see rehead finetune --help);
    if there are some of these, the recipe also starts from all together. The method scratch trains the architecture of
    each run from random weights."""

    out: Path = flag(metavar="DIR", group="writes")
    "Output directory, for report.html and results.json."

    test: list[str] | None = flag(None, metavar="FILE", group="reads")
    "Labelled text of the test set (default: a fifth of LABELLED, held out)."

    valid: list[str] | None = flag(None, metavar="FILE", group="reads")
    "Labelled text of the validation set, which selects the best epoch (default: a fifth of the training examples)."

    labels: tuple[int, ...] | None = flag(None, metavar="N,N,…", group="training")
    "Training set sizes of the learning curve, such as 20,100,500 (default: one size, all examples)."

    seeds: int = flag(3, metavar="N")
    "Number of random seeds per method; each draws its own training examples and initial weights."

    seed: int = flag(0, metavar="N")
    "Random seed of the split, and the first of --seeds."

    methods: tuple[str, ...] = flag(DEFAULT, metavar="METHOD,…")
    """Methods to compare. scratch, pretrained: the network trained by gradient descent from random weights or from the
    base; frozen: a linear head on the frozen base; recipe: what rehead finetune does by default; tfidf, nbsvm: linear
    baselines on words and bigrams; tfidf_chars: on words, bigrams and character n-grams; fasttext: fastText's
    supervised classifier, which needs rehead[fasttext]."""

    unlabelled: list[str] | None = flag(None, metavar="FILE", group="reads")
    "Unlabelled text for the self-training of recipe (default: no self-training)."

    minutes: float | None = flag(None, metavar="N")
    """Time of recipe for fine-tuning an encoder that others pretrained, in minutes each time; 0: it is not tried
    (default: as in rehead finetune, where it takes no more than about two minutes)."""

    epochs: float | None = flag(None, metavar="N")
    "Epochs of scratch and pretrained (default: as in rehead finetune, by the number of examples)."

    batch: int | None = flag(None, metavar="TOKENS")
    "Batch size of scratch and pretrained, in tokens (default: as in rehead finetune)."

    length: int | None = flag(None, metavar="T", group="long")
    """Maximum number of tokens that the layers of scratch and pretrained read at once (default: 256; without layers,
    the whole document)."""

    pooling: Literal["last", "mean"] | None = flag(None, group="model")
    """How the hidden states of scratch and pretrained become one vector. last: the last one; mean: their mean
    (default: as in rehead finetune)."""

    attention: Literal["causal", "both"] | None = flag(None, group="model")
    """How the layers of scratch and pretrained read. causal: under the square mask; both: every token attends to all
    (default: as in rehead finetune)."""

    precision: Literal["auto", "float32", "bfloat16"] = flag("auto", group="hardware")
    """Precision of matrix products in training the layers of scratch and pretrained, float32 or bfloat16 (which then
    also predicts); auto is bfloat16 where the hardware supports it."""

    lr: float | None = flag(None, metavar="RATE")
    """Peak learning rate of scratch and pretrained for the weights that AdamW trains, at most 0.1; that of the n-gram
    vectors keeps its ratio to it (default: as in rehead finetune)."""

    lr_scale: float = flag(1.0, metavar="FACTOR")
    "Multiply the default learning rates of scratch and pretrained by this; cannot be combined with --lr."

    control: bool = True
    "Also train every method on shuffled labels, as a control: its accuracy must fall to chance."

    resume: bool = flag(False, group="writes")
    "Continue an interrupted comparison: repeat its command with this flag."

    overwrite: bool = flag(False, group="writes")
    "Replace an existing comparison."


def check_compare(options: CompareOptions) -> None:
    """Refuse contradicting options before anything is read or written."""
    check_rates(options.lr, options.lr_scale)
    if options.minutes is not None and not 0 <= options.minutes < float("inf"):
        raise UserError(f"--minutes {options.minutes:g}: must be 0 or more.")
    if options.minutes and "recipe" not in options.methods:
        raise UserError("--minutes is used by the method recipe only. Add recipe to --methods, or drop it.")
    if options.seeds < 1:
        raise UserError(f"--seeds {options.seeds}: must be 1 or more.")
    if unknown := [each for each in options.methods if each not in KINDS]:
        raise UserError(f"--methods {unknown[0]}: no such method. Choose from {', '.join(KINDS)}.")
    if not options.methods:
        raise UserError(f"--methods: name at least one of {', '.join(KINDS)}.")
    if "fasttext" in options.methods:
        from rehead.compare.fasttext_baseline import import_fasttext

        import_fasttext()
    if options.labels is not None and (not options.labels or min(options.labels) < 4):
        raise UserError("--labels: give training set sizes of 4 or more each, such as 20,100,500.")
    if options.resume and options.overwrite:
        raise UserError("--resume continues a comparison and --overwrite deletes it. Give one.")
    if options.unlabelled and "recipe" not in options.methods:
        raise UserError("--unlabelled is used by the method recipe only. Add recipe to --methods, or drop it.")
    doubles = [each for number, each in enumerate(options.base) if each in options.base[:number]]
    if doubles:
        raise UserError(f"--from {doubles[0]} is given twice. Drop one.")
