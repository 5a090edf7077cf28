"""The vector of a document's rows: their sum, with a sparse gradient that holds each touched row once.

`F.embedding_bag` sums rows fast, but its sparse gradient has an entry per look-up: a batch of 64 reviews looks up
19,000 times in 10,000 rows. Seen from the rows, the gradient is the same operation: a touched row gets the sum of the
gradients of the documents that contain it, and those fit into the cache.

`sum_rows` is the only implementation: reading, training and explaining use it. Where no gradient is wanted, the half of
the index that serves the backward pass is left empty.

Shapes: B documents, H width, L look-ups, U touched rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.model.base import Base

    Ints = NDArray[np.int64]


class RowIndex(NamedTuple):
    """Which document contains which rows of one table, from both sides."""

    rows: Tensor
    "Rows, document by document: (L,)."
    starts: Tensor
    "Where each document's rows begin: (B,)."
    touched: Tensor
    "Every row that occurs, once, in ascending order: (U,)."
    readers: Tensor
    "Documents that contain it, row by row: (L,)."
    touched_starts: Tensor
    "Where each touched row's documents begin: (U,)."


def index_rows(row: Ints, document: Ints, size: int, ntokens: int, *, gradient: bool = True) -> dict[str, Ints]:
    """Prepare what `sum_rows` takes for `size` documents, as named arrays; `document` must ascend.

    `gradient=False` leaves out what only the backward pass needs.
    """
    tokens = row < ntokens
    tables = {"tokens": (row[tokens], document[tokens]), "ngrams": (row[~tokens] - ntokens, document[~tokens])}
    return {
        f"{table}.{name}": each
        for table, (rows, documents) in tables.items()
        for name, each in _index(rows, documents, size, gradient=gradient).items()
    }


def _index(rows: Ints, documents: Ints, size: int, *, gradient: bool) -> dict[str, Ints]:
    """Make the fields of a `RowIndex`."""
    starts, empty = np.searchsorted(documents, np.arange(size)), np.zeros(0, np.int64)
    if not gradient:
        return {"rows": rows, "starts": starts, "touched": empty, "readers": empty, "touched_starts": empty}
    # One sort of plain numbers, by row and then by document: faster than finding the order first.
    sorted_rows, readers = np.divmod(np.sort(rows * max(1, size) + documents), max(1, size))
    touched_starts = np.flatnonzero(np.diff(sorted_rows, prepend=-1))
    touched = sorted_rows[touched_starts]
    return {"rows": rows, "starts": starts, "touched": touched, "readers": readers, "touched_starts": touched_starts}


def sum_rows(base: Base, index: Mapping[str, Tensor]) -> Tensor:
    """Add up the vectors of each document's rows, as `index_rows` lists them: (B, H)."""
    total = _sums(base.embedding, index, "tokens") * base.scale
    return total if base.ngrams is None else total + _sums(base.ngrams, index, "ngrams")


def vectors_of_rows(base: Base, row: Ints, document: Ints, size: int) -> Tensor:
    """Do the same without a gradient: rows (L,) of documents (L,), which ascend → (B, H)."""
    index = index_rows(row, document, size, base.config.ntokens, gradient=False)
    device = base.embedding.weight.device
    with torch.no_grad():
        return sum_rows(base, {name: torch.from_numpy(each).to(device) for name, each in index.items()})


def _sums(table: nn.Embedding, index: Mapping[str, Tensor], name: str) -> Tensor:
    fields = RowIndex(*(index[f"{name}.{field}"] for field in RowIndex._fields))
    sums: Tensor = _RowSums.apply(table.weight, table.sparse, *fields)  # type: ignore[no-untyped-call]
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
