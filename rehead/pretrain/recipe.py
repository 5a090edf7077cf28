"""What `--objective` means: which objectives, in which order, and how much of the budget each gets.

    causal                     one
    bag                        that of `document`, past the layers: the embeddings under them learn, fast
    document,masked            one after the other, half of the budget each
    document:0.8,masked:0.2    with other shares
    masked+document            both in every step, losses added up

A share is one of the budget, be it epochs, tokens or minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rehead.errors import UserError

OBJECTIVES = ("causal", "masked", "hybrid", "document", "bag")
DOCUMENT = frozenset(("document", "bag"))
LANGUAGE = frozenset(("causal", "masked", "hybrid"))  # those that train a language-model head


@dataclass(frozen=True)
class Stage:
    """One phase of a recipe."""

    objectives: tuple[str, ...]
    share: float
    "Of the budget."


def read_recipe(text: str) -> list[Stage]:
    """Read what `--objective` says."""
    stages = []
    for part in text.split(","):
        names, colon, share = part.partition(":")
        objectives = tuple(name.strip() for name in names.split("+"))
        for name in objectives:
            if name not in OBJECTIVES:
                raise UserError(f"--objective {text}: {name!r} is not known. There are: {', '.join(OBJECTIVES)}.")
        if len(set(objectives)) < len(objectives):
            raise UserError(f"--objective {text}: {names.strip()} names one objective twice.")
        stages.append((objectives, _share(text, share) if colon else None))
    given = [share for _, share in stages if share is not None]
    if given and len(given) < len(stages):
        raise UserError(f"--objective {text}: give a share to every objective, or to none.")
    if given and not math.isclose(sum(given), 1, abs_tol=1e-6):
        raise UserError(f"--objective {text}: the shares add up to {sum(given):g} instead of 1.")
    return [Stage(objectives, 1 / len(stages) if share is None else share) for objectives, share in stages]


def has_language_model(stages: list[Stage]) -> bool:
    """Tell whether a recipe trains a language-model head."""
    return any(LANGUAGE & set(stage.objectives) for stage in stages)


def generates(stages: list[Stage]) -> bool:
    """Tell whether a recipe learns to continue a text."""
    return any({"causal", "hybrid"} & set(stage.objectives) for stage in stages)


def _share(text: str, share: str) -> float:
    try:
        value = float(share)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise UserError(f"--objective {text}: the share {share!r} is no number between 0 and 1.")
    return value
