"""Some documents of a store as a store of their own: what is trained on, and what is kept for validation."""

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
    """Some documents of a store, in their order, as if they were a store of their own. Nothing is copied."""

    def __init__(self, store: TokenStore, documents: NDArray[np.int64]) -> None:
        self.store, self.documents = store, documents
        self.eos, self.vocab_size = store.eos, store.vocab_size
        begins, ends = store.offsets[documents], store.offsets[documents + 1]
        self.offsets: NDArray[np.int64] = np.concatenate((np.zeros(1, np.int64), np.cumsum(ends - begins)))
        "Where document i begins in the row of this part's ids. (documents + 1,)"
        self.shifts = begins - self.offsets[:-1]

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, document: int) -> Ids:
        """Give one document's ids, without the end mark."""
        return self.store[int(self.documents[document])]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many ids each document has, without the end mark: (documents,)."""
        return np.diff(self.offsets) - 1

    def at(self, places: NDArray[np.int64], documents: NDArray[np.int64]) -> Ids:
        """Give the ids at some places of this part's row; `documents` says in which document each place is."""
        return self.store.ids[places + self.shifts[documents]]


Store = TokenStore | StoreSubset


def hold_out(store: TokenStore, share: float, most: int, seed: int) -> tuple[StoreSubset, StoreSubset]:
    """Cut a store in two: what is trained on, and whole documents, drawn by chance, that are kept for validation.

    These have about `share` of the tokens, `most` tokens at most, and there is at least one; so is the rest.
    """
    if len(store) < 2:
        raise UserError(
            "The text is a single document, and validation needs one of its own. Give more text; if it is a long one, "
            "have it cut into lines or blocks (--documents line, --documents block)."
        )
    order = np.argsort(random_bits(seed, Stream.HELD_OUT, np.arange(len(store))), kind="stable")
    wanted = min(share * len(store.ids), most)
    taken = int(np.searchsorted(np.cumsum(store.lengths[order] + 1), wanted, side="right"))
    taken = min(max(taken, 1), len(store) - 1)
    return StoreSubset(store, np.sort(order[taken:])), StoreSubset(store, np.sort(order[:taken]))
