"""Sums of rows of a table, one for each document, with a gradient that holds the touched rows alone.

`F.embedding_bag` reads the rows fast, but its sparse gradient has a row for every reading: a batch of 64 reviews reads
19,000 times from 10,000 rows. Seen from the rows, the gradient is the same operation: a touched row gets the sum of the
gradients of the documents that read it, and those fit into the cache.

Shapes: B documents, H width, R readings, U touched rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Readings(NamedTuple):
    """Who reads what, from both sides."""

    rows: Tensor
    "Rows read, document by document: (R,)."
    starts: Tensor
    "Where each document's rows begin: (B,)."
    touched: Tensor
    "Every row that is read, once, in ascending order: (U,)."
    readers: Tensor
    "Documents that read, row by row: (R,)."
    touched_starts: Tensor
    "Where each touched row's readers begin: (U,)."


def readings(rows: Ints, documents: Ints, size: int) -> dict[str, Ints]:
    """Prepare the fields of `Readings` for `size` documents; `documents` (R,) must ascend."""
    # One sort of plain numbers, by row and then by document: faster than finding the order first.
    sorted_rows, readers = np.divmod(np.sort(rows * max(1, size) + documents), max(1, size))
    touched_starts = np.flatnonzero(np.diff(sorted_rows, prepend=-1))
    return {
        "rows": rows,
        "starts": np.searchsorted(documents, np.arange(size)),
        "touched": sorted_rows[touched_starts],
        "readers": readers,
        "touched_starts": touched_starts,
    }


def row_sums(table: nn.Embedding, given: Readings) -> Tensor:
    """Add up the rows that each document reads: (B, H). The gradient is sparse if the table says so."""
    sums: Tensor = _RowSums.apply(table.weight, table.sparse, *given)  # type: ignore[no-untyped-call]
    return sums


class _RowSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 (torch's context)
        weight: Tensor,
        sparse: bool,
        rows: Tensor,
        starts: Tensor,
        touched: Tensor,
        readers: Tensor,
        touched_starts: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(touched, readers, touched_starts)
        ctx.sparse, ctx.shape = sparse, weight.shape
        return F.embedding_bag(rows, weight, starts, mode="sum")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 (torch's context)
        touched, readers, touched_starts = ctx.saved_tensors
        values = F.embedding_bag(readers, gradient.contiguous(), touched_starts, mode="sum")  # (U, H)
        if ctx.sparse:  # indices of its own: torch grows them when the next part's are added
            whole = torch.sparse_coo_tensor(
                touched[None].clone(), values, ctx.shape, is_coalesced=True, check_invariants=False
            )
        else:
            whole = values.new_zeros(ctx.shape).index_copy_(0, touched, values)
        return (whole, None, None, None, None, None, None)
