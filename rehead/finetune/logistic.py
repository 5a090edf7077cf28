"""Logistic regression, by scikit-learn, in the shape of a head: a weight and a bias for every class, present or not.

Shapes: N documents, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ITERATIONS = 200
UNSEEN = 4.0  # a class without examples scores this far below the others


def one_thread() -> AbstractContextManager[Any]:
    """Limit the BLAS of numpy and scipy to one thread, for solvers that do many small products.

    The threads of each small product wait for one another longer than they compute: on two free cores the search for a
    linear classifier of 1,600 reviews took 19 seconds, and takes 10 on one thread. On a busy machine the inverse of a
    matrix of 1,000 rows took 4 s of processor time on two threads, nearly all of it waiting, and takes 0.1 on one.
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
