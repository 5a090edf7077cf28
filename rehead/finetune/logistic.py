"""Logistic regression, by scikit-learn, in the shape of a head: a weight and a bias for every class, present or not.

Shapes: N documents, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.targets import balanced_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ITERATIONS = 200
UNSEEN = 4.0  # a class without examples scores this far below the others


def one_thread() -> AbstractContextManager[Any]:
    """Limit the BLAS of numpy and scipy to one thread, for solvers that do many small products.

    The threads of each small product wait for one another longer than they compute: on two free cores the search for a
    linear classifier of 1,600 reviews took 19 seconds, and takes 10 on one thread.
    """
    import sklearn.linear_model  # noqa: F401 (loads the libraries that are to be limited)
    from threadpoolctl import threadpool_limits

    limited: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limited


def fit_logistic(
    inputs: Any,  # noqa: ANN401 (a matrix of numpy's or scipy's)
    truth: NDArray[Any],
    classes: int,
    Cs: Sequence[float],  # noqa: N803 (scikit-learn's name)
    *,
    balanced: bool = False,
) -> Iterator[tuple[Floats, Floats]]:
    """Fit for each C, warm-started from the one before: weights (K, columns), biases (K,).

    The truth is (N,), or (N, K) if multilabel.
    """
    if truth.ndim == 2:
        each = [
            fit_logistic(inputs, (truth[:, label] > 0).astype(np.int64), 2, Cs, balanced=balanced)
            for label in range(classes)
        ]
        for found in zip(*each, strict=True):
            # Of two classes, yes against no: what tells them apart is the difference of their scores.
            yield np.stack([w[1] - w[0] for w, _ in found]), np.array([b[1] - b[0] for _, b in found])
        return
    from sklearn.linear_model import LogisticRegression

    present, columns = np.unique(truth), inputs.shape[1]
    model = LogisticRegression(
        max_iter=ITERATIONS, tol=1e-3, warm_start=True, class_weight="balanced" if balanced else None
    )
    for C in Cs:  # noqa: N806
        weight, bias = np.zeros((classes, columns)), np.full(classes, -UNSEEN)
        if len(present) == 1:
            bias[present] = UNSEEN
            yield weight, bias
            continue
        model.C = C
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # convergence to the last digit does not matter here
            model.fit(inputs, truth)
        if len(present) == 2:  # one score says both
            coefficients, intercept = model.coef_[0] / 2, model.intercept_[0] / 2
            weight[present[1]], weight[present[0]] = coefficients, -coefficients
            bias[present[1]], bias[present[0]] = intercept, -intercept
        else:
            weight[present], bias[present] = model.coef_, model.intercept_
        yield weight, bias


def fit_one_vs_rest(
    inputs: Any,  # noqa: ANN401 (a sparse matrix of scipy's)
    truth: NDArray[Any],
    classes: int,
    C: float,  # noqa: N803 (scikit-learn's name)
    weights: Floats,
    *,
    balanced: bool = False,
) -> tuple[Floats, Floats]:
    """Fit each class against the rest, by liblinear, which takes many documents and words in seconds.

    The truth and the sample weights are (N,); both are (N, K) if multilabel.

    It solves the primal problem: the dual draws from a generator that all threads share, so the result would depend on
    which of them drew first.

    Gives weights (K, columns) and biases (K,); with two classes one is the negative of the other. A class without
    examples, or with all of them, has no weights.
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
            C=C, solver="liblinear", tol=0.03, max_iter=100, class_weight="balanced" if balanced else None
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(inputs, asked, sample_weight=weights[:, label] if multilabel else weights)
        weight[label], bias[label] = model.coef_[0], model.intercept_[0]
    if classes == 2 and not multilabel:
        weight[1], bias[1] = weight[1] / 2, bias[1] / 2
        weight[0], bias[0] = -weight[1], -bias[1]
    return weight, bias


def log_losses(scores: Floats, truth: NDArray[Any], *, balanced: bool = False) -> Floats:
    """Give the log loss of each document, its mean over the labels if multilabel: (N,).

    `balanced`: documents are weighted so that all their classes count the same.
    """
    weights = balanced_weights(truth) if balanced else 1.0
    if truth.ndim == 2:
        multilabel: Floats = (weights * np.logaddexp(0, np.where(truth > 0, -scores, scores))).mean(1)
        return multilabel
    lost: Floats = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(truth)), truth]
    return weights * lost
