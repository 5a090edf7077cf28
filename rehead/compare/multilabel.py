"""From scores to probabilities for multilabel baselines; their thresholds are in `rehead.finetune.thresholds`.

One slope for all labels and an intercept for each (Platt scaling), on out-of-fold scores. The intercepts undo what
balanced class weights shift, so models with and without them can be compared by log loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

SLOPES = 2.0 ** np.arange(-4, 5)
NEWTON_STEPS = 30


@dataclass(frozen=True)
class Calibration:
    """Scores → probabilities."""

    slope: float
    "Factor that turns scores into log-odds."
    intercepts: Floats | None
    "(K,) for each label; None if not multilabel."
    loss: float
    "Mean binary log loss over all questions."

    def log_odds(self, scores: Floats) -> Floats:
        """Scale and shift scores. (N, questions)."""
        return self.slope * scores + (0.0 if self.intercepts is None else self.intercepts)


def calibrate(scores: Floats, binary: Flags, *, multilabel: bool) -> Calibration:
    """Fit slope and intercepts by log loss on out-of-fold scores. scores, binary: (N, questions)."""
    found = []
    for slope in SLOPES.tolist():
        intercepts = _intercepts(slope * scores, binary) if multilabel else None
        made = Calibration(slope, intercepts, 0.0)
        found.append(Calibration(slope, intercepts, log_loss(made.log_odds(scores), binary)))
    return min(found, key=lambda each: each.loss)


def _intercepts(log_odds: Floats, binary: Flags) -> Floats:
    """Find the shift of each label at which the mean probability is the label's frequency, by Newton's method.

    That is the maximum of the likelihood; half a pseudo-example on either side keeps a label without examples finite.
    """
    frequency = (binary.sum(0) + 0.5) / (len(binary) + 1)
    shift = np.zeros(binary.shape[1])
    for _ in range(NEWTON_STEPS):
        positive = sigmoid(log_odds + shift)
        step = (positive.mean(0) - frequency) / np.maximum((positive * (1 - positive)).mean(0), 1e-6)
        shift -= np.clip(step, -2, 2)
    return shift


def sigmoid(log_odds: Floats) -> Floats:
    """Log-odds → probabilities."""
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -30, 30))))


def log_loss(log_odds: Floats, binary: Flags) -> float:
    """Mean binary log loss over all questions. log_odds, binary: (N, questions)."""
    return float(np.logaddexp(0, np.where(binary, -log_odds, log_odds)).mean())
