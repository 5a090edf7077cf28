"""From scores to labels for multilabel baselines: calibrated probabilities, and thresholds that rare labels share.

Probabilities: one slope for all labels and an intercept for each (Platt scaling), on out-of-fold scores. The intercepts
undo what balanced class weights shift, so models with and without them can be compared by log loss.

Thresholds: a threshold per label maximises macro-F1, but needs examples. On 500 comments with 28 emotions
(GoEmotions) it costs 8 points of micro-F1 and 16 points of exact matches against one threshold for all labels, which
loses up to 2 points of macro-F1. So labels with few examples share a threshold, the one with the best micro-F1;
"few" is chosen by cross-validation, in which the thresholds that are judged on a fold are tuned on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rehead.compare.statistics import macro_f1, micro_f1
from rehead.finetune.thresholds import find_thresholds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

SLOPES = 2.0 ** np.arange(-4, 5)
OWN_FROM = (5, 20, 80, None)  # examples that a label needs for a threshold of its own; None: all labels share one
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


@dataclass(frozen=True)
class Decisions:
    """Thresholds of the labels, with their cross-validated scores."""

    thresholds: list[float]
    micro_f1: float
    macro_f1: float

    @property
    def score(self) -> float:
        """Mean of micro-F1, which frequent labels decide, and macro-F1, in which all labels count the same."""
        return (self.micro_f1 + self.macro_f1) / 2


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


def choose_thresholds(probabilities: Floats, truth: Flags, folds: Sequence[tuple[Ints, Ints]]) -> Decisions:
    """Choose which labels get a threshold of their own, and tune them all. probabilities, truth: (N, K).

    `folds` split the documents; the scores are those of thresholds tuned on the other folds.
    """
    found = []
    for own_from in OWN_FROM:
        predicted = np.zeros_like(truth)
        for rest, held_out in folds:
            predicted[held_out] = probabilities[held_out] >= _thresholds(probabilities[rest], truth[rest], own_from)
        found.append(
            Decisions(
                _thresholds(probabilities, truth, own_from).tolist(),
                micro_f1(truth, predicted),
                macro_f1(truth, predicted),
            )
        )
    return max(found, key=lambda each: each.score)


def _thresholds(probabilities: Floats, truth: Flags, own_from: int | None) -> Floats:
    """Tune a threshold for each label with at least `own_from` examples, and one for the others together. (K,)."""
    shared = find_thresholds(
        probabilities.reshape(-1, 1), truth.reshape(-1, 1)
    )  # best micro-F1: all pairs as one label
    if own_from is None:
        return np.full(truth.shape[1], shared[0])
    return np.where(truth.sum(0) >= own_from, find_thresholds(probabilities, truth), shared[0])


def sigmoid(log_odds: Floats) -> Floats:
    """Log-odds → probabilities."""
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -30, 30))))


def log_loss(log_odds: Floats, binary: Flags) -> float:
    """Mean binary log loss over all questions. log_odds, binary: (N, questions)."""
    return float(np.logaddexp(0, np.where(binary, -log_odds, log_odds)).mean())
