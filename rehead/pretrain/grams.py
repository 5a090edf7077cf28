"""The n-grams of documents as rows of one table, and how often each row occurs.

Rows are those of an output table: the tokens first, then the rows of the longer n-grams (`rehead.model.ngrams`).
N-grams that have no row are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rehead.model.base import Base
from rehead.model.config import ModelConfig
from rehead.model.ngrams import NO_ROW, ngram_buckets
from rehead.text.order import shuffled
from rehead.text.store_part import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

COUNT = 20  # what a random choice is for, as part of its key
LARGEST_SAMPLE = 30_000_000  # tokens that are counted at most
THIN = 1e-4
"An n-gram that makes up a larger share of the text than this is thinned out."


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


def rows_of(base: Base) -> Tensor | None:
    """Give the row of each slot of a model's n-grams, where documents are read: (slots,)."""
    return None if base.ngrams is None else base.ngrams.rows.to("cpu", torch.int64)


def find_grams(texts: list[Ints], config: ModelConfig, slots: Tensor | None) -> Grams:
    """Find the n-grams of some documents that a model knows; `slots` are its `rows_of`."""
    lengths = np.array([len(each) for each in texts], np.int64)
    ids = np.concatenate(texts) if texts else np.zeros(0, np.int64)
    document = np.repeat(np.arange(len(texts)), lengths)
    start = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found = [Grams(ids, document, start, np.ones_like(ids))]
    for n in range(2, min(config.ngrams, len(ids)) + 1):
        assert slots is not None  # noqa: S101 (for the type checker)
        rows = slots[ngram_buckets(torch.from_numpy(ids)[None], n, len(slots))[0]].numpy()
        here = slice(len(rows))
        known = (rows != NO_ROW) & _whole(start, lengths[document], n)
        found.append(Grams(rows + config.ntokens, document[here], start[here], np.full(len(rows), n)).some(known))
    if len(found) == 1:
        return found[0]
    joined = Grams(*(np.concatenate(each) for each in zip(*found, strict=True)))
    # Numpy sorts numbers of 16 bits by counting, ten times as fast.
    small = joined.document.astype(np.uint16) if len(texts) < 1 << 16 else joined.document
    return joined.some(np.argsort(small, kind="stable"))


def choose_rows(base: Base, store: Store, seed: int) -> None:
    """Give the rows of a fresh model's n-grams to those that are most frequent in the text."""
    if base.ngrams is None:
        return
    counts = np.zeros(len(base.ngrams.rows), np.int64)
    for texts in _sample(store, seed):
        ids = np.concatenate(texts)
        lengths = np.array([len(each) for each in texts], np.int64)
        start = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        for n in range(2, min(base.config.ngrams, len(ids)) + 1):
            slots = ngram_buckets(torch.from_numpy(ids)[None], n, len(counts))[0].numpy()
            counts += np.bincount(slots[_whole(start, np.repeat(lengths, lengths), n)], minlength=len(counts))
    base.ngrams.choose_rows(torch.from_numpy(counts).to(base.ngrams.rows.device))


def count_rows(store: Store, base: Base, seed: int) -> NDArray[np.float64]:
    """Count how often every row occurs in the documents, or in a sample of a very large corpus: (rows,)."""
    slots = rows_of(base)
    counts = np.zeros(base.config.ntokens + base.config.nbuckets, np.int64)
    for texts in _sample(store, seed):
        counts += np.bincount(find_grams(texts, base.config, slots).rows, minlength=len(counts))
    return counts.astype(np.float64)


def _sample(store: Store, seed: int) -> Iterator[list[Ints]]:
    """Read the documents, or some of a very large corpus, a thousand at a time."""
    documents = len(store)
    sampled = min(documents, max(1, int(documents * LARGEST_SAMPLE / max(1, int(store.offsets[-1])))))
    chosen = np.arange(documents)
    if sampled < documents:
        chosen = np.sort(shuffled(np.arange(sampled), documents, seed, COUNT))
    for begin in range(0, sampled, 1000):
        yield [np.asarray(store[int(each)], np.int64) for each in chosen[begin : begin + 1000]]


def _whole(start: Ints, lengths: Ints, n: int) -> NDArray[np.bool_]:
    """Tell which runs of n tokens do not go over the end of their document, of `lengths` tokens."""
    here = slice(len(start) - n + 1)
    whole: NDArray[np.bool_] = start[here] + n <= lengths[here]
    return whole


def kept_share(counts: NDArray[np.float64], ntokens: int) -> NDArray[np.float64]:
    """Say which share of each row's occurrences is kept, so that frequent n-grams do not drown the others: (rows,)."""
    share = counts / max(1.0, float(counts[:ntokens].sum()))
    ratio = THIN / np.maximum(share, 1e-30)
    kept: NDArray[np.float64] = np.minimum(1.0, np.sqrt(ratio) + ratio)
    return kept
