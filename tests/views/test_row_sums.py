from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

ROWS, WIDTH = 40, 5


def given(rows: list[int], documents: list[int], size: int) -> Readings:
    fields = readings(np.array(rows, np.int64), np.array(documents, np.int64), size)
    return Readings(*(torch.from_numpy(fields[name]) for name in Readings._fields))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(
    ("rows", "documents", "size"),
    [
        ([5, 5, 9, 1, 5], [0, 0, 0, 2, 2], 4),  # a row twice, and documents that read nothing
        ([7], [0], 1),
        ([], [], 2),
        ([], [], 0),
    ],
)
def test_against_a_sum_of_single_rows(rows: list[int], documents: list[int], size: int, sparse: bool) -> None:
    torch.manual_seed(0)
    table = nn.Embedding(ROWS, WIDTH, sparse=sparse)
    other = nn.Embedding(ROWS, WIDTH, _weight=table.weight.detach().clone())
    weights = torch.randn(size, WIDTH)

    sums = row_sums(table, given(rows, documents, size))
    read = other(torch.tensor(rows, dtype=torch.int64))
    expected = torch.zeros(size, WIDTH).index_add(0, torch.tensor(documents, dtype=torch.int64), read)
    (sums * weights).sum().backward()
    (expected * weights).sum().backward()

    assert torch.allclose(sums, expected, atol=1e-6)
    gradient = table.weight.grad
    assert gradient is not None
    assert gradient.is_sparse == sparse
    if sparse:
        assert gradient._indices()[0].tolist() == sorted(set(rows))
        gradient = gradient.to_dense()
    assert torch.allclose(gradient, other.weight.grad, atol=1e-6)


def test_parts_add_up() -> None:
    """Two halves of a batch, one after the other, leave the gradient of the whole."""
    torch.manual_seed(0)
    rows, documents = [3, 4, 3, 8, 4, 3], [0, 0, 1, 2, 2, 3]
    whole = nn.Embedding(ROWS, WIDTH, sparse=True)
    halves = nn.Embedding(ROWS, WIDTH, sparse=True, _weight=whole.weight.detach().clone())
    (row_sums(whole, given(rows, documents, 4)) ** 2).sum().backward()
    for part in (given(rows[:3], documents[:3], 2), given(rows[3:], [each - 2 for each in documents[3:]], 2)):
        (row_sums(halves, part) ** 2).sum().backward()
    assert torch.allclose(whole.weight.grad.to_dense(), halves.weight.grad.to_dense(), atol=1e-5)
