"""The options of `rehead pretrain`. Nothing heavy is imported here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rehead.errors import UserError
from rehead.model.config import ModelConfig, preset
from rehead.model.objectives import OBJECTIVES, Stage, parse_objective, specs_of
from rehead.model.size_options import ModelSizeOptions
from rehead.options import CommonOptions, flag, positional
from rehead.pretrain.adapting.options import check_adapting
from rehead.text.documents import ReadOptions
from rehead.training.budget import LARGEST
from rehead.training.options import TrainingOptions

DEFAULT_OBJECTIVES = {"bag": "bag", "lab": "causal", "small": "bag,causal", "base": "bag,causal"}
SHORTEST_PAIR = 12  # tokens of a row that holds two sentences and three marks


@dataclass(kw_only=True)
class PretrainOptions(CommonOptions, ModelSizeOptions, ReadOptions, TrainingOptions):
    """Pretrain a base on unlabelled text."""

    GROUP = "training"
    MOST_USED = ("out", "preset", "objective", "epochs", "minutes")

    texts: list[str] = positional(metavar="TEXT")
    "Unlabelled text: files, folders or globs, or - for standard input."

    out: Path = flag(metavar="RUN", group="writes")
    "Output directory of the run."

    base: str | None = flag(None, name="--from", metavar="BASE", group="model")
    """Go on with an encoder that others pretrained, instead of a base of rehead's own: a directory of Hugging Face or
    sentence-transformers, hf:NAME or package:NAME (default: a new base of --preset)."""

    preset: Literal["lab", "small", "base", "bag"] = flag("bag", group="model")
    """Model architecture. bag: n-gram vectors, no layers; small: a Transformer of 4 layers on n-gram vectors; base: a
    Transformer of 8 layers; lab: the Transformer of the classic experiment."""

    objective: str | None = None
    """Training objective. causal: predict the next token; masked: predict masked tokens; hybrid: both; document:
    predict a document's n-grams from its other n-grams, through the layers; bag: the same without the layers. A,B: one
    after the other; A:0.8,B:0.2: with these shares of the budget; A+B: both in every step (default: bag for --preset
    bag, causal for lab, bag,causal for small and base). With --from: masked, causal, or contrastive: tell a text from
    others by its vector (default: contrastive for a sentence encoder, else what the base was pretrained with)."""

    tokenizer: Path | None = flag(None, metavar="FILE", group="model")
    """Existing tokenizer: a tokenizer.json, or a SentencePiece .model with its dict.txt beside it (default: train one
    on the text)."""

    embeddings: str | None = flag(None, metavar="BASE", group="model")
    """Start the token embeddings from word vectors (.vec) or a static table that others pretrained (a directory,
    hf:NAME or package:NAME), projected to the hidden size (default: random, or learnt by a first stage: bag,causal)."""

    vocab: int | None = flag(None, metavar="N", group="model")
    "Vocabulary size of the trained tokenizer (default: the preset's)."

    lowercase: bool | None = flag(None, group="model")
    "Lowercase text in the trained tokenizer (default: on, unless the objective is causal or hybrid)."

    epochs: float | None = flag(None, metavar="N")
    """Budget: number of passes over the text (default: 1 to 12, fewer for more text; bag stops earlier if the held-out
    loss no longer falls; with --from 1 to 3)."""

    tokens: float | None = flag(None, metavar="N")
    "Budget: number of tokens to train on (default: none; --epochs applies)."

    minutes: float | None = flag(None, metavar="N")
    "Budget: training time in minutes, tokenization not included (default: none; --epochs applies)."

    batch: int | None = flag(None, metavar="TOKENS")
    """Batch size in tokens, over all processes; bag reads at least 64 documents per step (default: for bag and document
    20,480, but at most 192 documents; otherwise 1/2,000 of the budget, from 1,024 to 8,192)."""

    length: int = flag(256, metavar="T", group="long")
    "Sequence length in tokens of causal, masked and hybrid; for document, the maximum length that the layers read."

    mask_probability: float = flag(0.3, metavar="P")
    "Probability that masked and hybrid mask a token in training; validation always masks 15 %."

    next_sentence: bool = False
    "With masked: add BERT's next-sentence prediction."

    causal_rows: float = flag(0.5, metavar="P")
    "With hybrid: fraction of the sequences that are trained with a causal mask."

    skip_empty: bool = True
    "Skip empty texts and report how many; --no-skip-empty stops at the first."

    resume: bool = flag(False, group="writes")
    "Continue an interrupted run: repeat its command with this flag."

    overwrite: bool = flag(False, group="writes")
    "Replace an existing run."


def shape_of(options: PretrainOptions, ntokens: int | None = None) -> ModelConfig:
    """Make the configuration of the model, for a vocabulary of this size; an impossible one is refused."""
    config = preset(options.preset, **options.changed_sizes(), **({} if ntokens is None else {"ntokens": ntokens}))
    return config if options.length <= config.maxlen else dataclasses.replace(config, maxlen=options.length)


def objective_of(options: PretrainOptions) -> str:
    """Give the objective string: what the user said, or the default of the preset."""
    return DEFAULT_OBJECTIVES.get(options.preset, "bag") if options.objective is None else options.objective


def stages_of(options: PretrainOptions) -> list[Stage]:
    """Parse the objective, given or default, into stages."""
    return parse_objective(objective_of(options))


def check_pretraining(options: PretrainOptions) -> None:
    """Refuse contradicting options before anything is read or written."""
    _check_amounts(options)
    if options.base is not None:
        check_adapting(options)
    else:
        _check_own(options)


def _check_amounts(options: PretrainOptions) -> None:
    """Check the budget, sizes and shares."""
    named = [name for name in ("epochs", "tokens", "minutes") if getattr(options, name) is not None]
    if len(named) > 1:
        raise UserError(f"--{named[0]} and --{named[1]} are both budgets. Give one.")
    for name in named:
        if not 0 < getattr(options, name) < LARGEST:
            raise UserError(f"--{name} {getattr(options, name):g}: must be above 0 and below {LARGEST:g}.")
    if options.length < 2:
        raise UserError(f"--length {options.length}: must be 2 or more.")
    if options.batch is not None and options.batch < options.length:
        raise UserError(f"--batch {options.batch} is less than one sequence of --length {options.length} tokens.")
    if not 0 < options.mask_probability < 1:
        raise UserError(f"--mask-probability {options.mask_probability:g}: must be between 0 and 1.")
    if not 0 < options.causal_rows < 1:
        raise UserError(f"--causal-rows {options.causal_rows:g}: must be between 0 and 1.")
    if options.resume and options.overwrite:
        raise UserError("--resume continues a run and --overwrite deletes it. Give one.")


def _check_own(options: PretrainOptions) -> None:
    """Check what a base of rehead's own is made and trained by."""
    specs = specs_of(stages_of(options))
    for name in sorted(frozenset[str]().union(*(spec.options for spec in OBJECTIVES.values()))):
        unchanged = getattr(options, name) == getattr(PretrainOptions, name)
        if not unchanged and not any(name in spec.options for spec in specs):
            takes = " or ".join(spec.name for spec in OBJECTIVES.values() if name in spec.options)
            raise UserError(
                f"--{name.replace('_', '-')} goes with --objective {takes}, not with {objective_of(options)}."
            )
    if options.next_sentence and options.length < SHORTEST_PAIR:
        raise UserError(f"--length {options.length} is too short for two sentences. Choose {SHORTEST_PAIR} or more.")
    _check_order(options, shape_of(options))
    if options.tokenizer is not None and options.vocab is not None:
        raise UserError(
            "--vocab applies to a tokenizer that is trained here, not to one given by --tokenizer. Drop one."
        )
    if options.tokenizer is not None and options.lowercase is not None:
        raise UserError(
            "--lowercase applies to a tokenizer that is trained here, not to one given by --tokenizer. Drop one."
        )


def _check_order(options: PretrainOptions, shape: ModelConfig) -> None:
    """Refuse to train embeddings past layers that need not be the identity, but as a warm start."""
    stages = stages_of(options)
    if "bag" in shape.views and shape.norm == "pre":
        return
    for place, stage in enumerate(stages):
        past = [spec.name for spec in stage.specs if not spec.trains_layers]
        if past and (place or len(stage.specs) > 1 or len(stages) == 1):
            raise UserError(
                f"--objective {objective_of(options)}: of --preset {options.preset}, {past[0]} trains the embeddings "
                f"alone, past positions and layers. Put it first, and another objective after it: {past[0]},causal."
            )
