"""What a run does, phase by phase: objectives, learning rates, budgets, and what is usual unless the user says."""

from __future__ import annotations

from dataclasses import dataclass

from rehead.model.config import ModelConfig
from rehead.model.model import Model
from rehead.pretrain.causal import Causal
from rehead.pretrain.document import Document
from rehead.pretrain.grams import choose_rows
from rehead.pretrain.hybrid import Hybrid
from rehead.pretrain.masked import Masked
from rehead.pretrain.masking import Masking
from rehead.pretrain.mixed import Mixed
from rehead.pretrain.next_sentence import NextSentence
from rehead.pretrain.options import PretrainOptions
from rehead.pretrain.recipe import DOCUMENT, Stage
from rehead.text.store_part import StorePart
from rehead.text.tokenizer import Tokenizer
from rehead.training.budget import Budget
from rehead.training.loop import Phase
from rehead.training.objective import Objective
from rehead.training.optimizers import Rates

DOCUMENT_BATCH = 20_480  # tokens in a step of documents: see docs/pretraining.md
# Rows of text: a short run takes smaller steps, so that it takes enough of them.
SMALLEST, LARGEST, STEPS = 1_024, 8_192, 2_000
SHORT = 2_048  # where minutes are the budget, and nobody knows how many tokens they hold


@dataclass
class Prepared:
    """What training starts from."""

    tokenizer: Tokenizer
    train: StorePart
    valid: StorePart
    fingerprint: str
    "Of the text; the first process knows it."


def make_phases(options: PretrainOptions, stages: list[Stage], model: Model, prepared: Prepared) -> list[Phase]:
    """Make the phases of a run."""
    if not DOCUMENT & set(stages[0].objectives):  # which do it themselves
        choose_rows(model.base, prepared.train, options.seed)
    phases = []
    before: Document | None = None
    for place, stage in enumerate(stages):
        objectives = []
        for name in stage.objectives:
            each = _objective(name, options, model, prepared, stage, fresh=not place and before is None)
            if isinstance(each, Document):
                if before is not None:
                    each.follow(before)
                before = each
            objectives.append(each)
        objective = objectives[0] if len(objectives) == 1 else Mixed(objectives)
        budget = _budget(options, objective, stage.share, int(prepared.train.offsets[-1]))
        phases.append(Phase(objective, budget, _rates(options, model.config)))
    return phases


def _objective(
    name: str, options: PretrainOptions, model: Model, prepared: Prepared, stage: Stage, *, fresh: bool
) -> Objective:
    """Make one objective on the model; `fresh`: if it reads documents, it finds the model as it was made."""
    train, valid, tokenizer = prepared.train, prepared.valid, prepared.tokenizer
    batch = options.batch
    if batch is None:
        tokens = int(train.offsets[-1])
        batch = DOCUMENT_BATCH if name in DOCUMENT else usual_batch(options, stage.share, tokens)
    rows: dict[str, int] = {"time": options.length, "batch": batch, "seed": options.seed}
    if name in DOCUMENT:
        made = Document(model, train, valid, fresh=fresh, layers=name == "document", **rows)
        made.name = name
        return made
    if name == "causal":
        return Causal(model, train, valid, **rows)
    masking = Masking.of(tokenizer, options.mask_probability)
    if name == "hybrid":
        return Hybrid(model, train, valid, masking, causal_rows=options.causal_rows, **rows)
    if options.next_sentence:
        return NextSentence(model, train, valid, masking, tokenizer, **rows)
    return Masked(model, train, valid, masking, **rows)


def usual_batch(options: PretrainOptions, share: float, tokens: int) -> int:
    """How many tokens a step on rows takes, unless the user says; `tokens` is the size of the text."""
    if options.minutes is not None:
        usual = SHORT
    elif options.tokens is not None:
        usual = round(options.tokens * share / STEPS)
    else:
        epochs = row_epochs(tokens) if options.epochs is None else options.epochs
        usual = round(epochs * share * tokens / STEPS)
    return max(options.length, min(LARGEST, max(SMALLEST, usual)))


def _rates(options: PretrainOptions, config: ModelConfig) -> Rates:
    """Choose the learning rates: unless --lr is given, that of AdamW falls with the model's width."""
    width = (256 / config.nhid) ** 0.5
    default = Rates(adamw=Rates.adamw * width, decay=options.weight_decay)
    return default.at(options.lr, options.lr_scale)


def _budget(options: PretrainOptions, objective: Objective, share: float, tokens: int) -> Budget:
    """Give a phase its share of the budget."""
    if options.minutes is not None:
        return Budget("minutes", options.minutes * share)
    if options.tokens is not None:
        return Budget("tokens", options.tokens * share)
    epochs = default_epochs(objective, tokens) if options.epochs is None else options.epochs
    return Budget("steps", max(1, round(epochs * share * objective.steps_in_epoch())))


def default_epochs(objective: Objective, tokens: int) -> float:
    """How often a text of so many tokens is read, unless the user says: small ones more often.

    A bag reads fast and has learnt most of what it will in four epochs; on six million tokens ten are too many.
    Language models take a hundred times as long for a token.
    """
    if isinstance(objective, Document) and objective.bag:
        return max(1.0, min(20.0, max(4.0, 25e6 / tokens), 400e6 / tokens))
    return row_epochs(tokens)


def row_epochs(tokens: int) -> float:
    """How often rows of a text of so many tokens are read, unless the user says."""
    return max(1.0, min(10.0, 10e6 / tokens))
