"""A subset of the documents of a store, without copying: the training set, or the held-out validation set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rehead.errors import UserError
from rehead.text.order import random_bits
from rehead.text.random_streams import Stream
from rehead.text.store import TokenStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.text.store import Ids


class StoreSubset:
    """A subset of the documents of a store, in order, with the same interface. Nothing is copied."""

    def __init__(self, store: TokenStore, documents: NDArray[np.int64]) -> None:
        self.store, self.documents = store, documents
        self.eos, self.vocab_size = store.eos, store.vocab_size
        begins, ends = store.offsets[documents], store.offsets[documents + 1]
        self.offsets: NDArray[np.int64] = np.concatenate((np.zeros(1, np.int64), np.cumsum(ends - begins)))
        "Start of document i in the concatenated ids of this subset. (documents + 1,)"
        self.shifts = begins - self.offsets[:-1]

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, document: int) -> Ids:
        """Ids of a document, without the end-of-text token."""
        return self.store[int(self.documents[document])]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of ids of each document, without the end-of-text token: (documents,)."""
        return np.diff(self.offsets) - 1

    def at(self, positions: NDArray[np.int64], documents: NDArray[np.int64]) -> Ids:
        """Ids at some positions of the concatenated subset; `documents` gives the document of each position."""
        return self.store.ids[positions + self.shifts[documents]]


Store = TokenStore | StoreSubset


def hold_out(store: TokenStore, share: float, most: int, seed: int) -> tuple[StoreSubset, StoreSubset]:
    """Split a store into a training set and a held-out set of randomly chosen whole documents.

    The held-out set has about `share` of the tokens, at most `most`. Both have at least one document.
    """
    if len(store) < 2:
        raise UserError(
            "The text is a single document, but validation needs another one. Give more text, or split it into "
            "documents by lines or blocks (--documents line, --documents block)."
        )
    order = np.argsort(random_bits(seed, Stream.HELD_OUT, np.arange(len(store))), kind="stable")
    wanted = min(share * len(store.ids), most)
    taken = int(np.searchsorted(np.cumsum(store.lengths[order] + 1), wanted, side="right"))
    taken = min(max(taken, 1), len(store) - 1)
    return StoreSubset(store, np.sort(order[taken:])), StoreSubset(store, np.sort(order[:taken]))
