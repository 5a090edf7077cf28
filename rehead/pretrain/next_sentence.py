"""Masked language modelling with next-sentence prediction, as BERT was first trained.

    <s> A … </s> B … </s>

A and B are cut out of one row of text, inside a document where that is possible; in half of the rows B is then
replaced by the same positions of another row, if there is another. Whether B followed A is predicted from the first
token, by a head of its own, which is not kept.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.model import Model
from rehead.pretrain.masked import Masked
from rehead.pretrain.masking import EVALUATED, Masking
from rehead.pretrain.row_objective import hits, tensor
from rehead.text.order import random_bits
from rehead.text.packed_rows import PackedRows
from rehead.text.random_streams import Stream
from rehead.text.store_subset import Store
from rehead.text.tokenizer import Tokenizer
from rehead.training.objective import Batch, Measures, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARKS = 3


class NextSentence(Masked):
    """Masked language modelling on pairs, plus next-sentence prediction."""

    name = "masked"
    weights = MappingProxyType({"masked": 1.0, "next": 1.0})

    def __init__(
        self,
        model: Model,
        train: Store,
        valid: Store,
        masking: Masking,
        tokenizer: Tokenizer,
        *,
        time: int,
        batch: int,
        seed: int,
    ) -> None:
        super().__init__(model, train, valid, masking, time=time, batch=batch, seed=seed)
        self.begin, self.end = tokenizer.eos if tokenizer.bos is None else tokenizer.bos, tokenizer.eos
        self.norm = nn.LayerNorm(model.config.nhid)
        self.answer = nn.Linear(model.config.nhid, 1)

    def row_length(self, time: int) -> int:
        """A row has three special tokens beside its text."""
        return time - MARKS

    def make(self, rows: PackedRows, at: NDArray[np.int64], seed: int, *, validating: bool = False) -> Batch:
        """Make pairs of the rows, half of them of two rows, and mask some tokens."""
        text = rows.at(at)
        ids, segments = text.ids[:, :-1], text.segments[:, :-1]
        time = ids.shape[1]
        # Where B begins: in the middle half of the row, at a place inside a document if there is one.
        places = np.arange(time)
        inside = np.zeros(ids.shape, bool)
        inside[:, 1:] = segments[:, 1:] == segments[:, :-1]
        middle = (places >= time // 4) & (places < time - time // 4) & (places > 0)
        wish = random_bits(seed, Stream.PAIR_CUT, at[:, None], places[None]) >> np.uint64(2)
        wish = wish | (inside & middle).astype(np.uint64) << np.uint64(63) | middle.astype(np.uint64) << np.uint64(62)
        cut = wish.argmax(1)  # (B,)
        follows = (random_bits(seed, Stream.NEXT_SENTENCE, at) & np.uint64(1)).astype(bool) | (len(rows) == 1)
        # Another place of the same epoch: any but this one.
        shift = 1 + (random_bits(seed, Stream.PAIR_OTHER, at) % np.uint64(max(len(rows) - 1, 1))).astype(np.int64)
        elsewhere = at // len(rows) * len(rows) + (at % len(rows) + shift) % len(rows)
        others = rows.at(elsewhere).ids[:, :-1]
        after = places >= cut[:, None]
        ids = np.where(after & ~follows[:, None], others, ids)
        # The first token, A, the mark, B, the mark: every token of B moves on by two, every one of A by one.
        pairs = np.full((len(ids), time + MARKS), self.end, np.int64)
        pairs[:, 0] = self.begin
        np.put_along_axis(pairs, places + 1 + after, ids, 1)
        masked = self.masking.apply(pairs, at, seed, EVALUATED if validating else None)
        tensors = {
            "ids": tensor(masked.ids),
            "places": tensor(masked.chosen.reshape(-1).nonzero()[0]),
            "targets": tensor(pairs[masked.chosen]),
            "follows": torch.from_numpy(follows.astype(np.float32)),
        }
        return Batch(tensors, {"masked": float(masked.chosen.sum()), "next": float(len(at))}, pairs.size)

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the losses of the masked tokens and of the answers: follows (B,)."""
        hidden = self.model.base(tensors["ids"], causal=False)
        sums = self.sums(hidden, tensors)
        answers = self.answer(self.norm(hidden[:, 0]))[:, 0]
        loss = F.binary_cross_entropy_with_logits(answers, tensors["follows"], reduction="sum")
        right = None if torch.is_grad_enabled() else ((answers > 0) == (tensors["follows"] > 0)).sum()
        return Sums(sums.losses | {"next": loss}, sums.metrics | hits("next", right))

    def report(self, measures: Measures) -> dict[str, float]:
        """Report both tasks; the loss is their sum."""
        masked, pairs = super().report(measures), measures.mean("next")
        right = measures.metrics["next_hits"] / max(measures.counts["next"], 1.0)
        both = {"masked_loss": masked["loss"], "next_loss": pairs, "next_accuracy": right}
        return masked | both | {"loss": masked["loss"] + pairs}
