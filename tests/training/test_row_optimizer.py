from __future__ import annotations

import pytest
import torch
from torch import nn

from rehead.training.row_optimizer import RowAdagrad, expect_sparse

ROWS, WIDTH = 50, 4
READ = ([3, 3, 7], [7, 0], [49, 3, 3, 3])


def trained(sparse: bool, steps: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Read some rows, square them up, step; give the table and the optimizer's state."""
    torch.manual_seed(0)
    table = nn.Embedding(ROWS, WIDTH, sparse=sparse)
    optimizer = RowAdagrad(table.parameters(), lr=0.5, floor=2.0)
    for rows in READ[:steps]:
        optimizer.zero_grad()
        (table(torch.tensor(rows)) ** 2).sum().backward()
        optimizer.step()
    return table.weight.detach(), optimizer.state[table.weight]["squares"]


def by_hand() -> tuple[list[list[float]], list[float]]:
    """The same in Python's own numbers."""
    torch.manual_seed(0)
    table = nn.Embedding(ROWS, WIDTH).weight.tolist()
    squares: list[float] = []
    for rows in READ:
        gradient = {row: [2 * rows.count(row) * value for value in table[row]] for row in set(rows)}
        mean = {row: sum(value**2 for value in each) / WIDTH for row, each in gradient.items()}
        if not squares:
            squares = [2.0 * sum(mean.values()) / len(mean)] * ROWS
        for row, each in gradient.items():
            squares[row] += mean[row]
            for place, value in enumerate(each):
                table[row][place] -= 0.5 * value / squares[row] ** 0.5
    return table, squares


@pytest.mark.parametrize("sparse", [True, False])
def test_against_one_number_at_a_time(sparse: bool) -> None:
    table, squares = trained(sparse)
    expected, expected_squares = by_hand()
    assert torch.allclose(table, torch.tensor(expected), atol=1e-6)
    assert torch.allclose(squares, torch.tensor(expected_squares), rtol=1e-5)


def test_rows_without_a_gradient_stay_to_the_bit() -> None:
    torch.manual_seed(0)
    before = nn.Embedding(ROWS, WIDTH).weight.detach()
    untouched = [row for row in range(ROWS) if row not in {0, 3, 7, 49}]
    for sparse in (True, False):
        assert torch.equal(trained(sparse)[0][untouched], before[untouched])


def test_two_runs_are_equal_to_the_bit() -> None:
    for first, second in zip(trained(sparse=True), trained(sparse=True), strict=True):
        assert torch.equal(first, second)


def test_state_put_back_continues_to_the_bit() -> None:
    table, squares = trained(sparse=True, steps=2)
    resumed = nn.Embedding(ROWS, WIDTH, sparse=True, _weight=table.clone())
    optimizer = RowAdagrad(resumed.parameters(), lr=0.5, floor=2.0)
    optimizer.state[resumed.weight]["squares"] = squares.clone()
    (resumed(torch.tensor(READ[2])) ** 2).sum().backward()
    optimizer.step()
    assert torch.equal(resumed.weight.detach(), trained(sparse=True)[0])


def test_a_gradient_of_nothing_but_zeros_moves_nothing() -> None:
    table = nn.Embedding(3, 2)
    before = table.weight.detach().clone()
    table.weight.grad = torch.zeros(3, 2)
    RowAdagrad(table.parameters()).step()
    assert torch.equal(table.weight, before)


def test_gradients_are_sparse_where_they_are_asked_for() -> None:
    tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(2))
    expect_sparse(tables, [tables[0].weight])
    sum(table(torch.tensor([1])).sum() for table in tables).backward()
    assert [table.weight.grad.is_sparse for table in tables] == [True, False]
    expect_sparse(tables, [])
    assert not any(table.sparse for table in tables)


@pytest.mark.parametrize("sparse", [True, False])
def test_rates_shorten_the_steps_of_rows(sparse: bool) -> None:
    rates = torch.linspace(0.0, 1.0, ROWS)
    moved = []
    for given in (None, rates):
        torch.manual_seed(0)
        table = nn.Embedding(ROWS, WIDTH, sparse=sparse)
        before = table.weight.detach().clone()
        optimizer = RowAdagrad(
            table.parameters(), lr=0.5, rates=None if given is None else dict.fromkeys(table.parameters(), given)
        )
        (table(torch.arange(ROWS)) ** 2).sum().backward()
        optimizer.step()
        moved.append(table.weight.detach() - before)
    assert torch.allclose(moved[1], moved[0] * rates[:, None], atol=1e-6)
