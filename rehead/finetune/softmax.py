"""Multinomial logistic regression from the kernel: classes compete for each document.

Ridge regression (`rehead.finetune.ridge`) asks of every class by itself whether a document is in it. With many classes
and few examples of each, it matters more which class fits best: on the vectors of a sentence encoder, 154 bank
questions in 77 classes give 62.0 % by log loss against 59.0 by squared error (docs/experiments/any-text.md).

The kernel, the matrix of inner products of documents, is factored once, K = LLᵀ; the rows of L are then features of the
documents, as few as there are documents, and L-BFGS needs a product with L and one with its transpose per step.

Shapes: N documents, K classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rehead.finetune.ridge import BIAS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

STEPS = 60  # of L-BFGS, at most
TOLERANCE = 1e-4  # of the gradient, per document
JITTER = 1e-8  # of the mean diagonal, so that equal documents do no harm


def fit_softmax(kernel: Floats, truth: Ints, classes: int, alpha: float, weights: Floats | None = None) -> Floats:
    """Give the coefficient of every document, of which the weights are sums: (N, K).

    Minimises Σ log loss + α/2 |w|², with a constant feature that is hardly regularised. `weights`: of documents, (N,).
    """
    from scipy.linalg import cholesky, solve_triangular
    from scipy.optimize import minimize

    whole = kernel + BIAS
    whole[np.diag_indices(len(whole))] += JITTER * whole.trace() / len(whole)
    factor = cholesky(whole, lower=True, overwrite_a=True)
    counted = np.ones(len(truth)) if weights is None else weights
    rows = np.arange(len(truth))

    def loss(flat: Floats) -> tuple[float, Floats]:
        solution = flat.reshape(len(truth), classes)
        scores = factor @ solution
        scores -= scores.max(1, keepdims=True)
        odds = np.exp(scores)
        total = odds.sum(1)
        value = counted @ (np.log(total) - scores[rows, truth]) + alpha / 2 * float(flat @ flat)
        gradient = odds / total[:, None]
        gradient[rows, truth] -= 1
        gradient *= counted[:, None]
        return float(value), (factor.T @ gradient + alpha * solution).ravel()

    found = minimize(
        loss,
        np.zeros(len(truth) * classes),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": STEPS, "gtol": TOLERANCE},
    )
    solved: Floats = solve_triangular(factor.T, found.x.reshape(len(truth), classes), lower=False)
    return solved
