"""The options of fine-tuning. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rehead.errors import UserError
from rehead.model.size_options import ModelSizeOptions
from rehead.options import CommonOptions, flag, positional
from rehead.text.documents import ReadOptions
from rehead.training.options import TrainingOptions, check_training

if TYPE_CHECKING:
    from rehead.pretrain.options import PretrainOptions

Freeze = Literal["base", "layers", "embeddings", "none"]
Metric = Literal["accuracy", "macro-f1", "micro-f1"]


@dataclass(kw_only=True)
class FitOptions(TrainingOptions):
    """How a classifier is trained by gradient descent; its data and base are options of the command."""

    GROUP = "training"

    freeze: Freeze | None = None
    """Weights to freeze. base: all but the head, a linear classifier chosen by cross-validation; layers; embeddings;
    none: train everything (default: what cross-validation finds best; with --scratch, none)."""

    epochs: float | None = flag(None, metavar="N")
    """Number of epochs (default: 4 to 20, fewer for more examples; twice as many with layers; 3 to 10
    for an encoder that others pretrained)."""

    minutes: float | None = flag(None, metavar="N")
    """Time for training by gradient descent, in minutes. With --freeze layers, embeddings or none: instead of --epochs.
    Where cross-validation selects, fine-tuning an encoder that others pretrained is tried, with fewer epochs if the
    time is short; 0: it is not tried (default: --epochs; where cross-validation selects, encoders are fine-tuned if
    that takes no more than about two minutes)."""

    batch: int | None = flag(None, metavar="TOKENS")
    """Batch size in tokens (default: 32 documents of average length, 16 for an encoder that others pretrained; less for
    few examples)."""

    length: int | None = flag(None, metavar="T", group="long")
    "Maximum number of tokens read at once (default: 256 with layers; without layers, the whole document)."

    long: Literal["head", "tail", "head+tail", "windows"] | None = flag(None, group="long")
    """How to read a document longer than --length, or than an encoder that others pretrained reads at once. head, tail,
    head+tail: truncate it to its beginning, its end, or a quarter and three quarters of both; windows: read all of it
    in windows and average their scores, of such an encoder the vectors of at most four (default: head+tail in training
    by gradient descent, otherwise windows)."""

    pooling: Literal["last", "mean"] | None = flag(None, group="model")
    """How the hidden states of layers become one vector, in training by gradient descent: the last one, or their mean
    (default: as the base's preset says: last for lab, mean for the others)."""

    attention: Literal["causal", "both"] | None = flag(None, group="model")
    """How layers read a text that they classify, in training by gradient descent. causal: under the square mask; both:
    every token attends to all (default: as the base's preset says: causal for lab, both for the others)."""

    dropout: float | None = flag(None, metavar="P")
    "Dropout probability (default: the base's; without layers, 0.5 on the document vector)."

    class_weight: Literal["balanced"] | None = None
    "balanced: weight classes by inverse frequency, over the classes present (default: all examples weigh the same)."

    metric: Metric = "accuracy"
    """What to choose by. accuracy: cross-validation compares by expected error (multilabel: log loss), and multilabel
    thresholds maximise the mean of exact match and micro-F1; macro-f1: all classes count the same in the expected
    error, and thresholds maximise macro-F1, so that rare classes are predicted more often; micro-f1 (multilabel only):
    thresholds maximise micro-F1."""

    unfreeze: float | None = flag(None, metavar="EPOCHS")
    """Gradual unfreezing: train the head alone first, then unfreeze one more layer after every EPOCHS, from the top
    (default: train all layers from the start)."""

    layer_decay: float = flag(1.0, metavar="FACTOR")
    "Layer-wise learning-rate decay: multiply the learning rate by this for each layer below the head."

    patience: int | None = flag(None, metavar="EPOCHS")
    """Early stopping: stop after this many epochs without improvement on the validation set (default: train to the end;
    the best epoch is kept either way)."""

    validations: int = flag(0, metavar="N")
    "Evaluate on the validation set this many times; 0: after every epoch."

    warmup_ratio: float = flag(0.1, metavar="RATIO")
    "Fraction of the run in which the learning rate warms up linearly."


@dataclass(kw_only=True)
class FinetuneOptions(CommonOptions, ModelSizeOptions, ReadOptions, FitOptions):
    """Train a classifier on labelled text, on a base that is pretrained here or given by --from."""

    MOST_USED = ("base", "out", "valid", "unlabelled", "freeze")

    labelled: list[str] = positional(metavar="LABELLED")
    "Labelled text: csv, tsv, jsonl or parquet files, or folders with one subfolder per class."

    out: Path = flag(metavar="RUN", group="writes")
    "Output directory of the classifier."

    base: list[str] | None = flag(None, name="--from", metavar="BASE", group="model")
    """Bases to start from, one or several: a pretrained run, whose head is replaced; a model that others pretrained, as
    a directory (Hugging Face, sentence-transformers, model2vec, WordLlama, spaCy), as word vectors (.vec), as hf:NAME
    of the hub or as package:NAME of an installed package. Cross-validation decides how much each counts
    (default: pretrain a base on the texts of LABELLED and --unlabelled, without labels, as rehead pretrain does)."""

    link: bool = flag(False, group="writes")
    """Do not copy the files of bases that others pretrained into RUN: refer to them where they are, with their
    digests."""

    scratch: bool = flag(False, group="model")
    "Train from random weights, with the architecture of --from, or of --preset if --from is left out."

    valid: list[str] | None = flag(None, metavar="FILE", group="reads")
    """Labelled text for validation. In training by gradient descent it selects the best epoch and calibrates the
    probabilities; where cross-validation selects (no --freeze, or --freeze base), it only calibrates (default: a part
    of LABELLED; where cross-validation selects, out-of-fold predictions)."""

    unlabelled: list[str] | None = flag(None, metavar="TEXT", group="reads")
    """Unlabelled text: files, folders or globs. The base is pretrained on it, unless --from gives one; and
    self-training uses its pseudo-labels if cross-validation improves (default: none)."""

    preset: Literal["lab", "small", "base", "bag"] = flag("bag", group="model")
    "Model architecture, unless --from gives it: lab, small, base or bag; see rehead pretrain --help."

    tokenizer: Path | None = flag(None, metavar="FILE", group="model")
    """Existing tokenizer, as a tokenizer.json or SentencePiece .model (default: that of --from, or train one on the
    texts)."""

    vocab: int | None = flag(None, metavar="N", group="model")
    "Vocabulary size of the trained tokenizer, where one is trained (default: the preset's)."

    resume: bool = flag(False, group="writes")
    "Continue an interrupted run: repeat its command with this flag."

    overwrite: bool = flag(False, group="writes")
    "Replace an existing run."


# Options of training by gradient descent alone.
GRADIENT = (
    "epochs", "minutes", "batch", "pooling", "attention", "dropout", "unfreeze", "layer_decay", "patience",
    "validations", "lr", "lr_scale", "optimizer", "warmup_ratio", "decay_ratio", "weight_decay", "clip", "accumulate",
    "precision",
)  # fmt: skip


def given_for_gradient(options: FitOptions) -> list[str]:
    """List the flags of training by gradient descent that differ from their defaults."""
    usual = {each.name: (each.default,) for each in fields(FitOptions)} | {"minutes": (None, 0)}
    return [f"--{name.replace('_', '-')}" for name in GRADIENT if getattr(options, name) not in usual[name]]


def check_fit(options: FitOptions, *, selects: bool = False) -> None:
    """Refuse values out of range; `selects`: where cross-validation selects, no minutes are a value."""
    check_training(options)
    above_zero = ("epochs", "minutes", "batch", "length", "unfreeze", "patience")
    for name in above_zero:
        value = getattr(options, name)
        if name == "minutes" and value == 0 and selects:
            continue
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"--{name} {value:g}: must be above 0.")
    if options.dropout is not None and not 0 <= options.dropout < 1:
        raise UserError(f"--dropout {options.dropout:g}: must be from 0 to below 1.")
    if options.minutes is not None:
        for name in ("epochs", "unfreeze", "patience") if options.freeze is not None else ("epochs", "unfreeze"):
            if getattr(options, name) is not None:
                raise UserError(f"--{name} counts epochs, and --minutes sets the time instead. Give one.")
    if options.shard:
        raise UserError("--shard applies to pretraining only: fine-tuning does not shard the model. Drop it.")
    if not 0 < options.layer_decay <= 1:
        raise UserError(f"--layer-decay {options.layer_decay:g}: must be above 0 and at most 1.")


def check_metric(options: FitOptions, *, multilabel: bool) -> None:
    """Refuse a metric that these labels do not have."""
    if options.metric == "micro-f1" and not multilabel:
        raise UserError(
            "--metric micro-f1 is for multilabel data: with one label per text, micro-F1 is the accuracy. "
            "Give --metric accuracy or macro-f1."
        )


def check_use(options: FitOptions) -> None:
    """Refuse options that have no effect where cross-validation selects the classifier."""
    given = given_for_gradient(options)
    if options.freeze == "base" and given:
        raise UserError(
            f"{given[0]} applies to training by gradient descent, which --freeze base does not use. Drop one."
        )
    if options.freeze is None and (looks := [each for each in given if each in ("--patience", "--validations")]):
        raise UserError(
            f"{looks[0]} needs a validation set during training, which cross-validation does not use. Drop it, or "
            "give --freeze layers or none."
        )


# Options that a base that is pretrained here shares with its classifier. The others are the defaults of pretraining.
SHARED = (
    "preset", "tokenizer", "vocab", "nhid", "nlayers", "nhead", "seed", "device", "precision", "compile",
    "checkpoint_minutes", "checkpoint_steps", "quiet", "debug",
)  # fmt: skip


def pretrains(options: FinetuneOptions) -> bool:
    """Return whether a base is pretrained first, on the texts that are given."""
    return options.base is None and not options.scratch


def pretraining_options(options: FinetuneOptions, out: Path) -> PretrainOptions:
    """Make the options by which a base is pretrained first."""
    from rehead.pretrain.options import PretrainOptions

    reading = {each.name: getattr(options, each.name) for each in fields(ReadOptions)} | {"skip_empty": True}
    shared = {name: getattr(options, name) for name in SHARED}
    return PretrainOptions(texts=[*options.labelled, *(options.unlabelled or ())], out=out, **reading, **shared)


def cross_validates(options: FinetuneOptions) -> bool:
    """Return whether cross-validation selects the classifier, rather than gradient descent with a validation set."""
    return not options.scratch and options.freeze in (None, "base")


def self_trains(options: FinetuneOptions) -> bool:
    """Return whether self-training is tried, if there is unlabelled text."""
    return cross_validates(options) and options.freeze is None


def check_finetuning(options: FinetuneOptions) -> None:
    """Refuse contradicting options before anything is read or written."""
    check_fit(options, selects=cross_validates(options))
    if options.resume and options.overwrite:
        raise UserError("--resume continues a run and --overwrite deletes it. Give one.")
    if options.base is not None:
        for name in ("tokenizer", "vocab", "nhid", "nlayers", "nhead"):
            if getattr(options, name) is not None:
                raise UserError(f"--{name} applies to a model that is made here; that of --from has its own. Drop one.")
        if any(Path(each).absolute() == options.out.absolute() for each in options.base):
            raise UserError(f"--out {options.out} is the run given by --from. Choose another directory.")
    elif options.link:
        raise UserError("--link is for bases that others pretrained. Name one with --from.")
    if cross_validates(options):
        check_use(options)
    if options.unlabelled and not pretrains(options) and not self_trains(options):
        other = "--scratch" if options.scratch else f"--freeze {options.freeze}"
        raise UserError(f"--unlabelled (self-training) needs cross-validation, which {other} does not use. Drop one.")
    if options.tokenizer is not None and options.vocab is not None:
        raise UserError(
            "--vocab applies to a tokenizer that is trained here, not to one given by --tokenizer. Drop one."
        )
    if pretrains(options):
        from rehead.pretrain.options import check_pretraining

        check_pretraining(pretraining_options(options, options.out))
    # New layers may be the identity, like untrained ones of --from: freezing them makes scratch comparable.
    same_layers = options.base is not None and options.freeze == "layers"
    if options.scratch and options.freeze not in (None, "none") and not same_layers:
        raise UserError(f"--freeze {options.freeze} would freeze random weights. Drop it, or --scratch.")


def check_base(options: FitOptions, *, scratch: bool, own: bool, brought: Sequence[str]) -> None:
    """Refuse what bases that others pretrained, given by the names of their views, cannot do.

    An encoder states its own length. One can be trained by gradient; a static table is only read.
    """
    if not own and options.length is not None:
        raise UserError(
            "--length is for a base of rehead's own; one that others pretrained states its length. Drop it."
        )
    encoders = [name for name in brought if name.startswith("encoder:")]
    if not own and options.long is not None and not encoders:
        raise UserError("--long is for bases that read so many tokens at once; a static table reads all. Drop it.")
    if not brought:
        return
    if scratch:
        raise UserError("--scratch trains a network of rehead's own. Drop it, or the base that others pretrained.")
    if options.freeze in (None, "base"):
        return
    if not encoders:
        raise UserError(f"--freeze {options.freeze} trains a network; a static table is only read. Drop one.")
    if own or len(brought) > 1:
        raise UserError(
            f"--freeze {options.freeze} trains one base by gradient descent, and {len(brought) + own} are given. Give "
            "one, or drop --freeze: cross-validation then decides how much each counts."
        )
    for name in ("compile", "optimizer", "pooling", "attention"):
        if getattr(options, name) != getattr(FitOptions, name):
            raise UserError(f"--{name} is for layers of rehead's own, not for {brought[0]}. Drop it.")
