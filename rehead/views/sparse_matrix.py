"""Products of sparse matrices with dense ones, by torch's weighted sums of embedding rows.

On two cores that takes a fifth of the time of scipy's product, or of torch's own sparse matrices, at 77 columns.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F


class SparseMatrix:
    """A sparse matrix (N, V) that multiplies dense ones (V, R) → (N, R)."""

    def __init__(self, matrix: Any) -> None:  # noqa: ANN401 (a sparse matrix of scipy's)
        self.index = torch.from_numpy(matrix.indices.astype(np.int64))
        self.starts = torch.from_numpy(matrix.indptr[:-1].astype(np.int64))
        self.data = torch.from_numpy(matrix.data.astype(np.float32))
        self.rows = matrix.shape[0]

    def __call__(self, dense: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        if not len(self.index):
            return dense.new_zeros(self.rows, dense.shape[1])
        return F.embedding_bag(self.index, dense, self.starts, mode="sum", per_sample_weights=self.data)

    def squared(self) -> SparseMatrix:
        """Give the matrix of the squares."""
        return self._with(self.data**2)

    def present(self) -> SparseMatrix:
        """Give the matrix of ones where there is an entry."""
        return self._with(torch.ones_like(self.data))

    def _with(self, data: torch.Tensor) -> SparseMatrix:
        other = copy.copy(self)
        other.data = data
        return other
