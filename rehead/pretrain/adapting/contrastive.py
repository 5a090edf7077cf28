"""Contrastive adaptation of an encoder of texts: a text is to be nearer to itself than to others (SimCSE).

Each text is encoded twice, the second time with some of its tokens deleted, under other dropout. Within a group of
texts, the first vector must tell its own second one from those of the others:

    loss = −log softmax(cosine(first, seconds) / temperature)[own]

and the other way round. A step has several groups, and its parts (processes, accumulation) are whole groups, so that
the result does not depend on how a step is split. Copies of a text in a group are not counted as others. What else was
tried is in docs/experiments/adapting.md.

Shapes: G groups, M texts of a group, T tokens, W values of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rehead.bases.encoder import Encoder
from rehead.model.config import NO_BASE
from rehead.model.model import Model
from rehead.pretrain.adapting.network_objective import NetworkObjective
from rehead.pretrain.adapting.tokens import BroughtTokenizer
from rehead.text.order import random_bits, shard_slice, shuffled, step_indices
from rehead.text.random_streams import Stream
from rehead.text.store_subset import StoreSubset
from rehead.training.objective import Batch, Measures, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MEMBERS = 32  # texts of a group
GROUPS = 2  # of a step, unless --batch says otherwise
DELETED = 0.3  # share of the tokens of the second copy
TEMPERATURE = 0.05


class Contrastive(NetworkObjective):
    """A text is told from others by its vector."""

    name = "contrastive"
    weights = MappingProxyType({"contrastive": 1.0})

    def __init__(
        self,
        encoder: Encoder,
        tokenizer: BroughtTokenizer,
        train: StoreSubset,
        valid: StoreSubset,
        *,
        batch: int | None,
        seed: int,
        weight_decay: float,
        length: int | None,
    ) -> None:
        """Train on the first `length` tokens of each text, about `batch` tokens in a step."""
        super().__init__(Model(NO_BASE))
        self.encoder, self.tokenizer, self.seed = encoder, tokenizer, seed
        self.attach(encoder.model, weight_decay)
        self.stores = (train, valid)
        self.inner = None if length is None else max(1, length - tokenizer.specials)
        self.members = min(MEMBERS, len(train))
        lengths = np.minimum(train.lengths, self.inner or train.lengths.max())
        group = self.members * (float(lengths.mean()) + tokenizer.specials)
        self.groups = GROUPS if batch is None else max(1, round(batch / group))

    def steps_in_epoch(self) -> float:
        """Steps per epoch."""
        return len(self.stores[0]) / (self.members * self.groups)

    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of a step's groups."""
        groups = step_indices(step, self.groups, part, parts)
        at = (groups[:, None] * self.members + np.arange(self.members)).reshape(-1)
        epochs, places = np.divmod(at, len(self.stores[0]))
        documents = shuffled(places, len(self.stores[0]), self.seed, Stream.CONTRAST_ORDER, epochs)
        return self._batch(self.stores[0], documents, at, self.members, self.seed)

    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Yield the held-out texts in groups, a smaller one at the end left out if there are others."""
        valid = self.stores[1]
        members = min(self.members, len(valid))
        count = len(valid) // members
        for begin in range(0, count, self.groups):
            groups = np.arange(begin, min(begin + self.groups, count))
            groups = groups[shard_slice(len(groups), part, parts)]
            at = (groups[:, None] * members + np.arange(members)).reshape(-1)
            yield self._batch(valid, at, at, members, Stream.VALIDATION_CONTRAST)

    def _batch(self, store: StoreSubset, documents: Ints, at: Ints, members: int, seed: int) -> Batch:
        """Make the two copies of each text; random choices are a function of its place in the endless sequence."""
        texts = [np.asarray(store[int(each)][: self.inner], np.int64) for each in documents]
        copies = [self._delete(ids, int(place), seed) for ids, place in zip(texts, at, strict=True)]
        rows = [[*self.tokenizer.prefix, *ids.tolist(), *self.tokenizer.suffix] for ids in (*texts, *copies)]
        longest = max(1, *map(len, rows)) if rows else 1
        ids = np.full((len(rows), longest), self.encoder.pad, np.int64)
        keep = np.zeros((len(rows), longest), np.bool_)
        for row, each in enumerate(rows):
            ids[row, : len(each)] = each
            keep[row, : max(1, len(each))] = True
        known: dict[bytes, int] = {}
        same = np.array([known.setdefault(each.tobytes(), len(known)) for each in texts], np.int64)
        tensors = {
            "ids": torch.from_numpy(ids),
            "keep": torch.from_numpy(keep),
            "text": torch.from_numpy(same.reshape(-1, members)),
        }
        return Batch(tensors, {"contrastive": len(texts)}, sum(map(len, texts)))

    def _delete(self, ids: Ints, place: int, seed: int) -> Ints:
        """Delete some tokens, but not all."""
        bits = random_bits(seed, Stream.CONTRAST_DELETED, np.full(len(ids), place), np.arange(len(ids)))
        kept = ids[(bits >> np.uint64(11)) * 2.0**-53 >= DELETED]
        return kept if len(kept) else ids

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the losses of all texts: ids and keep (2 · G · M, T), text (G, M): the same number for copies."""
        text = tensors["text"]
        measured = {} if self.training else {"contrastive_hits": torch.zeros(())}
        if not len(text):
            return Sums({"contrastive": self.empty()}, measured)
        vectors = F.normalize(self.encoder.vectors(tensors["ids"], tensors["keep"]), dim=1)
        first, second = vectors.view(2, *text.shape, -1)  # (G, M, W) each
        scores = first @ second.transpose(1, 2) / TEMPERATURE  # (G, M, M)
        members = text.shape[1]
        others = ~torch.eye(members, dtype=torch.bool, device=text.device)
        scores = scores.masked_fill((text[:, :, None] == text[:, None, :]) & others, float("-inf"))
        own = torch.arange(members, device=text.device).expand(text.shape).flatten()
        ways = (scores.flatten(0, 1), scores.transpose(1, 2).flatten(0, 1))
        loss = torch.stack([F.cross_entropy(each.float(), own, reduction="sum") for each in ways]).mean()
        if measured:
            measured["contrastive_hits"] = (ways[0].argmax(1) == own).sum()
        return Sums({"contrastive": loss}, measured)

    def report(self, measures: Measures) -> dict[str, float]:
        """Report the loss, and how often a text's own copy was the nearest."""
        right = measures.metrics["contrastive_hits"] / max(1.0, measures.counts["contrastive"])
        return {"loss": measures.mean("contrastive"), "accuracy": right}
