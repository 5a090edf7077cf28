"""Products of sparse matrices, against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from rehead.views.sparse_matrix import SparseMatrix


@pytest.mark.parametrize(
    ("rows", "columns", "density"), [(7, 5, 0.4), (50, 300, 0.05), (6, 4, 0.0), (0, 4, 0.5), (3, 1, 1.0), (1, 9, 0.3)]
)
@pytest.mark.parametrize("width", [1, 8])
def test_products_are_those_of_scipy(rows: int, columns: int, density: float, width: int) -> None:
    chance = np.random.RandomState(0)
    matrix = sparse.random(rows, columns, density, "csr", np.float32, chance)
    dense = chance.randn(columns, width).astype(np.float32)
    made = SparseMatrix(matrix)
    for each, factor in ((made, matrix), (made.squared(), matrix.multiply(matrix).tocsr())):
        found = each(torch.from_numpy(dense)).numpy()
        assert found.shape == (rows, width)
        np.testing.assert_allclose(found, factor @ dense, atol=1e-5)


@pytest.mark.parametrize("kept", [[], [0], [3], [0, 4], [1, 2]])
def test_empty_rows_give_zeros_at_the_beginning_inside_and_at_the_end(kept: list[int]) -> None:
    whole = np.zeros((5, 3), np.float32)
    whole[kept] = [1, 0, 2]
    found = SparseMatrix(sparse.csr_matrix(whole))(torch.eye(3)).numpy()
    np.testing.assert_array_equal(found, whole)
