"""Classification metrics: accuracy, F1, precision and recall, confusion matrix, log loss, calibration error.

Truth is (N,) of class indices, or a binary matrix (N, K) for multilabel data; predictions have the same form.
Multilabel accuracy is the fraction of documents with all labels correct (exact match, subset accuracy), micro-F1 stands
beside it, and there is no confusion matrix. With one label per document micro-F1 is the accuracy, and is left out.

scikit-learn's metrics are the reference in the tests, but are not called, since they differ where it matters here: they
raise an error on an empty set, they treat a single column of labels as a binary problem and score its absence,
`f1_score` counts a class that is neither present nor predicted as 0 (here it is excluded from macro-F1), and `log_loss`
clips at 1e-7 for float32 and does not support multilabel data. Importing them also takes a second, which `rehead
evaluate` does not need otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

BINS = 15  # of the calibration error

Average = Literal["macro", "micro"]


@dataclass(frozen=True)
class DecisionRule:
    """How probabilities become labels."""

    thresholds: list[float] | None = None
    """Multilabel: the probability from which on each label is given; None for 0.5. Otherwise the class with the highest
    ratio of probability to threshold is predicted; None for the most probable one."""
    at_least_one: bool = False
    "Multilabel only: whether the most probable label is given even below its threshold, so that every text gets one."

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> DecisionRule:
        """Read the rule that the details of a run state."""
        return cls(details.get("thresholds"), bool(details.get("at_least_one", False)))

    def details(self) -> dict[str, Any]:
        """State the rule in the details of a run: what differs from the default."""
        stated = {} if self.thresholds is None else {"thresholds": self.thresholds}
        return stated | ({"at_least_one": True} if self.at_least_one else {})


BY_DEFAULT = DecisionRule()


@dataclass
class ClassMetrics:
    """Metrics of one class."""

    name: str
    count: int
    "Documents of this class (support)."
    guessed: int
    "Documents predicted as this class."
    precision: float
    recall: float
    f1: float


@dataclass
class Metrics:
    """Metrics of a classifier on some documents."""

    count: int
    accuracy: float
    macro_f1: float
    loss: float
    "Log loss (multilabel: mean over the labels too)."
    calibration_error: float
    "Expected calibration error (ECE)."
    classes: list[ClassMetrics]
    confusion: list[list[int]] | None
    "Rows: true class; columns: predicted class. None for multilabel data."
    micro_f1: float | None = None
    "F1 over all pairs of document and label. None unless multilabel."


def compute_metrics(
    probabilities: Numbers, truth: Numbers, names: Sequence[str], rule: DecisionRule = BY_DEFAULT
) -> Metrics:
    """Compute all metrics: probabilities (N, K) against the truth (N,) or (N, K)."""
    multilabel = truth.ndim == 2
    guess = predicted_labels(probabilities, multilabel=multilabel, rule=rule)
    each = per_class(truth, guess, names)
    return Metrics(
        count=len(truth),
        accuracy=accuracy(truth, guess),
        macro_f1=macro_f1(truth, guess, len(names)),
        loss=log_loss(probabilities, truth),
        calibration_error=calibration_error(probabilities, truth),
        classes=each,
        confusion=None if multilabel else confusion(truth, guess, len(names)).tolist(),
        micro_f1=micro_f1(truth, guess) if multilabel else None,
    )


def predicted_labels(probabilities: Numbers, *, multilabel: bool, rule: DecisionRule = BY_DEFAULT) -> Numbers:
    """Decide by probabilities: the most probable class, (N,), or all labels that reach their threshold, (N, K).

    With thresholds, a single-label decision is the class with the highest ratio of probability to threshold. For two
    classes whose thresholds add up to 1, that is the class whose probability reaches its threshold.
    """
    thresholds = None if rule.thresholds is None else np.asarray(rule.thresholds)
    if multilabel:
        given = with_top(probabilities) if rule.at_least_one else probabilities
        reached: Numbers = given >= (0.5 if thresholds is None else thresholds)
        return reached
    chosen: Numbers = (probabilities if thresholds is None else probabilities / thresholds).argmax(1)
    return chosen


def with_top(probabilities: Numbers) -> Numbers:
    """Raise the most probable label of each text to 1, so that it reaches any threshold: (N, K)."""
    given: Numbers = probabilities.copy()
    if given.size:
        given[np.arange(len(given)), given.argmax(1)] = 1
    return given


def accuracy(truth: Numbers, guess: Numbers) -> float:
    """Fraction of documents with all labels correct; NaN for no documents."""
    if not len(truth):
        return float("nan")
    right = truth.astype(bool) == guess if truth.ndim == 2 else truth == guess
    return float((right.all(1) if truth.ndim == 2 else right).mean())


def macro_f1(truth: Numbers, guess: Numbers, classes: int) -> float:
    """Mean F1 over the classes that are present or predicted; NaN if there are none."""
    hits, total = _counts(truth, guess, classes)
    return float(average_f1(hits, total, "macro")) if total.any() else float("nan")


def micro_f1(truth: Numbers, guess: Numbers) -> float:
    """F1 over all pairs of document and label, (N, K) each; NaN if nobody has or gets a label."""
    hits, total = _counts(truth, guess, truth.shape[1])
    return float(average_f1(hits, total, "micro")) if total.any() else float("nan")


def average_f1(hits: Numbers, total: Numbers, average: Average) -> Numbers:
    """F1 by true positives, and by true plus predicted counts: (…, K) → (…).

    Over the classes (macro), of which those neither present nor predicted are left out, or over all pairs of document
    and label (micro); 0 where undefined.
    """
    if average == "micro":
        hits, total = hits.sum(-1, keepdims=True), total.sum(-1, keepdims=True)
    defined = total > 0
    scores = 2 * hits / np.maximum(total, 1)
    return np.asarray((scores * defined).sum(-1) / np.maximum(defined.sum(-1), 1))


def _counts(truth: Numbers, guess: Numbers, classes: int) -> tuple[Numbers, Numbers]:
    """Count each class's true positives, and the documents that have it plus those that get it: (K,) each."""
    if truth.ndim == 2:
        real, said = truth > 0, guess > 0
        return (real & said).sum(0), real.sum(0) + said.sum(0)
    found = [np.bincount(each, minlength=classes) for each in (truth[truth == guess], truth, guess)]
    return found[0], found[1] + found[2]


def per_class(truth: Numbers, guess: Numbers, names: Sequence[str]) -> list[ClassMetrics]:
    """Precision, recall and F1 of each class; 0 where undefined."""
    measured = []
    for place, name in enumerate(names):
        real = truth[:, place] > 0 if truth.ndim == 2 else truth == place
        said = guess[:, place] > 0 if guess.ndim == 2 else guess == place
        hits, count, guessed = int((real & said).sum()), int(real.sum()), int(said.sum())
        precision, recall = hits / max(1, guessed), hits / max(1, count)
        f1 = 2 * hits / max(1, count + guessed)
        measured.append(ClassMetrics(name, count, guessed, precision, recall, f1))
    return measured


def confusion(truth: Numbers, guess: Numbers, classes: int) -> NDArray[np.int64]:
    """Confusion matrix: counts of true class (rows) by predicted class (columns), (K, K)."""
    return np.bincount(truth * classes + guess, minlength=classes**2).reshape(classes, classes).astype(np.int64)


def log_loss(probabilities: Numbers, truth: Numbers) -> float:
    """Log loss; probabilities are clipped to the smallest normal float32."""
    if not len(truth):
        return float("nan")
    safe = np.clip(probabilities.astype(np.float64), 1e-38, 1.0)
    if truth.ndim == 1:
        return float(-np.log(safe[np.arange(len(truth)), truth]).mean())
    other = np.clip(1 - probabilities.astype(np.float64), 1e-38, 1.0)
    return float(-np.where(truth > 0, np.log(safe), np.log(other)).mean())


def calibration_error(probabilities: Numbers, truth: Numbers, bins: int = BINS) -> float:
    """Expected calibration error: |mean probability − accuracy| over bins of equal width, weighted by bin size.

    Single-label: the probability of the predicted class against correctness. Multilabel: the probability of every label
    against its presence.
    """
    if not len(truth):
        return float("nan")
    if truth.ndim == 1:
        confidence, right = probabilities.max(1), probabilities.argmax(1) == truth
    else:
        confidence, right = probabilities.reshape(-1), truth.reshape(-1) > 0
    confidence = confidence.astype(np.float64)
    where = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(where, confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))
