"""Which rows of the embedding tables a document has, and the vector of these rows: their sum.

A document has a row for each of its tokens, and for each n-gram with a vector. Rows are numbered through both tables:
the tokens first, then the n-grams (`rehead.model.ngrams`); n-grams without a row of their own are left out. Everything
that treats a document as a set of rows asks here: the views of n-gram vectors and of exact words, the document
objective, explanations.

The sum has a sparse gradient that holds each touched row once. `F.embedding_bag` sums rows fast, but its sparse
gradient has an entry per look-up: a batch of 64 reviews looks up 19,000 times in 10,000 rows. Seen from the rows, the
gradient is the same operation: a touched row gets the sum of the gradients of the documents that contain it, and those
fit into the cache. Where no gradient is wanted, the half of the index that serves the backward pass is left empty.

Shapes: B documents, H width, L look-ups, U touched rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.ngrams import NO_ROW, ngram_slots

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.model.base import Base

    Ints = NDArray[np.int64]


class Rows(NamedTuple):
    """The rows of some documents, one document after the other: four arrays of the same length."""

    row: Ints
    document: Ints
    "Which of the documents, from 0."
    start: Ints
    "Which token of the document is its first."
    size: Ints
    "How many tokens the n-gram has."

    def take(self, which: NDArray[np.bool_] | Ints | slice) -> Rows:
        """Select some of them."""
        return Rows(*(each[which] for each in self))


class DistinctRows(NamedTuple):
    """The distinct rows of some documents, one document after the other, in ascending order within each."""

    row: Ints
    document: Ints
    "Which of the documents, from 0."
    documents: int

    @property
    def counts(self) -> Ints:
        """Number of distinct rows of each document: (documents,)."""
        return np.bincount(self.document, minlength=self.documents)


class RowFinder:
    """Finds the rows of documents for one base. It keeps a reference to the base's table of n-gram slots."""

    def __init__(self, base: Base) -> None:
        self.ntokens = base.config.ntokens
        self.longest = base.config.ngrams
        self.count = row_count(base)
        "Number of rows of both tables together."
        self.slots: Tensor | None = None if base.ngrams is None else base.ngrams.rows.cpu()
        "The row of each hash slot: (slots,), float32 as it is stored."

    def find(self, texts: Sequence[Ints]) -> Rows:
        """Find every occurrence of a row, with its position: documents in order, shorter n-grams first in each."""
        ids, lengths = _joined(texts)
        found = list(self._runs(ids, lengths))
        row, place, size = (np.concatenate(each) for each in zip(*found, strict=True))
        document = np.repeat(np.arange(len(texts)), lengths)[place]
        start = place - (np.cumsum(lengths) - lengths)[document]
        joined = Rows(row, document, start, size)
        if len(found) == 1:
            return joined
        # numpy sorts 16-bit integers by counting, ten times as fast.
        small = document.astype(np.uint16) if len(texts) < 1 << 16 else document
        return joined.take(np.argsort(small, kind="stable"))

    def find_distinct(self, texts: Sequence[Ints]) -> DistinctRows:
        """Find the distinct rows of each document: a third of the time of `find`, since no positions are kept."""
        ids, lengths = _joined(texts)
        first = np.repeat(np.arange(len(texts)) * self.count, lengths)
        keys = np.sort(np.concatenate([first[place] + row for row, place, _ in self._runs(ids, lengths)]))
        keys = keys[np.diff(keys, prepend=-1) != 0]
        document, row = np.divmod(keys, self.count)
        return DistinctRows(row, document, len(texts))

    def _runs(self, ids: Ints, lengths: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Give row, place in `ids` and size of the n-grams that have a row, one length of n-gram after the other."""
        yield ids, np.arange(len(ids)), np.ones_like(ids)
        for n, slot, whole in _slots(ids, lengths, self.longest, 0 if self.slots is None else len(self.slots)):
            assert self.slots is not None  # noqa: S101 (for the type checker)
            row = self.slots[torch.from_numpy(slot)].long().numpy()
            place = np.flatnonzero(whole & (row != NO_ROW))
            yield row[place] + self.ntokens, place, np.full(len(place), n)


def row_count(base: Base) -> int:
    """Number of rows: the tokens, then the n-grams."""
    return base.config.ntokens + base.config.nbuckets


def assign_ngram_rows(base: Base, groups: Iterable[Sequence[Ints]]) -> None:
    """Give the rows of a fresh base's n-grams to those that are most frequent in these groups of documents."""
    if base.ngrams is None:
        return
    counts = np.zeros(len(base.ngrams.rows), np.int64)
    for texts in groups:
        for _, slot, whole in _slots(*_joined(texts), base.config.ngrams, len(counts)):
            counts += np.bincount(slot[whole], minlength=len(counts))
    base.ngrams.choose_rows(torch.from_numpy(counts).to(base.ngrams.rows.device))


def _joined(texts: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Give all ids in one array, and the length of each document."""
    lengths = np.array([len(each) for each in texts], np.int64)
    return np.concatenate(texts) if len(texts) else np.zeros(0, np.int64), lengths


def _slots(ids: Ints, lengths: Ints, longest: int, slots: int) -> Iterator[tuple[int, Ints, NDArray[np.bool_]]]:
    """For n from 2 on: the hash slot of the run of n tokens at each place, and whether it stays in its document."""
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(ids))  # tokens to the document's end, inclusive
    for n in range(2, min(longest, len(ids)) + 1):
        slot = ngram_slots(torch.from_numpy(ids)[None], n, slots)[0].numpy()
        yield n, slot, left[: len(slot)] >= n


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
