"""N-gram embeddings: local word order (such as "not good"), looked up in a table instead of learned by a layer.

There are far more n-grams than table rows, and most are rare, so each n-gram is hashed into one of 8 · `nbuckets`
slots, and the slot gives its row. Pretraining assigns the rows to the most frequent n-grams of its text
(`choose_rows`); all others get row 0, which stays zero. Before that, slots share rows modulo `nbuckets`, which is the
usual hashing trick. Rows without collisions gain half a point to a point of accuracy
(docs/experiments/pretraining.md), and fewer rows are read.

With causal attention an n-gram is added to its last token only, so that nothing leaks from later tokens. Otherwise it
is split equally among its tokens. Either way the sum over a document is the same: one vector per n-gram.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A polynomial hash modulo the prime 2³¹ − 1: no product exceeds 2⁶³, so all platforms and exports compute the same.
PRIME = 2**31 - 1
FACTOR = 1_103_515_245
SLOTS = 8  # per row
NO_ROW = 0  # the row of n-grams without a vector: all zeros


def ngram_slots(ids: Tensor, n: int, slots: int) -> Tensor:
    """Hash every n-gram into one of `slots`: ids (B, T) → (B, T − n + 1), by the position of its first token."""
    runs = ids.long().unfold(1, n, 1)  # (B, T − n + 1, n)
    state = torch.full_like(runs[..., 0], n)
    for place in range(n):
        state = (state * FACTOR + runs[..., place] + 1) % PRIME
    return state % slots


class NGrams(nn.Embedding):
    """Sum of the embeddings of the n-grams (2 … `max_n` tokens) that contain a token.

    A subclass of `nn.Embedding`, so that `sparse=True` gives sparse gradients.
    """

    weight: nn.Parameter
    rows: Tensor
    "(slots,) the row of each slot: integers stored as float32, the dtype of saved runs."

    def __init__(self, max_n: int, nbuckets: int, nhid: int) -> None:
        super().__init__(nbuckets, nhid, padding_idx=NO_ROW, _weight=torch.empty(nbuckets, nhid))
        self.max_n = max_n
        self.register_buffer("rows", torch.arange(nbuckets, dtype=torch.float32).repeat(SLOTS))

    def choose_rows(self, counts: Tensor, min_count: int = 2) -> int:
        """Assign the rows to the most frequent slots, those with at least `min_count`; return their number.

        Rows are in order of frequency, so that the frequent ones share the CPU cache. counts: (slots,)
        """
        order = torch.argsort(counts, descending=True, stable=True)[: len(self.weight) - 1]
        order = order[counts[order] >= min_count]
        self.rows.fill_(NO_ROW)
        self.rows[order] = torch.arange(1, len(order) + 1, dtype=self.rows.dtype, device=self.rows.device)
        return len(order)

    def rows_fit(self) -> bool:
        """Return whether every slot has a valid row."""
        rows = self.rows
        return bool(((rows >= 0) & (rows < len(self.weight)) & (rows == rows.floor())).all())

    def find_rows(self, ids: Tensor, n: int) -> Tensor:
        """Look up the row of every n-gram: ids (B, T) → (B, T − n + 1)."""
        return self.rows[ngram_slots(ids, n, len(self.rows))].long()

    def forward(  # type: ignore[override] # takes more arguments than nn.Embedding
        self, ids: Tensor, keep: Tensor | None, causal: bool
    ) -> Tensor:
        """ids (B, T) → (B, T, H). N-grams that contain padding are ignored."""
        total = torch.zeros(*ids.shape, self.weight.shape[1], device=ids.device, dtype=self.weight.dtype)
        for n in range(2, min(self.max_n, ids.shape[1]) + 1):
            # (B, T − n + 1, H)
            vectors = F.embedding(self.find_rows(ids, n), self.weight, self.padding_idx, sparse=self.sparse)
            if keep is not None:
                vectors = vectors * keep.unfold(1, n, 1).all(-1)[..., None]
            places = [n - 1] if causal else range(n)
            for place in places:
                total = total + F.pad(vectors, (0, 0, place, n - 1 - place)) / len(places)
        return total
