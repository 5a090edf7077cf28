"""Sums of rows with a gradient, against single look-ups."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rehead.model.base import Base
from rehead.views.rows import index_rows, sum_rows, vectors_of_rows
from tests.model.conftest import miniature

TOKENS = 50  # rows of the tokens; the n-grams' follow


def fresh(*, sparse: bool) -> Base:
    """A base with vectors in both tables; embeddings are scaled, so that the scale is tested too."""
    torch.manual_seed(0)
    base = Base(miniature("bag", scale_embedding=True))
    for _, table in base.row_tables():
        table.sparse = sparse
        torch.nn.init.normal_(table.weight)
    return base


def summed(base: Base, rows: list[int], documents: list[int], size: int) -> Tensor:
    fields = index_rows(np.array(rows, np.int64), np.array(documents, np.int64), size, TOKENS)
    return sum_rows(base, {name: torch.from_numpy(each) for name, each in fields.items()})


def one_by_one(base: Base, rows: list[int], documents: list[int], size: int) -> Tensor:
    total = torch.zeros(size, base.config.nhid)
    (_, tokens), (_, ngrams) = base.row_tables()
    for row, document in zip(rows, documents, strict=True):
        vector = tokens.weight[row] * base.scale if row < TOKENS else ngrams.weight[row - TOKENS]
        total = total.index_add(0, torch.tensor([document]), vector[None])
    return total


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(
    ("rows", "documents", "size"),
    [
        ([5, 5, 60, 9, 1, 60, 5], [0, 0, 0, 0, 2, 2, 2], 4),  # a row twice, and documents that read nothing
        ([7], [0], 1),
        ([57], [0], 1),
        ([], [], 2),
        ([], [], 0),
    ],
)
def test_against_a_sum_of_single_rows(rows: list[int], documents: list[int], size: int, sparse: bool) -> None:
    base, other = fresh(sparse=sparse), fresh(sparse=False)
    weights = torch.randn(size, base.config.nhid)
    sums, expected = summed(base, rows, documents, size), one_by_one(other, rows, documents, size)
    torch.testing.assert_close(sums, expected)
    torch.testing.assert_close(
        vectors_of_rows(base, np.array(rows, np.int64), np.array(documents, np.int64), size), sums.detach()
    )
    (sums * weights).sum().backward()
    if rows:
        (expected * weights).sum().backward()
    for (first, table), (_, reference) in zip(base.row_tables(), other.row_tables(), strict=True):
        gradient = table.weight.grad
        assert gradient is not None
        assert gradient.is_sparse == sparse
        if sparse:
            mine = {row - first for row in rows if (row >= TOKENS) == (first > 0)}
            assert gradient._indices()[0].tolist() == sorted(mine)
            gradient = gradient.to_dense()
        right = torch.zeros_like(gradient) if reference.weight.grad is None else reference.weight.grad
        torch.testing.assert_close(gradient, right, atol=1e-5, rtol=1e-5)


def test_parts_add_up() -> None:
    """Two halves of a batch, one after the other, leave the gradient of the whole."""
    rows, documents = [3, 4, 3, 8, 4, 3], [0, 0, 1, 2, 2, 3]
    whole, halves = fresh(sparse=True), fresh(sparse=True)
    (summed(whole, rows, documents, 4) ** 2).sum().backward()
    for part in ((rows[:3], documents[:3], 2), (rows[3:], [each - 2 for each in documents[3:]], 2)):
        (summed(halves, *part) ** 2).sum().backward()
    first, second = (each.row_tables()[0][1].weight.grad for each in (whole, halves))
    assert first is not None
    assert second is not None
    torch.testing.assert_close(first.to_dense(), second.to_dense(), atol=1e-4, rtol=1e-5)
