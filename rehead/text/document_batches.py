"""Batches of whole documents by token budget, bucketed by length to minimise padding.

Documents are sorted by length once and cut into buckets in which the shortest is at most 10 % shorter than the longest.
All batches of a bucket have the same number of documents: as many of its longest as the budget allows. In every epoch
the documents of a bucket are assigned to its batches anew, and all batches are shuffled.

Number and size of the batches never change, so the batch of a step is a pure function of the step number
(`rehead.text.order`), each document occurs once per epoch, and only the batch of the shortest documents is not full.

With few documents, a bucket spans more than 10 %, so that it fills at least two batches; otherwise the same documents
would always share a batch.

Padding on IMDb, with a budget of 8,192 tokens and a maximum length of 512: 3.4 % with 25,000 reviews, 4.1 % with 1,600,
and 21 % with 100, where few batches cover all lengths (bench/text.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rehead.errors import UserError
from rehead.text.long_documents import LongRule, split_long
from rehead.text.order import shard_slice, shuffled
from rehead.text.random_streams import Stream
from rehead.text.store import TokenStore
from rehead.text.store_subset import Store, StoreSubset

if TYPE_CHECKING:
    from numpy.typing import NDArray

LENGTH_TOLERANCE = 0.1
MIN_BATCHES = 2


class DocumentBatch(NamedTuple):
    """Documents, padded to the longest in the batch."""

    ids: NDArray[np.int64]
    "(batch, time)"
    keep: NDArray[np.bool_]
    "Padding mask: True for tokens, False for padding. (batch, time)"
    documents: NDArray[np.int64]
    "Index of the document that each row is (a piece of). (batch,)"


class Bucket(NamedTuple):
    """Documents of similar length: a slice of the documents sorted by length."""

    first: int
    size: int
    per_batch: int

    @property
    def batches(self) -> int:
        """Number of batches; the last may be smaller."""
        return -(-self.size // self.per_batch)


class DocumentBatches:
    """Batches of documents. `len` is the number of batches per epoch."""

    def __init__(
        self,
        documents: Store | Sequence[Sequence[int] | NDArray[np.int64]],
        *,
        budget: int,
        longest: int,
        long: LongRule,
        pad: int,
        seed: int = 0,
    ) -> None:
        """Plan batches of at most `budget` tokens, including padding.

        `longest` is the maximum length in tokens; `long` says how longer documents are truncated or split.
        """
        if longest < 1:
            raise UserError(f"A maximum length of {longest} tokens leaves no room for text. Raise it.")
        if budget < longest:
            raise UserError(f"A batch of {budget} tokens cannot hold a document of {longest}. Raise the batch size.")
        if not len(documents):
            raise UserError("There are no documents to batch.")
        self.documents, self.pad, self.seed = documents, pad, seed
        self.pieces = split_long(_lengths(documents), longest, long)
        self.lengths = self.pieces.lengths
        self.cut = self.pieces.cut
        "Number of documents that were too long; always reported to the user."
        self.sorted = np.argsort(-self.lengths, kind="stable")
        "Pieces, longest first."
        self.buckets = make_buckets(self.lengths[self.sorted], budget)
        self.ends = np.cumsum([bucket.batches for bucket in self.buckets])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def members(self, step: int) -> NDArray[np.int64]:
        """Give the indices of the pieces in the batch of a step."""
        if step < 0:
            raise ValueError(f"step {step}: steps count from 0")
        epoch, position = divmod(step, len(self))
        batch = int(shuffled(np.array([position]), len(self), self.seed, Stream.BATCH_ORDER, epoch)[0])
        number = int(np.searchsorted(self.ends, batch, side="right"))
        bucket = self.buckets[number]
        nth = batch - (int(self.ends[number]) - bucket.batches)
        places = np.arange(nth * bucket.per_batch, min((nth + 1) * bucket.per_batch, bucket.size))
        members = shuffled(places, bucket.size, self.seed, Stream.BATCH_MEMBERS, epoch, number)
        return self.sorted[bucket.first + members]

    def padding(self) -> float:
        """Fraction of padding in the batches of an epoch; depends only on the lengths and the seed."""
        batches = [self.lengths[self.members(step)] for step in range(len(self))]
        return 1 - float(self.lengths.sum()) / sum(len(each) * int(each.max()) for each in batches)

    def read(self, step: int, rank: int = 0, world: int = 1) -> DocumentBatch:
        """Read a rank's shard of the batch of a step; it may be empty if there are fewer documents than ranks."""
        members = self.members(step)
        time = int(self.lengths[members].max())
        return self._gather(members[shard_slice(len(members), rank, world)], time)

    def _gather(self, members: NDArray[np.int64], time: int) -> DocumentBatch:
        ids = np.full((len(members), time), self.pad, np.int64)
        for row, piece in zip(ids, members, strict=True):
            text = self.pieces.read(int(piece), np.asarray(self.documents[int(self.pieces.document[piece])], np.int64))
            row[: len(text)] = text
        keep = np.arange(time) < self.lengths[members][:, None]
        return DocumentBatch(ids, keep, self.pieces.document[members])


def make_buckets(lengths: NDArray[np.int64], budget: int) -> list[Bucket]:
    """Cut lengths, sorted in descending order, into buckets."""
    buckets = []
    first = 0
    while first < len(lengths):
        longest = max(int(lengths[first]), 1)
        per_batch = budget // longest
        similar = int(np.searchsorted(-lengths, -(1 - LENGTH_TOLERANCE) * longest, side="right")) - first
        size = min(max(similar // per_batch, MIN_BATCHES) * per_batch, len(lengths) - first)
        buckets.append(Bucket(first, size, per_batch))
        first += size
    return buckets


def _lengths(documents: Store | Sequence[Any]) -> NDArray[np.int64]:
    if isinstance(documents, TokenStore | StoreSubset):
        return documents.lengths
    return np.fromiter((len(each) for each in documents), np.int64, len(documents))
