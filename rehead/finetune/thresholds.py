"""Decision thresholds, tuned on held-out documents: what turns probabilities into labels.

Multilabel: a label is given from its threshold on. 0.5 is best for every label by itself, but not for F1, and not for
exact matches: many texts would get no label at all. A threshold for each label maximises macro-F1, but needs examples:
on 500 comments with 28 emotions (GoEmotions) it costs 8 points of micro-F1 and 16 points of exact matches against one
threshold for all labels, which loses up to 2 points of macro-F1. So labels with few examples share a threshold. How
many are "few" is chosen by cross-validation, in which the thresholds judged on a fold are tuned on the others.

What is maximised is macro-F1, micro-F1 or, for accuracy, the mean of exact match and micro-F1. Exact matches alone are
few, and too coarse to tune by. F1 alone is nearly the same over a wide range of thresholds, at whose lower end most
texts get too many labels: on the 500 comments above micro-F1 is 38.7 % at both 0.14 and 0.22, exact match 15.5 and
24.3 %.

If every example has a label, the most probable one may always be given, even below its threshold: a threshold that is
right for the others leaves a third of those comments without any. It is done unless cross-validation finds it worse by
a standard error.

Single-label: the class with the highest ratio of probability to threshold is predicted, which without thresholds is the
most probable one. That maximises accuracy, but hardly ever gives a rare class. For macro-F1 the thresholds are the
frequencies of the classes to the power tau: at 0 nothing changes, at 1 all classes count the same. It is one parameter,
because a threshold for each class would overfit the rare ones, and it has to pay in cross-validation. The bar is as low
as that of candidates (`rehead.finetune.selection`), for the same reason.

Probabilities stay what they are: the rule is kept beside them (`details.thresholds` and `details.at_least_one`).

Shapes: N documents, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.metrics import (
    BY_DEFAULT,
    DecisionRule,
    accuracy,
    macro_f1,
    micro_f1,
    predicted_labels,
    with_top,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.finetune.options import Metric

    Floats = NDArray[np.float64]
    Folds = Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]

FEWEST = 5  # documents with and without a label that tuning its threshold requires
LOWEST, HIGHEST = 0.05, 0.95
GRID = np.linspace(LOWEST, HIGHEST, 181).round(3)  # thresholds that are tried for exact matches
OWN_FROM = (None, 80, 20, 5)  # examples that a label needs for a threshold of its own; None: all labels share one
TAUS = (0.0, 0.25, 0.5, 0.75, 1.0)
FOLDS, BLOCKS = 5, 10  # of cross-validation, and of the jackknife
MARGIN = 0.5  # standard errors by which macro-F1 of single-label data has to rise
OWN_MARGIN = 1.0  # standard errors by which more thresholds of multilabel data have to be better


@dataclass(frozen=True)
class Decisions:
    """How labels of multilabel data are decided, with the cross-validated scores of it."""

    rule: DecisionRule
    exact_match: float
    micro_f1: float
    macro_f1: float

    def by(self, metric: Metric) -> float:
        """Give what is maximised."""
        accuracy = (self.exact_match + self.micro_f1) / 2
        return {"accuracy": accuracy, "macro-f1": self.macro_f1, "micro-f1": self.micro_f1}[metric]


def tune_rule(probabilities: NDArray[Any], truth: NDArray[Any], metric: Metric) -> DecisionRule:
    """Tune how a classifier decides, for a metric: probabilities (N, K), truth (N,) or (N, K).

    The most probable class of single-label data is predicted, unless thresholds raise macro-F1.
    """
    if truth.ndim == 2:
        return choose_rule(probabilities, truth, metric=metric).rule
    return DecisionRule(class_thresholds(probabilities, truth)) if metric == "macro-f1" else BY_DEFAULT


def find_thresholds(probabilities: NDArray[Any], truth: NDArray[Any]) -> list[float]:
    """Tune a threshold for each label by its own F1: probabilities and truth (N, K) → K thresholds.

    It is halfway between two of the probabilities; with too few examples it is 0.5.
    """
    return [
        _threshold(probabilities[:, label].astype(np.float64), truth[:, label] > 0) for label in range(truth.shape[1])
    ]


def choose_rule(
    probabilities: NDArray[Any], truth: NDArray[Any], folds: Folds | None = None, *, metric: Metric = "accuracy"
) -> Decisions:
    """Choose which labels get a threshold of their own, and whether every text gets one. probabilities, truth: (N, K).

    `folds` split the documents (by default `stratified`); the scores are those of thresholds tuned on the
    other folds. More thresholds have to be better by a standard error: on 500 comments two labels with a low threshold
    of their own cost four points of exact matches, which 250 held-out comments did not show.
    """
    real = truth > 0
    folds = stratified(real) if folds is None else folds
    plain, without = _choose_own(probabilities, real, folds, metric, at_least_one=False)
    if not len(real) or not real.any(1).all():
        return plain
    found, given = _choose_own(with_top(probabilities), real, folds, metric, at_least_one=True)
    return plain if _pays(without, given, real, lambda *both: _scores(*both).by(metric), OWN_MARGIN) else found


def _choose_own(
    probabilities: NDArray[Any], real: NDArray[np.bool_], folds: Folds, metric: Metric, *, at_least_one: bool
) -> tuple[Decisions, NDArray[np.bool_]]:
    """Choose which labels get a threshold of their own; also give the predictions that this rests on, (N, K)."""
    best, taken = None, np.zeros_like(real)
    for own_from in OWN_FROM:
        predicted = np.zeros_like(real)
        for rest, held_out in folds:
            predicted[held_out] = probabilities[held_out] >= _tune(probabilities[rest], real[rest], own_from, metric)
        if best is None or _pays(predicted, taken, real, lambda *both: _scores(*both).by(metric), OWN_MARGIN):
            rule = DecisionRule(_tune(probabilities, real, own_from, metric).tolist(), at_least_one)
            best, taken = _scores(real, predicted, rule), predicted
    assert best is not None  # noqa: S101 (the first is always taken)
    return best, taken


def _scores(real: NDArray[Any], predicted: NDArray[Any], rule: DecisionRule = BY_DEFAULT) -> Decisions:
    """Measure predictions."""
    scores = accuracy(real, predicted), micro_f1(real, predicted), macro_f1(real, predicted, real.shape[1])
    return Decisions(rule, *(float(np.nan_to_num(each)) for each in scores))


def class_thresholds(probabilities: NDArray[Any], truth: NDArray[Any]) -> list[float] | None:
    """Tune thresholds of single-label data for macro-F1: probabilities (N, K), truth (N,) → K, which add up to 1.

    None if the most probable class is as good: if macro-F1, with tau tuned on other folds, does not rise by more than
    half the standard error of the difference (`MARGIN`).
    """
    powers = _powers(truth, probabilities.shape[1])
    guesses = [predicted_labels(probabilities, multilabel=False, rule=DecisionRule(each.tolist())) for each in powers]
    tuned = guesses[0].copy()
    for rest, held_out in stratified(truth):
        tuned[held_out] = guesses[_best(guesses, truth, rest)][held_out]
    best = _best(guesses, truth, np.arange(len(truth)))
    classes = max(int(each.max(initial=0)) for each in (truth, *guesses)) + 1
    if not best or not _pays(tuned, guesses[0], truth, lambda real, guess: macro_f1(real, guess, classes), MARGIN):
        return None
    return [float(each) for each in powers[best]]


def stratified(truth: NDArray[Any], folds: int = FOLDS) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Deal the documents of each class out to folds in turn: for each fold, those outside and those in it.

    Multilabel documents count as of their rarest label. It depends on nothing but the labels and the order of the
    documents. No folds of a single document.
    """
    if len(truth) < 2:
        return []
    classes = truth
    if truth.ndim == 2:
        classes = np.where(truth > 0, (truth > 0).sum(0), len(truth) + 1).argmin(1)
    fold_of = np.zeros(len(truth), np.int64)
    fold_of[np.argsort(classes, kind="stable")] = np.arange(len(truth)) % folds
    present = range(min(folds, len(truth)))
    return [(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)) for fold in present]


def _threshold(probabilities: Floats, real: NDArray[np.bool_]) -> float:
    if min(real.sum(), (~real).sum()) < FEWEST:
        return 0.5
    order = np.argsort(-probabilities, kind="stable")
    ranked, hits = probabilities[order], np.cumsum(real[order])
    f1 = 2 * hits / (np.arange(1, len(order) + 1) + real.sum())  # if the first 1, 2, … documents get the label
    f1[:-1][ranked[:-1] == ranked[1:]] = -1  # a threshold cannot separate ties
    best = int(f1.argmax())
    below = ranked[best + 1] if best + 1 < len(ranked) else 0.0
    return float(np.clip(round((ranked[best] + below) / 2, 6), LOWEST, HIGHEST))


def _tune(probabilities: NDArray[Any], real: NDArray[np.bool_], own_from: int | None, metric: Metric) -> Floats:
    """Tune a threshold for each label with at least `own_from` examples, and one for the others together: (K,)."""
    if metric == "accuracy":
        shared = exact_threshold(probabilities, real)
    else:  # all pairs of document and label as one label: the best micro-F1
        [shared] = find_thresholds(probabilities.reshape(-1, 1), real.reshape(-1, 1))
    if own_from is None:
        return np.full(real.shape[1], shared)
    return np.where(real.sum(0) >= own_from, find_thresholds(probabilities, real), shared)


def exact_threshold(probabilities: NDArray[Any], real: NDArray[np.bool_]) -> float:
    """Find the threshold for all labels with the highest mean of exact match and micro-F1; 0.5 with few examples."""
    if min(real.sum(), (~real).sum()) < FEWEST:
        return 0.5

    def below(values: NDArray[Any]) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = np.searchsorted(np.sort(values, axis=None), GRID)
        return counts  # of those below each threshold

    hits, said = real.sum() - below(probabilities[real]), real.size - below(probabilities)
    micro = 2 * hits / (said + real.sum())
    # A document is right from above its most probable false label to its least probable true one.
    false = np.where(real, -1.0, probabilities).max(1)
    true = np.where(real, probabilities, 2.0).min(1)
    exact = (below(false[false < true]) - below(true[false < true])) / len(real)
    return float(GRID[np.argmax(micro + exact)])


def _powers(truth: NDArray[Any], classes: int) -> list[Floats]:
    """Raise the frequencies of the classes to each of `TAUS`, with one pseudo-document of every class: (K,) each."""
    frequency = np.bincount(truth, minlength=classes) + 1.0
    return [frequency**tau / (frequency**tau).sum() for tau in TAUS]


def _best(guesses: Sequence[NDArray[Any]], truth: NDArray[Any], which: NDArray[np.int64]) -> int:
    """Find the predictions with the highest macro-F1 on some documents; the first of equals."""
    classes = max(int(each.max(initial=0)) for each in (truth, *guesses)) + 1
    return int(np.argmax([macro_f1(truth[which], each[which], classes) for each in guesses]))


def _pays(
    new: NDArray[Any],
    old: NDArray[Any],
    truth: NDArray[Any],
    score: Callable[[NDArray[Any], NDArray[Any]], float],
    margin: float,
) -> bool:
    """Tell whether a score of truth and predictions rises by more than `margin` standard errors.

    A delete-a-group jackknife: F1 is no mean over documents, so its error is found by leaving out a tenth of them at a
    time.
    """

    def gain(which: NDArray[np.int64]) -> float:
        return score(truth[which], new[which]) - score(truth[which], old[which])

    without = np.array([gain(rest) for rest, _ in stratified(truth, BLOCKS)])
    if len(without) < 2:
        return False
    error = ((len(without) - 1) * without.var()) ** 0.5
    return bool(gain(np.arange(len(truth))) > margin * error)
