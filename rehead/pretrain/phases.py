"""The phases of a run: the objective, learning rates and budget of each, with defaults for what the user left out."""

from __future__ import annotations

import math
from collections.abc import Callable

from rehead.model.config import ModelConfig
from rehead.model.model import Model
from rehead.model.objectives import OBJECTIVES, ObjectiveSpec, Stage, specs_of
from rehead.pretrain import causal, document, hybrid, masked
from rehead.pretrain.context import BuildContext, Prepared
from rehead.pretrain.document import Document
from rehead.pretrain.mixed import Mixed
from rehead.pretrain.ngram_counts import choose_ngrams
from rehead.pretrain.options import PretrainOptions
from rehead.pretrain.row_objective import RowObjective
from rehead.training.budget import Budget
from rehead.training.loop import Phase
from rehead.training.objective import Objective
from rehead.training.optimizers import Rates

BUILDERS: dict[str, Callable[[BuildContext], Objective]] = {
    "causal": causal.build,
    "masked": masked.build,
    "hybrid": hybrid.build,
    "document": document.build,
    "bag": document.build,
}
"How each of `rehead.model.objectives.OBJECTIVES` is built."

DOCUMENT_BATCH = 20_480  # tokens per step of objectives that read documents: see docs/experiments/pretraining.md
# Tokens per step on rows of text: a short run takes smaller steps, so that there are about this many of them.
SMALLEST_BATCH, LARGEST_BATCH, STEPS = 1_024, 8_192, 2_000
PATIENCE = 0.3  # share of the default budget of a bag without a lower held-out loss, after which it is stopped
TIMED_BATCH = 2_048  # where the budget is in minutes, so the number of tokens is unknown
WARM_RATE = 0.1  # of embeddings after a warm start: at the full rate, a language model soon undoes what they know


def make_phases(options: PretrainOptions, stages: list[Stage], model: Model, prepared: Prepared) -> list[Phase]:
    """Build the phases of a run, one per stage."""
    if not any(spec.reads_documents for spec in stages[0].specs):  # those choose the n-grams themselves
        choose_ngrams(model.base, prepared.train, options.seed)
    tokens = int(prepared.train.offsets[-1])
    phases = []
    built: list[Objective] = []
    for place, stage in enumerate(stages):
        objectives = []
        for name in stage.objectives:
            spec = OBJECTIVES[name]
            batch = _batch(options, spec, stage.share, tokens)
            context = BuildContext(spec, options, model, prepared, batch, place, list(built))
            objectives.append(BUILDERS[name](context))
            built.append(objectives[-1])
            if isinstance(objectives[-1], RowObjective) and warms_up(stages[:place], model.config):
                objectives[-1].embedding_rate = WARM_RATE
        objective = objectives[0] if len(objectives) == 1 else Mixed(objectives)
        budget = _budget(options, objective, stage.share, tokens)
        patience = _patience(options, objective) if place == len(stages) - 1 else None
        phases.append(Phase(objective, budget, _rates(options, model.config), patience))
    return phases


def warms_up(before: list[Stage], config: ModelConfig) -> bool:
    """Return whether earlier stages have trained the embeddings alone, under layers that read them at another size."""
    return config.scale_embedding and any(not spec.trains_layers for spec in specs_of(before))


def _batch(options: PretrainOptions, spec: ObjectiveSpec, share: float, tokens: int) -> int:
    """Choose how many tokens a step of an objective takes."""
    if options.batch is not None:
        return options.batch
    return DOCUMENT_BATCH if spec.reads_documents else default_batch(options, share, tokens)


def default_batch(options: PretrainOptions, share: float, tokens: int) -> int:
    """Give the default number of tokens per step on rows of text; `tokens` is the size of the text."""
    if options.minutes is not None:
        batch = TIMED_BATCH
    elif options.tokens is not None:
        batch = round(options.tokens * share / STEPS)
    else:
        epochs = row_epochs(tokens) if options.epochs is None else options.epochs
        batch = round(epochs * share * tokens / STEPS)
    return max(options.length, min(LARGEST_BATCH, max(SMALLEST_BATCH, batch)))


def _rates(options: PretrainOptions, config: ModelConfig) -> Rates:
    """Choose the learning rates: unless --lr is given, that of AdamW falls with the model's width."""
    width = (256 / config.nhid) ** 0.5
    default = Rates(adamw=Rates.adamw * width, weight_decay=options.weight_decay)
    return default.at(options.lr, options.lr_scale)


def _budget(options: PretrainOptions, objective: Objective, share: float, tokens: int) -> Budget:
    """Give a stage its share of the budget."""
    if options.minutes is not None:
        return Budget("minutes", options.minutes * share)
    if options.tokens is not None:
        return Budget("tokens", options.tokens * share)
    epochs = default_epochs(objective, tokens) if options.epochs is None else options.epochs
    return Budget("steps", max(1, round(epochs * share * objective.steps_in_epoch())))


def _patience(options: PretrainOptions, objective: Objective) -> int | None:
    """Stop a bag early where the user has set no budget: after so many validations without a lower held-out loss.

    The run keeps the weights of the lowest loss anyway. Earlier stages of a chain do not, so they are not stopped.
    """
    given = any(each is not None for each in (options.epochs, options.tokens, options.minutes))
    if given or not (isinstance(objective, Document) and objective.bag):
        return None
    return math.ceil(PATIENCE * options.validations) or None


def default_epochs(objective: Objective, tokens: int) -> float:
    """Give the default number of epochs for a text of so many tokens: more for small texts.

    A bag trains fast and has learnt most of what it can in four epochs; on six million tokens, ten are too many. On
    texts of ten words, twelve do as well as twenty, and six do worse (docs/experiments/pretraining.md).
    Language models take a hundred times as long per token.
    """
    if isinstance(objective, Document) and objective.bag:
        return max(1.0, min(12.0, max(4.0, 25e6 / tokens), 400e6 / tokens))
    return row_epochs(tokens)


def row_epochs(tokens: int) -> float:
    """Give the default number of epochs on rows of text."""
    return max(1.0, min(10.0, 10e6 / tokens))
