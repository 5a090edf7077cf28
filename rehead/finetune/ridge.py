"""Ridge regression on the labels: linear classifiers in closed form, for all classes at once.

Squared error instead of log loss costs nothing in accuracy on any kind of text we have (docs/experiments/any-text.md),
and changes what can be afforded. With up to a few thousand examples everything follows from the kernel, the matrix of
inner products of documents: views are weighted by adding up their kernels, and the out-of-fold scores of all classes
come from one inverse. If G = (K + αW⁻¹)⁻¹, the scores of held-out documents F, by a classifier that was fitted to all
others, are y_F − (G_FF)⁻¹(Gy)_F. With more examples, or pseudo-labels of many documents, the normal equations are solved
by conjugate gradients, which only multiplies by the features.

The bias is the weight of a constant feature that is hardly regularised.

Shapes: N documents, K classes, W columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rehead.views.sparse_matrix import SparseMatrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Folds = Sequence[tuple[Ints, Ints]]

BIAS = 10.0  # square of the constant feature
TOLERANCE, ITERATIONS = 1e-2, 40  # of conjugate gradients


def out_of_fold(kernel: Floats, targets: Floats, folds: Folds, alpha: float, weights: Floats | None = None) -> Floats:
    """Score every held-out document by a classifier that was fitted to the others: (N, K); NaN where never held out."""
    inverse = _inverse(kernel, alpha, weights)
    fitted = inverse @ targets
    scores = np.full(targets.shape, np.nan)
    for _, held_out in folds:
        scores[held_out] = targets[held_out] - np.linalg.solve(inverse[np.ix_(held_out, held_out)], fitted[held_out])
    return scores


def fit_dual(kernel: Floats, targets: Floats, alpha: float, weights: Floats | None = None) -> Floats:
    """Give the coefficient of every document, of which the weights are sums: (N, K)."""
    from scipy.linalg import cho_factor, cho_solve

    solved: Floats = cho_solve(cho_factor(_regularised(kernel, alpha, weights), overwrite_a=True), targets)
    return solved


def _regularised(kernel: Floats, alpha: float, weights: Floats | None) -> Floats:
    whole = kernel + BIAS
    whole[np.diag_indices(len(whole))] += alpha / (1.0 if weights is None else weights)
    return whole


def _inverse(kernel: Floats, alpha: float, weights: Floats | None) -> Floats:
    from scipy.linalg import lapack

    factor, info = lapack.dpotrf(_regularised(kernel, alpha, weights), lower=1, overwrite_a=1)
    inverse, info = lapack.dpotri(factor, lower=1, overwrite_c=1) if not info else (factor, info)
    if info:
        raise np.linalg.LinAlgError("the kernel is not positive definite")
    found: Floats = np.tril(inverse) + np.tril(inverse, -1).T
    return found


def fit_primal(
    blocks: Sequence[Any], targets: NDArray[Any], alpha: float, weights: NDArray[Any] | None = None
) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
    """Solve the normal equations by conjugate gradients: the weights of each block of features (W, K), and the bias.

    Blocks are dense arrays or sparse matrices, (N, W). `weights`: of the documents, (N,), or (N, K) by class.
    """
    parts = [_Block(block) for block in blocks]
    y = torch.from_numpy(np.asarray(targets, np.float32))
    d = torch.ones(len(y), 1) if weights is None else torch.from_numpy(np.asarray(weights, np.float32).reshape(len(y), -1))

    def up(residual: torch.Tensor) -> list[torch.Tensor]:
        return [*(part.transposed(residual) for part in parts), BIAS**0.5 * residual.sum(0, keepdim=True)]

    def down(solution: list[torch.Tensor]) -> torch.Tensor:
        total = BIAS**0.5 * solution[-1].expand(len(y), -1).clone()
        for part, each in zip(parts, solution[:-1], strict=True):
            total += part.product(each)
        return total

    # Jacobi preconditioner: frequent features have a large diagonal.
    mean_weight = d.mean(1)
    scale = [1 / (part.squares(mean_weight) + alpha)[:, None] for part in parts]
    scale.append(1 / (BIAS * mean_weight.sum() + alpha).reshape(1, 1))
    residual = up(d * y)
    solution = [torch.zeros_like(each) for each in residual]
    step = [s * r for s, r in zip(scale, residual, strict=True)]
    square = _inner(residual, step)  # (K,)
    start = square.clamp_min(1e-30)
    for _ in range(ITERATIONS):
        product = up(d * down(step))
        product = [p + alpha * s for p, s in zip(product, step, strict=True)]
        size = square / _inner(step, product).clamp_min(1e-30)
        for mine, s, r, p in zip(solution, step, residual, product, strict=True):
            mine += size * s
            r -= size * p
        scaled = [s * r for s, r in zip(scale, residual, strict=True)]
        after = _inner(residual, scaled)
        if bool((after <= TOLERANCE**2 * start).all()):
            break
        growth = after / square.clamp_min(1e-30)
        step = [new + growth * old for new, old in zip(scaled, step, strict=True)]
        square = after
    return [each.numpy() for each in solution[:-1]], BIAS**0.5 * solution[-1][0].numpy()


def _inner(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([(one * two).sum(0) for one, two in zip(left, right, strict=True)]).sum(0)


class _Block:
    """Features of one view, dense or sparse, with their transpose."""

    def __init__(self, matrix: Any) -> None:  # noqa: ANN401 (an array of numpy's, or a sparse matrix of scipy's)
        self.dense: torch.Tensor | None = None
        if isinstance(matrix, np.ndarray):
            self.dense = torch.from_numpy(matrix.astype(np.float32))
        else:
            self.rows, self.columns = SparseMatrix(matrix), SparseMatrix(matrix.T.tocsr())
            self.width = matrix.shape[1]

    def product(self, weight: torch.Tensor) -> torch.Tensor:
        return self.rows(weight) if self.dense is None else self.dense @ weight

    def transposed(self, residual: torch.Tensor) -> torch.Tensor:
        return self.columns(residual) if self.dense is None else self.dense.T @ residual

    def squares(self, weights: torch.Tensor) -> torch.Tensor:
        """Sum of the squares of each column, weighted: (W,)."""
        if self.dense is not None:
            found: torch.Tensor = (self.dense**2).T @ weights
            return found
        return self.columns.squared()(weights[:, None])[:, 0]
