"""Which rows of the embedding tables a document has: one for each of its tokens, and for each n-gram with a vector.

Rows are numbered through both tables: the tokens first, then the n-grams (`rehead.model.ngrams`). N-grams without a row
of their own are left out. Everything that treats a document as a set of rows asks here: the views of n-gram vectors and
of exact words, the document objective, explanations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

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
