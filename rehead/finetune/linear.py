"""Linear classifiers on directions and words, and the search for the best of them by cross-validation.

Three numbers are chosen: how much an axis counts for its spread (`power`), how much words count beside directions
(`words`), and how little the weights are held back (`strength`). Directions alone are cheap, so `power` is chosen on
them; then words are added, if the left-out documents gain. What is compared is the probability that the left-out truth
is given: with few labels accuracy is too coarse to choose by.

Shapes: N documents, H hidden width, R rows, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.features import Features, Space, unevenness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Folds = Sequence[tuple[Ints, Ints]]

POWERS = (1.0, 2.0, 3.0)
WORDS = (1.0, 4.0, 12.0)
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
FOUND = 2  # documents a row must be found in to be trusted with a weight
ITERATIONS = 200


@dataclass(frozen=True)
class Setting:
    """What is chosen by cross-validation."""

    power: float
    words: float
    "0: directions alone."
    strength: float

    def __str__(self) -> str:
        beside = f", words {self.words:g}" if self.words else ""
        return f"power {self.power:g}{beside}, strength {self.strength:g}"


@dataclass
class Linear:
    """A linear classifier."""

    directions: Floats
    "Weights of directions as they are, not turned: (K, H)."
    rows: Ints
    "The rows that have weights, (C,), and these: (K, C)."
    words: Floats
    bias: Floats
    "(K,)"

    def scores(self, features: Features) -> Floats:
        """Score documents: (N, K)."""
        found: Floats = features.directions @ self.directions.T + self.bias
        return found + self.word_scores(features)

    def word_scores(self, features: Features) -> Floats:
        """Score documents by their words alone: (N, K)."""
        if not len(self.rows):
            return np.zeros((len(features), len(self.bias)))
        found: Floats = features.words[:, self.rows] @ self.words.T
        return found


@dataclass
class Found:
    """What the search has found."""

    settings: list[Setting]
    "The best, and those that could as well be it: what they score is averaged. The best comes first."
    logits: Floats
    "Scores of every document by classifiers that have not seen it: (N, K). NaN for those that were left out nowhere."
    losses: dict[tuple[float, float], float]
    "The lowest loss of left-out documents, by power and words."


def fit_path(
    features: Features,
    truth: NDArray[Any],
    space: Space,
    classes: int,
    power: float,
    words: float,
    strengths: Sequence[float],
    *,
    balanced: bool = False,
    weights: Floats | None = None,
) -> Iterator[Linear]:
    """Fit a classifier for each strength, from weak to strong. `weights` (N,) says how much each document counts."""
    turn = space.turn(power)
    dense = features.directions @ turn
    rows, scale = np.zeros(0, np.int64), np.zeros(0)
    inputs: Any = dense
    if words:
        from scipy import sparse

        uneven = unevenness(features.words, truth, classes)
        often = np.bincount(features.words.indices, minlength=features.words.shape[1]) >= min(FOUND, len(features))
        rows = np.flatnonzero((uneven > 0) & often)
        scale = words * uneven[rows]
        inputs = sparse.hstack([sparse.csr_matrix(dense), features.words[:, rows].multiply(scale[None])]).tocsr()
    wide = dense.shape[1]
    for weight, bias in _solutions(inputs, truth, classes, strengths, balanced, weights):
        yield Linear(weight[:, :wide] @ turn.T, rows, weight[:, wide:] * scale, bias)


def search(
    features: Features,
    truth: NDArray[Any],
    space: Space,
    classes: int,
    folds: Folds,
    *,
    words: Sequence[float] = WORDS,
    balanced: bool = False,
) -> Found:
    """Choose power, words and strength by what they do for left-out documents."""
    tried: dict[tuple[float, float], tuple[float, Setting, Floats]] = {}

    def consider(power: float, weight: float, strengths: Sequence[float]) -> float:
        for strength, logits in _left_out(features, truth, space, classes, folds, power, weight, strengths, balanced):
            loss = mean_loss(logits, truth)
            if (power, weight) not in tried or loss < tried[power, weight][0]:
                tried[power, weight] = loss, Setting(power, weight, strength), logits
        return tried[power, weight][0]

    for power in POWERS:
        consider(power, 0.0, STRENGTHS)
    best = min(tried.values(), key=lambda each: each[0])[1].power
    for power in sorted({best, POWERS[0]}, reverse=True):
        # With words to lean on, directions need less of what the unlabelled text says.
        loss, setting, _ = tried[power, 0.0]
        nearby = [each for each in STRENGTHS if setting.strength / 10 <= each <= setting.strength * 3]
        for weight in words:
            found = consider(power, weight, nearby)
            if found > loss:  # more of it will not help
                break
            loss = found
    return average(list(tried.values()), truth)


def average(tried: Sequence[tuple[float, Setting, Floats]], truth: NDArray[Any]) -> Found:
    """Keep the best setting and those that are worse by less than chance explains: a standard error of the difference.

    With few labels cross-validation cannot tell settings apart, and whichever it picks is luck. Their scores are
    averaged instead, which is a linear classifier again.
    """
    ranked = sorted(tried, key=lambda each: each[0])
    known = ~np.isnan(ranked[0][2][:, 0])
    best = losses_of(ranked[0][2][known], truth[known])
    kept = []
    for each in ranked:
        worse = losses_of(each[2][known], truth[known]) - best
        if worse.mean() <= worse.std() / max(1, len(worse)) ** 0.5:
            kept.append(each)
    logits = np.mean([each[2] for each in kept], axis=0)
    return Found([each[1] for each in kept], logits, {(each[1].power, each[1].words): each[0] for each in ranked})


def fit_average(
    features: Features,
    truth: NDArray[Any],
    space: Space,
    classes: int,
    settings: Sequence[Setting],
    *,
    balanced: bool = False,
    weights: Floats | None = None,
) -> Linear:
    """Fit a classifier with each setting, and average them into one."""
    made = [
        linear
        for each in settings
        for linear in fit_path(
            features,
            truth,
            space,
            classes,
            each.power,
            each.words,
            [each.strength],
            balanced=balanced,
            weights=weights,
        )
    ]
    rows = np.unique(np.concatenate([each.rows for each in made]))
    words = np.zeros((classes, len(rows)))
    for each in made:
        words[:, np.searchsorted(rows, each.rows)] += each.words / len(made)
    directions = np.mean([each.directions for each in made], axis=0)
    return Linear(directions, rows, words, np.mean([each.bias for each in made], axis=0))


def _left_out(
    features: Features,
    truth: NDArray[Any],
    space: Space,
    classes: int,
    folds: Folds,
    power: float,
    words: float,
    strengths: Sequence[float],
    balanced: bool,
) -> Iterator[tuple[float, Floats]]:
    """Score every document by a classifier that has not seen it, for each strength: (N, K)."""
    logits = {strength: np.full((len(features), classes), np.nan) for strength in strengths}
    for inside, outside in folds:
        path = fit_path(
            features.some(inside), truth[inside], space, classes, power, words, strengths, balanced=balanced
        )
        left_out = features.some(outside)
        for strength, linear in zip(strengths, path, strict=True):
            logits[strength][outside] = linear.scores(left_out)
    yield from logits.items()


def mean_loss(logits: Floats, truth: NDArray[Any]) -> float:
    """Give the mean −log of the probability of the truth (over the labels too, if there are several)."""
    known = ~np.isnan(logits[:, 0])
    return float(losses_of(logits[known], truth[known]).mean())


def losses_of(scores: Floats, truth: NDArray[Any]) -> Floats:
    """Give −log of the probability of each document's truth, its mean over the labels if there are several: (N,)."""
    if truth.ndim == 2:
        several: Floats = np.logaddexp(0, np.where(truth > 0, -scores, scores)).mean(1)
        return several
    lost: Floats = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(truth)), truth]
    return lost


def _solutions(
    inputs: Any,  # noqa: ANN401 (a matrix of numpy's or scipy's)
    truth: NDArray[Any],
    classes: int,
    strengths: Sequence[float],
    balanced: bool,
    weights: Floats | None,
) -> Iterator[tuple[Floats, Floats]]:
    """Solve logistic regressions, each from where the one before ended: weights (K, columns), biases (K,)."""
    if truth.ndim == 2:
        each = [
            _solutions(inputs, (truth[:, label] > 0).astype(np.int64), 2, strengths, balanced, weights)
            for label in range(classes)
        ]
        for found in zip(*each, strict=True):
            # Of two classes, yes against no: what tells them apart is the difference of their scores.
            yield np.stack([w[1] - w[0] for w, _ in found]), np.array([b[1] - b[0] for _, b in found])
        return
    from sklearn.linear_model import LogisticRegression

    there, columns = np.unique(truth), inputs.shape[1]
    model = LogisticRegression(
        max_iter=ITERATIONS, tol=1e-3, warm_start=True, class_weight="balanced" if balanced else None
    )
    for strength in strengths:
        weight, bias = np.zeros((classes, columns)), np.full(classes, -UNSEEN)
        if len(there) == 1:
            bias[there] = UNSEEN
            yield weight, bias
            continue
        model.C = strength
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has not converged to the last digit does not matter here
            model.fit(inputs, truth, sample_weight=weights)
        if len(there) == 2:  # one score says both
            coefficients, intercept = model.coef_[0] / 2, model.intercept_[0] / 2
            weight[there[1]], weight[there[0]] = coefficients, -coefficients
            bias[there[1]], bias[there[0]] = intercept, -intercept
        else:
            weight[there], bias[there] = model.coef_, model.intercept_
        yield weight, bias


UNSEEN = 4.0  # how far below the others the score of a class is that has no example here
