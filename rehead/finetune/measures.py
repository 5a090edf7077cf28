"""How good predictions are: accuracy, macro-F1, each class, the confusion matrix, calibration. Numpy only.

Truth is (N,) of class numbers, or (N, K) of yes and no where documents have several labels; guesses have the same form.
For several labels accuracy is the share of documents with all labels right, and the confusion matrix is left out.

A class that is neither there nor guessed has no F1: it is left out of the mean (scikit-learn would count it as 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

BINS = 15  # of the calibration error


@dataclass
class ClassMeasures:
    """How one class fares."""

    name: str
    count: int
    "Documents of this class."
    guessed: int
    "Documents taken for it."
    precision: float
    recall: float
    f1: float


@dataclass
class Measured:
    """How a classifier fares on some documents."""

    count: int
    accuracy: float
    macro_f1: float
    loss: float
    "Mean −log of the probability given to the truth (over the labels too, if there are several)."
    calibration_error: float
    "Expected calibration error: how far the probabilities are from the shares of right guesses."
    classes: list[ClassMeasures]
    confusion: list[list[int]] | None
    "Rows: the truth; columns: the guess. None if documents have several labels."


def measure(
    probabilities: Numbers, truth: Numbers, names: Sequence[str], thresholds: Numbers | None = None
) -> Measured:
    """Measure all there is: probabilities (N, K) against the truth (N,) or (N, K)."""
    multilabel = truth.ndim == 2
    guess = guesses(probabilities, multilabel=multilabel, thresholds=thresholds)
    each = per_class(truth, guess, names)
    return Measured(
        count=len(truth),
        accuracy=accuracy(truth, guess),
        macro_f1=macro_f1(truth, guess, len(names)),
        loss=log_loss(probabilities, truth),
        calibration_error=calibration_error(probabilities, truth),
        classes=each,
        confusion=None if multilabel else confusion(truth, guess, len(names)).tolist(),
    )


def guesses(
    probabilities: Numbers, *, multilabel: bool, thresholds: Numbers | Sequence[float] | None = None
) -> Numbers:
    """Decide by probabilities: the most probable class, (N,), or all labels that reach their threshold, (N, K)."""
    chosen: Numbers = probabilities.argmax(1)
    if multilabel:
        chosen = probabilities >= (0.5 if thresholds is None else np.asarray(thresholds))
    return chosen


def accuracy(truth: Numbers, guess: Numbers) -> float:
    """Share of documents that are right altogether; NaN if there are none."""
    if not len(truth):
        return float("nan")
    right = truth.astype(bool) == guess if truth.ndim == 2 else truth == guess
    return float((right.all(1) if truth.ndim == 2 else right).mean())


def macro_f1(truth: Numbers, guess: Numbers, classes: int) -> float:
    """Mean of the F1 of the classes that are there or guessed; NaN if there are none."""
    found = [each.f1 for each in per_class(truth, guess, [""] * classes) if each.count or each.guessed]
    return float(np.mean(found)) if found else float("nan")


def per_class(truth: Numbers, guess: Numbers, names: Sequence[str]) -> list[ClassMeasures]:
    """Precision, recall and F1 of each class; what would be a share of nothing is 0."""
    measured = []
    for place, name in enumerate(names):
        real = truth[:, place] > 0 if truth.ndim == 2 else truth == place
        said = guess[:, place] > 0 if guess.ndim == 2 else guess == place
        hits, count, guessed = int((real & said).sum()), int(real.sum()), int(said.sum())
        precision, recall = hits / max(1, guessed), hits / max(1, count)
        f1 = 2 * hits / max(1, count + guessed)
        measured.append(ClassMeasures(name, count, guessed, precision, recall, f1))
    return measured


def confusion(truth: Numbers, guess: Numbers, classes: int) -> NDArray[np.int64]:
    """Count how often each class (rows) was taken for each (columns): (K, K)."""
    return np.bincount(truth * classes + guess, minlength=classes**2).reshape(classes, classes).astype(np.int64)


def log_loss(probabilities: Numbers, truth: Numbers) -> float:
    """Mean −log of the probability of what is true; a probability of 0 counts as the smallest one of float32."""
    if not len(truth):
        return float("nan")
    safe = np.clip(probabilities.astype(np.float64), 1e-38, 1.0)
    if truth.ndim == 1:
        return float(-np.log(safe[np.arange(len(truth)), truth]).mean())
    other = np.clip(1 - probabilities.astype(np.float64), 1e-38, 1.0)
    return float(-np.where(truth > 0, np.log(safe), np.log(other)).mean())


def calibration_error(probabilities: Numbers, truth: Numbers, bins: int = BINS) -> float:
    """Expected calibration error: in bins of equal width, |mean probability − share that came true|, weighted.

    Of one label each: the probability of the guess against being right. Of several: that of every label against its
    being there.
    """
    if not len(truth):
        return float("nan")
    if truth.ndim == 1:
        sure, right = probabilities.max(1), probabilities.argmax(1) == truth
    else:
        sure, right = probabilities.reshape(-1), truth.reshape(-1) > 0
    sure = sure.astype(np.float64)
    where = np.minimum((sure * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(where, sure - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(sure))
