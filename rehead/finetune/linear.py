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
        return found + features.words[:, self.rows] @ self.words.T if len(self.rows) else found


@dataclass
class Found:
    """What the search has found."""

    setting: Setting
    logits: Floats
    "Scores of every document by a classifier that has not seen it: (N, K). NaN for those that were left out nowhere."
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
    best: tuple[float, Setting, Floats] | None = None
    losses: dict[tuple[float, float], float] = {}

    def consider(power: float, weight: float, strengths: Sequence[float]) -> None:
        nonlocal best
        for strength, logits in _left_out(features, truth, space, classes, folds, power, weight, strengths, balanced):
            loss = mean_loss(logits, truth)
            losses[power, weight] = min(loss, losses.get((power, weight), np.inf))
            if best is None or loss < best[0]:
                best = loss, Setting(power, weight, strength), logits

    for power in POWERS:
        consider(power, 0.0, STRENGTHS)
    assert best is not None  # noqa: S101 (for the type checker)
    power, strength = best[1].power, best[1].strength
    nearby = [each for each in STRENGTHS if strength / 10 <= each <= strength * 3]
    for weight in words:
        before = best[0]
        consider(power, weight, nearby)
        if losses[power, weight] > before and best[1].words != weight:  # more of it will not help
            break
    return Found(best[1], best[2], losses)


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
    scores, truth = logits[known], truth[known]
    if truth.ndim == 2:
        return float(np.logaddexp(0, np.where(truth > 0, -scores, scores)).mean())
    whole = np.logaddexp.reduce(scores, axis=1)
    return float((whole - scores[np.arange(len(truth)), truth]).mean())


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
