"""Where a head starts: at the best linear classifier on the vectors that the base gives now, before anything is bent.

A head with random weights sends the base, in its first steps, wherever it happens to point. On a bag of rows, which
moves fast, the learning rates then decide: with 500 labels, one draw, a random head gave 81.1 to 88.4 % over seven
settings, this start 87.1 to 87.7 % over three (docs/finetuning.md). It is steadier, not always better. The penalty of
the linear classifier is chosen by cross-validation.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.text.order import shuffled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"Inverse penalties that are tried, on standardised vectors 256 wide."
FOLDS = 5
SAMPLE = 4_000  # examples that choose the penalty, at most
ITERATIONS = 200
FOLD = 61  # what a random choice is for, as part of its key


def solve_head(vectors: NDArray[Any], truth: NDArray[Any], classes: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Find the head, weight (K, H) and bias (K,), for standardised vectors (N, H) and their truth, (N,) or (N, K)."""
    if truth.ndim == 2:
        solved = [solve_head(vectors, (truth[:, label] > 0).astype(np.int64), 2, seed) for label in range(classes)]
        # Of two classes, yes against no: what tells them apart is the difference of their scores.
        weight = np.stack([each[0][1] - each[0][0] for each in solved])
        return weight, np.array([each[1][1] - each[1][0] for each in solved])
    wide = vectors.shape[1]
    weight, bias = np.zeros((classes, wide)), np.zeros(classes)
    there = np.unique(truth)
    if len(there) < 2:
        return weight, bias
    scaled = vectors * (256 / wide) ** 0.5
    model = _fitted(scaled, truth, _strength(scaled, truth, seed))
    if len(there) == 2:  # one score says both
        weight[there[1]], bias[there[1]] = model.coef_[0] / 2, model.intercept_[0] / 2
        weight[there[0]], bias[there[0]] = -model.coef_[0] / 2, -model.intercept_[0] / 2
    else:
        weight[there], bias[there] = model.coef_, model.intercept_
    return weight * (256 / wide) ** 0.5, bias


def _strength(vectors: NDArray[Any], truth: NDArray[Any], seed: int) -> float:
    """Choose the inverse penalty by cross-validation: that which gives the left-out truth the highest probability."""
    order = shuffled(np.arange(len(truth)), len(truth), seed, FOLD)[:SAMPLE]
    order = order[np.argsort(truth[order], kind="stable")]  # dealt in turn, every fold gets its share of a class
    fold = np.arange(len(order)) % FOLDS
    losses = np.zeros(len(STRENGTHS))
    for left_out in range(FOLDS):
        train, test = order[fold != left_out], order[fold == left_out]
        if len(np.unique(truth[train])) < 2 or not len(test):
            return STRENGTHS[len(STRENGTHS) // 2]
        for place, strength in enumerate(STRENGTHS):
            model = _fitted(vectors[train], truth[train], strength)
            shares = model.predict_proba(vectors[test])
            where = np.searchsorted(model.classes_, truth[test]).clip(max=len(model.classes_) - 1)
            known = model.classes_[where] == truth[test]
            found = np.where(known, shares[np.arange(len(test)), where], 1e-6)
            losses[place] -= np.log(np.maximum(found, 1e-12)).sum()
    return STRENGTHS[int(losses.argmin())]


def _fitted(vectors: NDArray[Any], truth: NDArray[Any], strength: float) -> Any:  # noqa: ANN401 (scikit-learn's)
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged to the last digit does not matter here
        return LogisticRegression(C=strength, max_iter=ITERATIONS, tol=1e-3).fit(vectors, truth)
