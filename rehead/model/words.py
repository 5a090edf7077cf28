"""The exact words of a document as part of a classifier: what a bag of words knows, beside what a vector knows.

Every token and every n-gram that the base has a row for scores the classes by itself. A document's different rows count
once each, the rarer the more (idf), and their weights have the length one. Since tokens and n-grams are those of the
base, nothing but ids is needed to read them. Stacked on a document's vector they are worth half a point with 1,600
labels and more with many (docs/few-labels.md).

Shapes: B documents, L rows of the longest of them, R rows there are, K classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.base import Base
from rehead.model.config import ModelConfig
from rehead.model.ngrams import NO_ROW
from rehead.model.spread import rows_in

NOTHING = -1  # where a document has no more rows


class Words(nn.Module):
    """Scores of the rows, and how much each counts."""

    idf: Tensor
    "(R,)"

    def __init__(self, config: ModelConfig, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows_in(config), classes))
        self.register_buffer("idf", torch.ones(rows_in(config)))

    def forward(self, rows: Tensor) -> Tensor:
        """Rows (B, L), each once, NOTHING where there are no more → (B, K)."""
        there = rows != NOTHING
        rows = rows.clamp_min(0)
        share = self.idf[rows] * there  # (B, L)
        share = share / share.square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)
        return (share[:, None] @ F.embedding(rows, self.weight))[:, 0]


def different_rows(base: Base, ids: Tensor, keep: Tensor | None) -> Tensor:
    """Find the rows of each document's tokens and n-grams, each once: ids (B, T) → (B, L), the rest NOTHING."""
    real = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep
    found = [ids.long().masked_fill(~real, NOTHING)]
    if base.ngrams is not None:
        for n in range(2, min(base.ngrams.longest, ids.shape[1]) + 1):
            rows = base.ngrams.find_rows(ids, n)
            known = (rows != NO_ROW) & real.unfold(1, n, 1).all(-1)
            found.append((rows + base.config.ntokens).masked_fill(~known, NOTHING))
    rows = torch.cat(found, 1).sort(1).values
    again = F.pad(rows[:, 1:] == rows[:, :-1], (1, 0))
    return rows.masked_fill(again, NOTHING)


def mean_of_rows(base: Base, rows: Tensor) -> Tensor:
    """Average the embeddings of different rows, as `different_rows` gives them: (B, L) → (B, H)."""
    there = rows != NOTHING
    tokens = there & (rows < base.config.ntokens)
    vectors = F.embedding(rows.clamp(0, base.config.ntokens - 1), base.embedding.weight) * base.scale
    total = (vectors * tokens[..., None]).sum(1)
    if base.ngrams is not None:
        grams = (rows - base.config.ntokens).clamp_min(NO_ROW)
        total = total + (F.embedding(grams, base.ngrams.weight) * (there & ~tokens)[..., None]).sum(1)
    return total / there.sum(1, keepdim=True).clamp_min(1)
