"""The options of fine-tuning. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from rehead.errors import UserError
from rehead.model.dials import DialOptions
from rehead.options import CommonOptions, flag, positional
from rehead.text.documents import ReadOptions
from rehead.training.options import TrainingOptions, check_training

Freeze = Literal["base", "layers", "embeddings", "none"]


@dataclass(kw_only=True)
class FitOptions(TrainingOptions):
    """How a classifier is trained by gradient; which data and which base are the caller's own."""

    freeze: Freeze | None = None
    """What stays as it is: base (the best linear classifier on it is found by cross-validation); or, with the rest
    trained by gradient, layers, embeddings, none. Left out with --from: what cross-validation finds best; with
    --scratch: none."""

    epochs: float | None = flag(None, metavar="N")
    """Read the examples this many times (default: by their number, 20 times for few to 4 for many; twice that where
    layers read)."""

    batch: int | None = flag(None, metavar="TOKENS")
    "Tokens in a step (default: as many as 32 documents have on average; less where examples are few)."

    length: int | None = flag(None, metavar="T")
    "Tokens read at once (default: 256 where layers read, else the whole document)."

    long: Literal["head", "tail", "head+tail", "windows"] | None = None
    """What is read of a longer document; several windows are averaged (default: head+tail in training by gradient, else
    windows)."""

    dropout: float | None = None
    "Share of values zeroed in training (default: the base's own; 0.5 of the document's vector where no layer reads)."

    class_weights: Literal["none", "balanced"] = "none"
    "Whether rare classes count more, so that all count the same."

    unfreeze: float | None = flag(None, metavar="EPOCHS")
    "Begin with the head alone, and let one more layer move after so many epochs, from the top."

    layer_decay: float = 1.0
    "Learning rate of each layer, as a share of that of the layer above it."

    patience: int | None = flag(None, metavar="EPOCHS")
    "Stop after so many epochs that validation found no better (default: go on; the best epoch is kept anyway)."

    validations: int = flag(0, metavar="N")
    "How often validation is looked at; 0: after every epoch."

    warmup: float = 0.1
    "Share of the run in which the learning rate rises."


@dataclass(kw_only=True)
class FinetuneOptions(CommonOptions, DialOptions, ReadOptions, FitOptions):
    """Make a classifier out of a base and labelled text."""

    labelled: list[str] = positional(metavar="LABELLED")
    "Labelled text: csv, tsv, jsonl or parquet files, or folders with one subfolder per class."

    out: Path = flag(metavar="RUN")
    "Directory of the run."

    base: Path | None = flag(None, name="--from", metavar="RUN")
    "A pretrained run: its head is replaced."

    scratch: bool = False
    "Train the same from random weights: the shape of --preset, or of --from where both are given."

    valid: list[str] | None = flag(None, metavar="FILE")
    """Labelled text for validation. In training by gradient it decides which epoch is kept, and calibrates; left out,
    a part of the examples, drawn by the seed, does so. Where cross-validation decides (no --freeze, or --freeze base)
    it calibrates only."""

    unlabelled: list[str] | None = flag(None, metavar="TEXT")
    "Text without labels, such as that of pretraining: exact words learn from what is guessed of it, if that helps."

    preset: Literal["lab", "small", "base", "bag"] = "bag"
    "With --scratch: the shape of the model (bag: n-gram vectors, no layers; the others are Transformers)."

    tokenizer: Path | None = None
    "With --scratch: a tokenizer.json or SentencePiece .model. Left out: one is trained on the examples."

    vocab: int | None = flag(None, metavar="N")
    "With --scratch: size of the vocabulary of a tokenizer that is trained (default: the preset's own)."

    resume: bool = False
    "Go on with a run that was interrupted: the same command, and this."

    overwrite: bool = False
    "Replace a run that is already there."


# What is for training by gradient alone.
GRADIENT = (
    "epochs", "batch", "dropout", "unfreeze", "layer_decay", "patience", "validations", "lr", "optimizer", "warmup",
    "decay", "weight_decay", "clip", "accumulate", "precision",
)  # fmt: skip


def given_for_gradient(options: FitOptions) -> list[str]:
    """List the flags that are for training by gradient and not as they are unless given."""
    usual = {each.name: each.default for each in fields(FitOptions)}
    return [f"--{name.replace('_', '-')}" for name in GRADIENT if getattr(options, name) != usual[name]]


def check_fit(options: FitOptions) -> None:
    """Refuse values that make no sense, by the name of the flag."""
    check_training(options)
    above_zero = ("epochs", "batch", "length", "unfreeze", "patience")
    for name in above_zero:
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"--{name} {value:g}: must be above 0.")
    if options.dropout is not None and not 0 <= options.dropout < 1:
        raise UserError(f"--dropout {options.dropout:g}: must be from 0 to below 1.")
    if options.shard:
        raise UserError("--shard is for pretraining: a classifier is fine-tuned whole. Drop it.")
    if not 0 < options.layer_decay <= 1:
        raise UserError(f"--layer-decay {options.layer_decay:g}: must be above 0 and at most 1.")


def check_use(options: FitOptions) -> None:
    """Refuse what can never be used where cross-validation decides, by what is to stay as it is."""
    given = given_for_gradient(options)
    if options.freeze == "base" and given:
        raise UserError(f"{given[0]} is for training by gradient, of which --freeze base does none. Drop one.")
    if options.freeze is None and (looks := [each for each in given if each in ("--patience", "--validations")]):
        raise UserError(
            f"{looks[0]} is for training that validation looks at, which cross-validation does without. Drop it, or "
            "give --freeze layers or none."
        )


def cross_validates(options: FinetuneOptions) -> bool:
    """Tell whether cross-validation chooses the classifier, rather than training by gradient with a validation part."""
    return options.base is not None and not options.scratch and options.freeze in (None, "base")


def check_finetuning(options: FinetuneOptions) -> None:
    """Refuse what contradicts itself before anything is read or written."""
    check_fit(options)
    if options.base is None and not options.scratch:
        raise UserError("what to start from? Give --from RUN (a pretrained run), or --scratch (random weights).")
    if options.resume and options.overwrite:
        raise UserError("--resume goes on with a run and --overwrite throws it away. Give one.")
    if options.base is not None:
        for name in ("tokenizer", "vocab", "nhid", "nlayers", "nhead"):
            if getattr(options, name) is not None:
                raise UserError(f"--{name} goes with --scratch alone: --from brings its own. Drop one.")
        if options.base.absolute() == options.out.absolute():
            raise UserError(f"--out {options.out} is the run that --from names. Choose another name.")
    if cross_validates(options):
        check_use(options)
    if options.unlabelled and not (cross_validates(options) and options.freeze is None):
        other = "--scratch" if options.scratch else f"--freeze {options.freeze}"
        raise UserError(f"--unlabelled is tried where cross-validation decides, not with {other}. Drop one.")
    if options.tokenizer is not None and options.vocab is not None:
        raise UserError("--vocab is for a tokenizer that is trained; --tokenizer brings its own. Drop one.")
    layers_alike = options.base is not None and options.freeze == "layers"  # perhaps the identity, as those of --from
    if options.scratch and options.freeze not in (None, "none") and not layers_alike:
        raise UserError(f"--freeze {options.freeze} would keep random weights as they are. Drop it, or --scratch.")
