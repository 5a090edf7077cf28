"""Embeddings of n-grams: what a bag of words lacks and a layer has to learn, looked up instead.

"not good" gets a vector of its own. There are far more n-grams than rows, and most are rare, so each is hashed into
one of `nbuckets` · 8 slots, and the slot names its row. Pretraining gives the rows to the most frequent n-grams of its
text (`choose_rows`); all others are sent to row 0, which stays zero. Until then slots share rows by their number, which
is plain hashing. Rows for one n-gram alone are worth half a point to a point of accuracy
(docs/experiments/pretraining.md), and fewer of them are read.

Under the square mask an n-gram is felt by its last token alone, so nothing leaks backwards. Read both ways, every
token in it feels an equal part. Either way the sum over a document is the same: one vector per n-gram.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A polynomial hash modulo the prime 2³¹ − 1: no product passes 2⁶³, so every platform and export computes the same.
PRIME = 2**31 - 1
FACTOR = 1_103_515_245
SLOTS = 8  # for each row
NO_ROW = 0  # the row of the n-grams that have none: all zeros


def ngram_buckets(ids: Tensor, n: int, nbuckets: int) -> Tensor:
    """Hash every run of n tokens into so many slots: ids (B, T) → (B, T − n + 1), the run that begins at each place."""
    runs = ids.long().unfold(1, n, 1)  # (B, T − n + 1, n)
    state = torch.full_like(runs[..., 0], n)
    for place in range(n):
        state = (state * FACTOR + runs[..., place] + 1) % PRIME
    return state % nbuckets


class NGrams(nn.Embedding):
    """Sum of the embeddings of the n-grams (2 … `longest` tokens) that a token is part of.

    It is an `nn.Embedding`, so that `sparse` says whether its gradient holds the touched rows alone.
    """

    weight: nn.Parameter
    rows: Tensor
    "The row of each slot: whole numbers as float32, which a run is made of. (slots,)"

    def __init__(self, longest: int, nbuckets: int, nhid: int) -> None:
        super().__init__(nbuckets, nhid, padding_idx=NO_ROW, _weight=torch.empty(nbuckets, nhid))
        self.longest = longest
        self.register_buffer("rows", torch.arange(nbuckets, dtype=torch.float32).repeat(SLOTS))

    def choose_rows(self, counts: Tensor, least: int = 2) -> int:
        """Give the rows to the slots that are met most often, and at least so often; tell how many these are.

        Frequent ones stand together at the beginning of the table, where they share the cache. counts: (slots,)
        """
        order = torch.argsort(counts, descending=True, stable=True)[: len(self.weight) - 1]
        order = order[counts[order] >= least]
        self.rows.fill_(NO_ROW)
        self.rows[order] = torch.arange(1, len(order) + 1, dtype=self.rows.dtype, device=self.rows.device)
        return len(order)

    def rows_fit(self) -> bool:
        """Tell whether every slot names a row that there is."""
        rows = self.rows
        return bool(((rows >= 0) & (rows < len(self.weight)) & (rows == rows.floor())).all())

    def find_rows(self, ids: Tensor, n: int) -> Tensor:
        """Look up the row of every run of n tokens: ids (B, T) → (B, T − n + 1)."""
        return self.rows[ngram_buckets(ids, n, len(self.rows))].long()

    def forward(  # type: ignore[override] # more to know than which rows
        self, ids: Tensor, keep: Tensor | None, causal: bool
    ) -> Tensor:
        """ids (B, T) → (B, T, H). Runs over padding do not count."""
        total = torch.zeros(*ids.shape, self.weight.shape[1], device=ids.device, dtype=self.weight.dtype)
        for n in range(2, min(self.longest, ids.shape[1]) + 1):
            # (B, T − n + 1, H)
            vectors = F.embedding(self.find_rows(ids, n), self.weight, self.padding_idx, sparse=self.sparse)
            if keep is not None:
                vectors = vectors * keep.unfold(1, n, 1).all(-1)[..., None]
            places = [n - 1] if causal else range(n)
            for place in places:
                total = total + F.pad(vectors, (0, 0, place, n - 1 - place)) / len(places)
        return total
