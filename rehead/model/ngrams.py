"""Embeddings of n-grams: what a bag of words lacks and a layer has to learn, looked up instead.

"not good" gets a vector of its own. N-grams are hashed into one table of `nbuckets` rows, so that no list of them
has to be kept beside the model. N-grams that meet in a row share a vector: with half as many frequent ones as rows,
about a third of them do.

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


def ngram_buckets(ids: Tensor, n: int, nbuckets: int) -> Tensor:
    """Hash every run of n tokens: ids (B, T) → (B, T − n + 1), the run that begins at each place."""
    runs = ids.long().unfold(1, n, 1)  # (B, T − n + 1, n)
    state = torch.full_like(runs[..., 0], n)
    for place in range(n):
        state = (state * FACTOR + runs[..., place] + 1) % PRIME
    return state % nbuckets


class NGrams(nn.Embedding):
    """Sum of the embeddings of the n-grams (2 … `longest` tokens) that a token is part of.

    It is an `nn.Embedding`, so that `sparse` says whether its gradient holds the touched rows alone.
    """

    def __init__(self, longest: int, nbuckets: int, nhid: int) -> None:
        super().__init__(nbuckets, nhid, _weight=torch.empty(nbuckets, nhid))
        self.longest = longest

    def forward(  # type: ignore[override] # more to know than which rows
        self, ids: Tensor, keep: Tensor | None, segments: Tensor | None, causal: bool
    ) -> Tensor:
        """ids (B, T) → (B, T, H). Runs over padding or over a document's end do not count."""
        total = torch.zeros(*ids.shape, self.weight.shape[1], device=ids.device, dtype=self.weight.dtype)
        for n in range(2, min(self.longest, ids.shape[1]) + 1):
            vectors = F.embedding(
                ngram_buckets(ids, n, len(self.weight)), self.weight, sparse=self.sparse
            )  # (B, T − n + 1, H)
            if (whole := _whole(keep, segments, n)) is not None:
                vectors = vectors * whole[..., None]
            places = [n - 1] if causal else range(n)
            for place in places:
                total = total + F.pad(vectors, (0, 0, place, n - 1 - place)) / len(places)
        return total


def _whole(keep: Tensor | None, segments: Tensor | None, n: int) -> Tensor | None:
    """Tell which runs of n hold real tokens of one document only: (B, T − n + 1)."""
    whole = None if keep is None else keep.unfold(1, n, 1).all(-1)
    if segments is None:
        return whole
    runs = segments.unfold(1, n, 1)
    one = (runs == runs[..., :1]).all(-1)
    return one if whole is None else whole & one
