"""The n-grams of documents as rows of one table.

Rows are those of an output table: the tokens first, then the rows of the longer n-grams (`rehead.model.ngrams`).
N-grams that have no row are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rehead.model.base import Base
from rehead.model.config import ModelConfig
from rehead.model.ngrams import NO_ROW, ngram_buckets
from rehead.model.spread import rows_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Grams(NamedTuple):
    """The n-grams of some documents, one document after the other: four arrays of the same length."""

    rows: Ints
    "Which row of the table."
    document: Ints
    "Which of the documents, from 0."
    start: Ints
    "Which token of the document is its first."
    size: Ints
    "How many tokens it has."

    def some(self, which: NDArray[np.bool_] | Ints | slice) -> Grams:
        """Keep some of them."""
        return Grams(*(each[which] for each in self))


class DistinctRows(NamedTuple):
    """The rows of some documents, one document after the other, each row once in a document and in their order."""

    rows: Ints
    document: Ints
    "Which of the documents, from 0."
    documents: int


def rows_of(base: Base) -> Tensor | None:
    """Give the row of each slot of a model's n-grams, where documents are read: (slots,), float32 as they are kept."""
    return None if base.ngrams is None else base.ngrams.rows.cpu()


def find_grams(texts: Sequence[Ints], config: ModelConfig, slots: Tensor | None) -> Grams:
    """Find the n-grams of some documents that a model knows; `slots` are its `rows_of`."""
    lengths = np.array([len(each) for each in texts], np.int64)
    ids = np.concatenate(texts) if texts else np.zeros(0, np.int64)
    document = np.repeat(np.arange(len(texts)), lengths)
    start = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found = [Grams(ids, document, start, np.ones_like(ids))]
    for n in range(2, min(config.ngrams, len(ids)) + 1):
        assert slots is not None  # noqa: S101 (for the type checker)
        rows = _rows_of_runs(ids, n, slots)
        here = slice(len(rows))
        known = (rows != NO_ROW) & whole_runs(start, lengths[document], n)
        found.append(Grams(rows + config.ntokens, document[here], start[here], np.full(len(rows), n)).some(known))
    if len(found) == 1:
        return found[0]
    joined = Grams(*(np.concatenate(each) for each in zip(*found, strict=True)))
    # Numpy sorts numbers of 16 bits by counting, ten times as fast.
    small = joined.document.astype(np.uint16) if len(texts) < 1 << 16 else joined.document
    return joined.some(np.argsort(small, kind="stable"))


def find_distinct(texts: Sequence[Ints], config: ModelConfig, slots: Tensor | None) -> DistinctRows:
    """Find the rows of some documents' tokens and n-grams, each once: `each_once` of `find_grams`, in a third of it.

    Where in the document they stand is not asked for, so sorting one number per n-gram does it all.
    """
    lengths = np.array([len(each) for each in texts], np.int64)
    ids = np.concatenate(texts) if len(texts) else np.zeros(0, np.int64)
    first = np.repeat(np.arange(len(texts)) * rows_in(config), lengths)  # of the document, in the numbers below
    ends = np.cumsum(lengths)
    left = np.repeat(ends, lengths) - np.arange(len(ids))  # tokens to the document's end, this one counted
    found = [first + ids]
    for n in range(2, min(config.ngrams, len(ids)) + 1):
        assert slots is not None  # noqa: S101 (for the type checker)
        rows = _rows_of_runs(ids, n, slots)
        known = np.flatnonzero((rows != NO_ROW) & (left[: len(rows)] >= n))
        found.append(first[known] + config.ntokens + rows[known])
    numbers = np.sort(np.concatenate(found))
    numbers = numbers[np.diff(numbers, prepend=-1) != 0]
    document, rows = np.divmod(numbers, rows_in(config))
    return DistinctRows(rows, document, len(texts))


def _rows_of_runs(ids: Ints, n: int, slots: Tensor) -> Ints:
    """Look up the row of every run of n tokens: (T) → (T − n + 1)."""
    found: Ints = slots[ngram_buckets(torch.from_numpy(ids)[None], n, len(slots))[0]].long().numpy()
    return found


def each_once(grams: Grams, config: ModelConfig) -> Grams:
    """Keep each n-gram once in a document."""
    _, first = np.unique(grams.document * rows_in(config) + grams.rows, return_index=True)
    return grams.some(first)


def whole_runs(start: Ints, lengths: Ints, n: int) -> NDArray[np.bool_]:
    """Tell which runs of n tokens do not go over the end of their document, of `lengths` tokens."""
    here = slice(len(start) - n + 1)
    whole: NDArray[np.bool_] = start[here] + n <= lengths[here]
    return whole
