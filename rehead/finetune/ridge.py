"""Ridge regression on the labels: linear classifiers in closed form, for all classes at once.

Squared error instead of log loss costs nothing in accuracy on any kind of text we have (docs/experiments/any-text.md),
and changes what can be afforded. With up to a few thousand examples everything follows from the kernel, the matrix of
inner products of documents: views are weighted by adding up their kernels, and the out-of-fold scores of all classes
come from one inverse. If G = (K + αW⁻¹)⁻¹, the scores of held-out documents F, by a classifier that was fitted to all
others, are y_F − (G_FF)⁻¹(Gy)_F. With more examples, or pseudo-labels of many documents, the normal equations are
solved by conjugate gradients, which only multiplies by the features.

The bias is the weight of a constant feature that is hardly regularised.

Shapes: N documents, K classes, W columns.
"""

from __future__ import annotations

import copy
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
NEWTON_STEPS, NEWTON_ITERATIONS = 8, 15  # of the hinge loss, and of conjugate gradients in each


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
    blocks: Sequence[Any],
    targets: NDArray[Any],
    alpha: float,
    weights: NDArray[Any] | None = None,
    iterations: int = ITERATIONS,
) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
    """Solve the normal equations by conjugate gradients: the weights of each block of features (W, K), and the bias.

    Blocks are dense arrays or sparse matrices, (N, W). `weights`: of the documents, (N,), or (N, K) by class.
    """
    features = Features(blocks)
    y = torch.from_numpy(np.asarray(targets, np.float32))
    solution = solve(features, y, column(weights, len(y)), alpha, iterations)
    return features.split(solution)


def fit_hinge(
    blocks: Sequence[Any], truth: NDArray[Any], alpha: float, weights: NDArray[Any] | None = None
) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
    """Minimise the squared hinge loss of each class against the rest: weights of each block (W, K), and the bias.

    Documents on the right side of the margin do not count, for each class by itself (`truth`: (N, K) of yes and no).
    Which these are is found by Newton's method (Chapelle 2007): a regression on the others, then once more.
    """
    features = Features(blocks)
    y = torch.from_numpy(np.where(np.asarray(truth) > 0, 1.0, -1.0).astype(np.float32))
    d = column(weights, len(y))
    solution, before = solve(features, y, d, alpha, NEWTON_ITERATIONS), torch.ones_like(y, dtype=torch.bool)
    for _ in range(NEWTON_STEPS):
        counted = y * features.down(solution) < 1
        if torch.equal(counted, before):
            break
        solution, before = solve(features, y, d * counted, alpha, NEWTON_ITERATIONS, solution), counted
    return features.split(solution)


def fit_hinge_dual(kernel: Floats, truth: NDArray[Any], alpha: float, weights: Floats | None = None) -> Floats:
    """Minimise the same loss exactly, by the kernel: the coefficient of every document, (N, K).

    Each of Newton's steps solves for the documents that count, and sets the coefficients of all others to zero.
    """
    signs = np.where(np.asarray(truth) > 0, 1.0, -1.0)
    mirrored = signs.shape[1] == 2 and bool((signs[:, 0] == -signs[:, 1]).all())
    coefficients = np.zeros(signs.shape)
    for each, sign in enumerate(signs.T[: 1 if mirrored else None]):
        counted = np.ones(len(sign), bool)
        for _ in range(1 + NEWTON_STEPS):
            inside = np.flatnonzero(counted)
            some = None if weights is None else weights[inside]
            solved = fit_dual(kernel[np.ix_(inside, inside)], sign[inside], alpha, some)
            before, counted = counted, sign * ((kernel[:, inside] + BIAS) @ solved) < 1
            if (counted == before).all() or not counted.any():
                break
        coefficients[inside, each] = solved
    if mirrored:
        coefficients[:, 1] = -coefficients[:, 0]
    return coefficients


def column(weights: NDArray[Any] | None, count: int) -> torch.Tensor:
    """Weights as (N, 1), or (N, K)."""
    if weights is None:
        return torch.ones(count, 1)
    return torch.from_numpy(np.asarray(weights, np.float32).reshape(count, -1))


def solve(
    features: Features,
    y: torch.Tensor,
    d: torch.Tensor,
    alpha: float,
    iterations: int,
    start: torch.Tensor | None = None,
) -> torch.Tensor:
    """Minimise Σ d (y − Xw)² + α |w|² by preconditioned conjugate gradients: (W + 1, K), the last row the bias.

    y: (N, K). d: (N, 1), or (N, K) by class. `start`: a solution of a similar problem, (W + 1, K).
    """
    # Jacobi preconditioner: frequent features have a large diagonal.
    scale = 1 / (features.squares(d.mean(1)) + alpha)[:, None]
    right = features.up(d * y)
    goal = (right * scale * right).sum(0).clamp_min(1e-30)  # (K,)
    if start is None:
        solution, residual = torch.zeros_like(right), right
    else:
        solution = start.clone()
        residual = right - features.up(d * features.down(solution)).add_(solution, alpha=alpha)
    step = scale * residual
    square = (residual * step).sum(0)
    for _ in range(iterations):
        if bool((square <= TOLERANCE**2 * goal).all()):
            break
        product = features.up(d * features.down(step)).add_(step, alpha=alpha)
        size = square / (step * product).sum(0).clamp_min(1e-30)
        solution.addcmul_(step, size)
        residual.addcmul_(product, size, value=-1)
        scaled = torch.mul(scale, residual, out=product)
        after = (residual * scaled).sum(0)
        step.mul_(after / square.clamp_min(1e-30)).add_(scaled)
        square = after
    return solution


class Features:
    """Blocks of features side by side, the dense ones first, and a constant: one product for each kind."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self.blocks, self.parts = blocks, [Block(each) for each in _joined(blocks)]
        self.scale: torch.Tensor | None = None

    def scaled(self, scale: torch.Tensor) -> Features:
        """Give the same features, each column times a factor (W + 1, 1): nothing is copied."""
        other = copy.copy(self)
        other.scale = scale
        return other

    def up(self, residual: torch.Tensor) -> torch.Tensor:
        """Residuals (N, K) → gradients (W + 1, K)."""
        parts = [part.transposed(residual) for part in self.parts]
        whole = torch.cat((*parts, BIAS**0.5 * residual.sum(0, keepdim=True)))
        return whole if self.scale is None else whole.mul_(self.scale)

    def down(self, solution: torch.Tensor) -> torch.Tensor:
        """Weights (W + 1, K) → scores (N, K)."""
        if self.scale is not None:
            solution = solution * self.scale
        total: torch.Tensor = BIAS**0.5 * solution[-1:]
        begin = 0
        for part in self.parts:
            total = total + part.product(solution[begin : begin + part.width])
            begin += part.width
        return total

    def squares(self, weights: torch.Tensor) -> torch.Tensor:
        """Sum of the squares of each column, weighted: (W + 1,)."""
        whole = torch.cat((*(part.squares(weights) for part in self.parts), BIAS * weights.sum().reshape(1)))
        return whole if self.scale is None else whole * self.scale[:, 0] ** 2

    def split(self, solution: torch.Tensor) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
        """Give the weights of each block, in the order of the blocks, and the bias."""
        ordered = _ordered(self.blocks)
        parts = torch.split(solution[:-1], [block.shape[1] for block in ordered])
        by_block = {id(block): part.numpy() for block, part in zip(ordered, parts, strict=True)}
        return [by_block[id(block)] for block in self.blocks], (BIAS**0.5 * solution[-1]).numpy()


def _ordered(blocks: Sequence[Any]) -> list[Any]:
    """Dense blocks first, then the sparse ones."""
    return sorted(blocks, key=lambda block: not isinstance(block, np.ndarray))


def _joined(blocks: Sequence[Any]) -> list[Any]:
    """Join the dense blocks, and the sparse ones: one product for each kind."""
    from scipy import sparse

    dense = [block for block in blocks if isinstance(block, np.ndarray)]
    others = [block for block in blocks if not isinstance(block, np.ndarray)]
    found: list[Any] = [np.concatenate(dense, 1)] if dense else []
    return [*found, sparse.hstack(others).tocsr()] if others else found


class Block:
    """Features of one view, dense or sparse, with their transpose."""

    def __init__(self, matrix: Any) -> None:  # noqa: ANN401 (an array of numpy's, or a sparse matrix of scipy's)
        self.dense: torch.Tensor | None = None
        if isinstance(matrix, np.ndarray):
            self.dense = torch.from_numpy(np.ascontiguousarray(matrix, np.float32))
        else:
            self.rows, self.columns = SparseMatrix(matrix), SparseMatrix(matrix.T.tocsr())
        self.width = matrix.shape[1]

    def product(self, weight: torch.Tensor) -> torch.Tensor:
        """Weights (W, K) → scores (N, K)."""
        return self.rows(weight) if self.dense is None else self.dense @ weight

    def transposed(self, residual: torch.Tensor) -> torch.Tensor:
        """Residuals (N, K) → gradients (W, K)."""
        return self.columns(residual) if self.dense is None else self.dense.T @ residual

    def occurrences(self, weights: torch.Tensor) -> torch.Tensor:
        """Sum the weights (N, K) of the documents that have each column of a sparse block: (W, K)."""
        return self.columns.present()(weights)

    def squares(self, weights: torch.Tensor) -> torch.Tensor:
        """Sum of the squares of each column, weighted: (W,)."""
        if self.dense is not None:
            found: torch.Tensor = (self.dense**2).T @ weights
            return found
        return self.columns.squared()(weights[:, None])[:, 0]
