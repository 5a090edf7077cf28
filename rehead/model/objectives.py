"""The pretraining objectives: what each one declares, and how `--objective` is written. Nothing here needs torch.

    causal                     one objective
    document,masked            one stage after the other, half of the budget each
    document:0.8,masked:0.2    the same, with other shares of the budget
    masked+document            one stage with both: a batch of each per step, and the losses added up

A new objective is declared in `OBJECTIVES`, implemented in a file of `rehead/pretrain/`, and listed in
`rehead.pretrain.phases.BUILDERS`. Everything else (options, tokenizer, head, `generate`, `fill`, export, the model
card, the training FLOPs) follows from the declaration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rehead.errors import UserError

if TYPE_CHECKING:
    from rehead.model.model import Model

Ability = Literal["generates", "fills"]


class Pretrained(Protocol):
    """What is asked here of a run (`rehead.runs.run.Run`)."""

    model: Model
    details: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ObjectiveSpec:
    """What the rest of the package needs to know about an objective."""

    name: str
    "As `--objective` spells it."

    head_cost: tuple[tuple[int | float | str, ...], ...]
    "Training FLOPs per token of the prediction head: a sum of products of numbers and symbols (`model.accounting`)."

    generates: bool = False
    "It learns to continue a text: next-token prediction."

    fills: bool = False
    "It learns to fill in masked tokens from both sides."

    fills_one_before: bool = False
    "The hidden state one position before a masked token predicts it, not the one at its own position."

    needs_mask: bool = False
    "The tokenizer must have a [MASK] token."

    needs_language_model_head: bool = False
    "It trains a language-model head, which the run keeps."

    reads_documents: bool = False
    "It reads whole documents instead of rows of text cut to one length, and chooses the n-grams that get a vector."

    trains_layers: bool = True
    "The Transformer layers compute and learn; otherwise only the vectors under them do."

    options: frozenset[str] = frozenset()
    "Options of `pretrain` that only this objective, and others that list them too, take."


_EVERY_TOKEN = (6, "nhid", "ntokens")  # 2 FLOPs per multiply-add forward, 4 backward

OBJECTIVES: dict[str, ObjectiveSpec] = {
    each.name: each
    for each in (
        ObjectiveSpec(
            name="causal",
            head_cost=(_EVERY_TOKEN,),
            generates=True,
            needs_language_model_head=True,
        ),
        ObjectiveSpec(
            name="masked",
            head_cost=((*_EVERY_TOKEN, "masked"),),
            fills=True,
            needs_mask=True,
            needs_language_model_head=True,
            options=frozenset({"mask_probability", "next_sentence"}),
        ),
        ObjectiveSpec(
            name="hybrid",
            head_cost=((*_EVERY_TOKEN, "causal_rows"), (*_EVERY_TOKEN, "masked", "masked_rows")),
            generates=True,
            fills=True,
            fills_one_before=True,
            needs_mask=True,
            needs_language_model_head=True,
            options=frozenset({"mask_probability", "causal_rows"}),
        ),
        ObjectiveSpec(
            name="document",
            head_cost=((6, "nhid", "candidates", "/length"),),
            reads_documents=True,
        ),
        ObjectiveSpec(
            name="bag",
            head_cost=((6, "nhid", "candidates", "/length"),),
            reads_documents=True,
            trains_layers=False,
        ),
    )
}


@dataclass(frozen=True)
class Stage:
    """One stage of pretraining: the objectives trained together, and their share of the budget."""

    objectives: tuple[str, ...]
    share: float

    @property
    def specs(self) -> tuple[ObjectiveSpec, ...]:
        """What its objectives declare, in the order given."""
        return tuple(OBJECTIVES[name] for name in self.objectives)


def parse_objective(text: str) -> list[Stage]:
    """Parse an objective string such as `document:0.8,masked+causal:0.2`."""
    stages = []
    for part in text.split(","):
        names, colon, share = part.partition(":")
        objectives = tuple(name.strip() for name in names.split("+"))
        for name in objectives:
            if name not in OBJECTIVES:
                raise UserError(
                    f"--objective {text}: unknown objective {name!r}. Choose from: {', '.join(OBJECTIVES)}."
                )
        if len(set(objectives)) < len(objectives):
            raise UserError(f"--objective {text}: {names.strip()} names one objective twice.")
        stages.append((objectives, _share(text, share) if colon else None))
    given = [share for _, share in stages if share is not None]
    if given and len(given) < len(stages):
        raise UserError(f"--objective {text}: give a share to every stage, or to none.")
    if given and not math.isclose(sum(given), 1, abs_tol=1e-6):
        raise UserError(f"--objective {text}: the shares add up to {sum(given):g} instead of 1.")
    return [Stage(objectives, 1 / len(stages) if share is None else share) for objectives, share in stages]


def _share(text: str, share: str) -> float:
    try:
        value = float(share)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise UserError(f"--objective {text}: the share {share!r} is not a number above 0 and at most 1.")
    return value


def specs_of(stages: Iterable[Stage]) -> list[ObjectiveSpec]:
    """List what the objectives of all stages declare."""
    return [spec for stage in stages for spec in stage.specs]


def names_with(ability: Ability) -> list[str]:
    """Name the objectives that teach a language model this."""
    return [name for name, spec in OBJECTIVES.items() if getattr(spec, ability)]


def stages_of_run(run: Pretrained) -> list[Stage]:
    """Parse the objective a run was pretrained with.

    A run that names none was saved from Python: with a language-model head it counts as a causal language model.
    """
    from rehead.model.config import LanguageModel

    named = run.details.get("objective")
    if isinstance(named, str) and named.strip():
        return parse_objective(named)
    return [Stage(("causal",), 1.0)] if isinstance(run.model.head_config, LanguageModel) else []


def last_specs(run: Pretrained) -> tuple[ObjectiveSpec, ...]:
    """Give what the objectives of a run's last stage declare: what the run is still able to do.

    A later stage moves the weights away from what an earlier one taught: after `masked,causal`, masked tokens are
    predicted worse than by their frequency alone.
    """
    stages = stages_of_run(run)
    return stages[-1].specs if stages else ()
