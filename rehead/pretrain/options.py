"""The options of `rehead pretrain`. Nothing heavy is imported here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rehead.errors import UserError
from rehead.model.config import ModelConfig, preset
from rehead.model.dials import DialOptions
from rehead.model.objectives import OBJECTIVES, Stage, parse_objective, specs_of
from rehead.options import CommonOptions, flag, positional
from rehead.text.documents import ReadOptions
from rehead.training.budget import LARGEST
from rehead.training.options import TrainingOptions

DEFAULT_OBJECTIVES = {"bag": "bag", "lab": "causal", "small": "bag,causal", "base": "bag,causal"}
SHORTEST_PAIR = 12  # tokens of a row that holds two sentences and three marks


@dataclass(kw_only=True)
class PretrainOptions(CommonOptions, DialOptions, ReadOptions, TrainingOptions):
    """Pretrain a base on unlabelled text."""

    texts: list[str] = positional(metavar="TEXT")
    "Files, folders or globs, or - for standard input."

    out: Path = flag(metavar="RUN")
    "Directory of the run."

    preset: Literal["lab", "small", "base", "bag"] = "bag"
    """Shape of the model. bag: n-gram vectors, no layers; small: a Transformer of 4 layers on n-gram vectors; base: a
    Transformer of 8 layers; lab: the Transformer of the classic experiment."""

    objective: str | None = None
    """What is trained. bag: n-gram vectors only, without any layers; document: the same through the layers; causal,
    masked, hybrid: a language model. A,B: one after the other; A+B: both in every step; A:0.8,B:0.2: with these shares
    of the budget (default: bag for --preset bag, causal for lab, bag,causal for small and base)."""

    tokenizer: Path | None = None
    "A tokenizer.json, or a SentencePiece .model beside its dict.txt. Left out: one is trained on the text."

    vocab: int | None = flag(None, metavar="N")
    "Size of the vocabulary of a tokenizer that is trained (default: the preset's own)."

    lowercase: bool | None = None
    "Have a tokenizer that is trained read small letters only (default: unless the run learns to generate)."

    epochs: float | None = flag(None, metavar="N")
    "Budget: read the text this many times."

    tokens: float | None = flag(None, metavar="N")
    "Budget: read this many tokens."

    minutes: float | None = flag(None, metavar="N")
    "Budget: train for so long; encoding the text is not counted."

    batch: int | None = flag(None, metavar="TOKENS")
    """Tokens in a step, over all processes (default: 20,480 for bag and document, else a two thousandth of the budget,
    from 1,024 to 8,192). A bag reads at least 64 documents in a step."""

    length: int = flag(256, metavar="T")
    "Tokens in a row of text (causal, masked, hybrid), and the longest part that layers read (document)."

    mask_share: float = 0.3
    "Share of the tokens that masked and hybrid hide; validation always hides 15 %."

    next_sentence: bool = False
    "With masked: also ask whether one half of a row followed the other, as BERT did."

    causal_rows: float = 0.5
    "With hybrid: share of the rows that are read under the square mask."

    skip_empty: bool = True
    "Leave empty texts out, and say how many; --no-skip-empty stops at the first."

    resume: bool = False
    "Go on with a run that was interrupted: the same command, and this."

    overwrite: bool = False
    "Replace a run that is already there."


def shape_of(options: PretrainOptions, ntokens: int | None = None) -> ModelConfig:
    """Settle the shape of the model, for a vocabulary of this size; what cannot be is refused."""
    config = preset(options.preset, **options.turned(), **({} if ntokens is None else {"ntokens": ntokens}))
    return config if options.length <= config.maxlen else dataclasses.replace(config, maxlen=options.length)


def objective_of(options: PretrainOptions) -> str:
    """Give the objective string: what the user said, or the default of the preset."""
    return DEFAULT_OBJECTIVES.get(options.preset, "bag") if options.objective is None else options.objective


def stages_of(options: PretrainOptions) -> list[Stage]:
    """Parse the objective, given or default, into stages."""
    return parse_objective(objective_of(options))


def check_pretraining(options: PretrainOptions) -> None:
    """Refuse what contradicts itself before anything is read or written."""
    specs = specs_of(stages_of(options))
    named = [name for name in ("epochs", "tokens", "minutes") if getattr(options, name) is not None]
    if len(named) > 1:
        raise UserError(f"--{named[0]} and --{named[1]} are two budgets. Give one.")
    for name in named:
        if not 0 < getattr(options, name) < LARGEST:
            raise UserError(f"--{name} {getattr(options, name):g}: must be above 0 and below {LARGEST:g}.")
    if options.length < 2:
        raise UserError(f"--length {options.length}: must be 2 or more.")
    if options.batch is not None and options.batch < options.length:
        raise UserError(f"--batch {options.batch} is less than one row of --length {options.length} tokens.")
    if not 0 < options.mask_share < 1:
        raise UserError(f"--mask-share {options.mask_share:g}: must lie between 0 and 1.")
    if not 0 < options.causal_rows < 1:
        raise UserError(f"--causal-rows {options.causal_rows:g}: must lie between 0 and 1.")
    for name in sorted(frozenset[str]().union(*(spec.options for spec in OBJECTIVES.values()))):
        unchanged = getattr(options, name) == getattr(PretrainOptions, name)
        if not unchanged and not any(name in spec.options for spec in specs):
            takes = " or ".join(spec.name for spec in OBJECTIVES.values() if name in spec.options)
            raise UserError(
                f"--{name.replace('_', '-')} goes with --objective {takes}, not with {objective_of(options)}."
            )
    if options.next_sentence and options.length < SHORTEST_PAIR:
        raise UserError(f"--length {options.length} leaves no room for two sentences. Choose {SHORTEST_PAIR} or more.")
    shape = shape_of(options)
    skipping = [spec.name for spec in specs if not spec.trains_layers]
    if skipping and shape.norm == "post" and shape.nlayers:
        raise UserError(
            f"--objective {skipping[0]} skips the layers, so untrained layers must be the identity, which those of "
            "--preset lab (norm='post') are not. Choose --objective document, or --preset small."
        )
    if options.resume and options.overwrite:
        raise UserError("--resume goes on with a run and --overwrite throws it away. Give one.")
    if options.tokenizer is not None and options.vocab is not None:
        raise UserError("--vocab is for a tokenizer that is trained; --tokenizer brings its own. Drop one.")
    if options.tokenizer is not None and options.lowercase is not None:
        raise UserError("--lowercase is for a tokenizer that is trained; --tokenizer brings its own. Drop one.")
