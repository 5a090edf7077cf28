"""Row-wise Adagrad, with one step size per row, for large tables of which a step touches few rows.

A step reads and writes the rows that it touched and nothing else: of a table of 270,000 rows of 128 values a batch of
64 reviews touches about 10,000, and going over the whole table instead would take 25 times the memory traffic, which
is all the cost there is. One sum of squares is kept per row, not per value: the state is as small as a column.

A row's first steps are damped: its sum of squares starts at `floor` times the mean over the rows of the table's first
step. Without that, a row that is updated for the first time moves as far as one that is updated often, in the direction
of a single document. In `document` it gave 0.3 to 0.9 points, one seed (docs/experiments/pretraining.md).

Gradients may be sparse or dense, with the same result. On a CPU every operation is deterministic to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

import torch
from torch import Tensor, nn

TINY = 1e-30  # avoids dividing zero by zero for a row that never had a gradient


class RowAdagrad(torch.optim.Optimizer):
    """Each row of a table moves by lr · gradient / √(sum of the row's mean squared gradients so far)."""

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float = 0.1,
        floor: float = 10.0,
        rates: Mapping[nn.Parameter, Tensor] | None = None,
    ) -> None:
        """Train tables of shape (rows, width). State: `squares` (rows,) for each.

        `rates` may hold, for some tables, a learning-rate multiplier per row: (rows,).
        """
        super().__init__(params, {"lr": lr, "floor": floor})
        self.rates = dict(rates or {})

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the rows that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._move(table, group["lr"], group["floor"])
        return loss

    def _move(self, table: nn.Parameter, lr: float, floor: float) -> None:
        gradient: Tensor = table.grad  # type: ignore[assignment]
        state = self.state[table]
        rows, values = _touched(gradient) if gradient.is_sparse else (None, gradient)
        new = torch.linalg.vecdot(values, values) / values.shape[1]  # (touched,)
        if "squares" not in state:
            touched = (new > 0).sum().clamp_min(1)
            state["squares"] = torch.zeros(len(table), device=table.device) + floor * new.sum() / touched
        squares: Tensor = state["squares"]
        if rows is None:
            squares += new
            table.addcmul_(values, self._sizes(table, squares, slice(None)), value=-lr)
            return
        # Each row occurs once in `rows`, so the order of `index_add_` does not matter.
        squares.index_add_(0, rows, new)
        table.index_add_(0, rows, values * self._sizes(table, squares, rows), alpha=-lr)

    def _sizes(self, table: nn.Parameter, squares: Tensor, rows: Tensor | slice) -> Tensor:
        """What the gradients of some rows are multiplied by, before the learning rate: (touched, 1)."""
        sizes = squares[rows].add(TINY).rsqrt_()
        if table in self.rates:
            sizes *= self.rates[table].to(sizes.device)[rows]
        return sizes[:, None]


def _touched(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Give the rows of a sparse gradient, each once, and their values: (touched,), (touched, width).

    Torch forgets that a gradient came with its rows in order, and sorting them again would copy all values.
    """
    rows = gradient._indices()[0]
    if not bool((rows[1:] > rows[:-1]).all()):
        gradient = gradient.coalesce()
        rows = gradient.indices()[0]
    return rows, gradient._values()


def expect_sparse(module: nn.Module, tables: Iterable[nn.Parameter]) -> None:
    """Have these tables, and no other embedding in the module, give sparse gradients.

    To be called before `DistributedDataParallel`, which asks each embedding what to expect.
    """
    chosen = set(tables)
    for each in module.modules():
        if isinstance(each, nn.Embedding):
            each.sparse = each.weight in chosen
