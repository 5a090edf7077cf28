"""Logistic regression, by scikit-learn, in the shape of a head: a weight and a bias for every class, seen or not.

Shapes: N documents, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.targets import balance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ITERATIONS = 200
UNSEEN = 4.0  # how far below the others the score of a class is that has no example here


def one_thread() -> AbstractContextManager[Any]:
    """Have BLAS of numpy and scipy use one thread for a while; for a row of small products, as the solvers are.

    Spread over the cores, the threads of each product wait for one another longer than they compute: on two free cores
    the search for a linear classifier of 1,600 reviews took 19 seconds, and takes 10 on one thread.
    """
    import sklearn.linear_model  # noqa: F401 (loads the libraries that are to be limited)
    from threadpoolctl import threadpool_limits

    limited: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limited


def solutions(
    inputs: Any,  # noqa: ANN401 (a matrix of numpy's or scipy's)
    truth: NDArray[Any],
    classes: int,
    strengths: Sequence[float],
    *,
    balanced: bool = False,
    weights: Floats | None = None,
) -> Iterator[tuple[Floats, Floats]]:
    """Solve for each strength (inverse penalty), from where the one before ended: weights (K, columns), biases (K,).

    The truth is (N,), or (N, K) where documents have several labels. `weights` (N,): how much each document counts.
    """
    if truth.ndim == 2:
        each = [
            solutions(inputs, (truth[:, label] > 0).astype(np.int64), 2, strengths, balanced=balanced, weights=weights)
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


def separate(
    inputs: Any,  # noqa: ANN401 (a sparse matrix of scipy's)
    truth: NDArray[Any],
    classes: int,
    strength: float,
    weights: Floats,
    *,
    balanced: bool = False,
) -> tuple[Floats, Floats]:
    """Separate each class from the rest, by liblinear, which takes many documents and words in seconds.

    The truth is (N,) and `weights` as well; where documents have several labels, both are (N, K).

    It solves the primal problem: the dual draws from a generator that all threads share, so what came out would hang on
    which of them drew first.

    Gives weights (K, columns) and biases (K,); of two classes one is what the other is not. A class that is not there,
    or is all there is, has no weights.
    """
    from sklearn.linear_model import LogisticRegression

    weight, bias = np.zeros((classes, inputs.shape[1])), np.zeros(classes)
    multilabel = truth.ndim == 2
    for label in range(classes) if multilabel or classes > 2 else (1,):
        asked = truth[:, label] > 0 if multilabel else truth == label
        if not asked.any() or asked.all():
            bias[label] = UNSEEN if asked.any() else -UNSEEN
            continue
        model = LogisticRegression(
            C=strength, solver="liblinear", tol=0.03, max_iter=100, class_weight="balanced" if balanced else None
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as above
            model.fit(inputs, asked, sample_weight=weights[:, label] if multilabel else weights)
        weight[label], bias[label] = model.coef_[0], model.intercept_[0]
    if classes == 2 and not multilabel:
        weight[1], bias[1] = weight[1] / 2, bias[1] / 2
        weight[0], bias[0] = -weight[1], -bias[1]
    return weight, bias


def losses_of(scores: Floats, truth: NDArray[Any], *, balanced: bool = False) -> Floats:
    """Give −log of the probability of each document's truth, its mean over the labels if there are several: (N,).

    `balanced`: each counts as much as makes all classes of these documents count the same.
    """
    weights = balance(truth) if balanced else 1.0
    if truth.ndim == 2:
        multilabel: Floats = (weights * np.logaddexp(0, np.where(truth > 0, -scores, scores))).mean(1)
        return multilabel
    lost: Floats = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(truth)), truth]
    return weights * lost
