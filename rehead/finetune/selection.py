"""Choosing among candidates by their out-of-fold scores.

Each candidate is compared with the best so far and kept if the out-of-fold loss falls by more than its margin, in
standard errors of the difference (`Candidate.margin`).

The loss (`rehead.finetune.losses`) stands in for accuracy, which is too coarse with few examples. For macro-F1 it is
class-balanced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.calibration import calibrated_losses, find_temperature, probabilities
from rehead.finetune.candidates import proposal
from rehead.finetune.candidates.candidate import Candidate, Task
from rehead.finetune.metrics import accuracy, macro_f1, predicted_labels
from rehead.finetune.thresholds import tune_rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.finetune.options import Metric

    Floats = NDArray[np.float64]


@dataclass
class Comparison:
    """A candidate against the best before it."""

    name: str
    loss: float
    accuracy: float
    kept: bool
    examples: int
    "How many were held out: not the same for every candidate."
    before: float | None = None
    "Accuracy of the best before it on the same examples, its loss and its macro-F1."
    loss_before: float | None = None
    macro_f1: float | None = None
    macro_f1_before: float | None = None
    multilabel: bool = False
    "Whether accuracy means that all labels of an example are right."

    def __str__(self) -> str:
        kept = "kept" if self.kept else "not kept"
        said = []
        for name, score, before in (
            ("exact match" if self.multilabel else "accuracy", self.accuracy, self.before),
            ("macro-F1", self.macro_f1, self.macro_f1_before),
        ):
            if score is not None:
                without = "" if before is None else f" (without: {100 * before:.1f} %)"
                said.append(f"{name} {100 * score:.1f} %{without}")
        loss = f"{self.loss:.3f}" + ("" if self.loss_before is None else f" ({self.loss_before:.3f})")
        return f"{self.name}: out-of-fold {', '.join(said)} on {self.examples:,} examples, loss {loss}: {kept}"


@dataclass
class Selection:
    """The candidate that was chosen, and how."""

    best: Candidate
    compared: list[Comparison]
    untried: dict[str, str]
    "Candidates that were not tried, and why."


def select(task: Task, candidates: Iterable[str]) -> Selection:
    """Try candidates in turn; keep each that is better than the best so far."""
    best: Candidate | None = None
    compared: list[Comparison] = []
    untried: dict[str, str] = {}
    for name in candidates:
        found = proposal(name)(task, best)
        if isinstance(found, str):
            untried[name] = found
            continue
        kept = best is None or is_better(
            found.logits, best.logits, task.truth, found.margin, balanced=task.balanced_loss
        )
        if task.folds:
            compared.append(_compare(task, found, best, kept=kept))
        if kept:
            best = found
    assert best is not None  # noqa: S101 (the first is always tried)
    return Selection(best, compared, untried)


def is_better(
    new: Floats, old: Floats, truth: NDArray[Any], margin: float = Candidate.margin, *, balanced: bool = False
) -> bool:
    """Tell whether the loss falls by enough: by `margin` standard errors. Both are calibrated first."""
    known = ~np.isnan(new[:, 0]) & ~np.isnan(old[:, 0])
    before, after = (calibrated_losses(each[known], truth[known], balanced=balanced) for each in (old, new))
    gain = before - after
    return bool(gain.mean() > margin * gain.std() / max(1, len(gain)) ** 0.5)


def _compare(task: Task, found: Candidate, best: Candidate | None, *, kept: bool) -> Comparison:
    known = ~np.isnan(found.logits[:, 0])

    def judge(logits: Floats) -> tuple[float, float, float]:
        both = known & ~np.isnan(logits[:, 0])
        truth, scores = task.truth[both], logits[both]
        guess = decide(scores, truth, task.options.metric)
        loss = float(calibrated_losses(scores, truth, balanced=task.balanced_loss).mean())
        return loss, accuracy(truth, guess), macro_f1(truth, guess, scores.shape[1])

    loss, right, f1 = judge(found.logits)
    made = Comparison(found.name, loss, right, kept, int(known.sum()), macro_f1=f1)
    made.multilabel = task.truth.ndim == 2
    if best is not None:
        made.loss_before, made.before, made.macro_f1_before = judge(best.logits)
    return made


def decide(logits: Floats, truth: NDArray[Any], metric: Metric) -> NDArray[Any]:
    """Predict held-out examples with the temperature and the rule that a run calibrated on them has."""
    multilabel = truth.ndim == 2
    shares = probabilities(logits / find_temperature(logits, truth), multilabel=multilabel)
    return predicted_labels(shares, multilabel=multilabel, rule=tune_rule(shares, truth, metric))
