"""Contrastive adaptation of an encoder of texts: a text is pulled to its neighbours, and away from all others.

A text's neighbours are those whose vectors were nearest before training. Where the cosine is 0.8 or more, they mostly
have the same label, whatever the labels are; such a neighbour is its partner. A text without one is paired with a copy
of itself, from which some tokens are deleted. Within a group of texts, each must tell its partner from the others':

    loss = −log softmax(cosine(text, partners) / temperature)[own]

and the other way round. Texts that are alike, too, are no negatives. A step has several groups, and its parts
(processes, accumulation) are whole groups, so that the result does not depend on how a step is split.

What else was tried (copies under dropout as in SimCSE, neighbours alone, reconstruction as in TSDAE) is in
docs/experiments/adapting.md.

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
from rehead.errors import UserError
from rehead.model.config import NO_BASE
from rehead.model.model import Model
from rehead.pretrain.adapting.neighbours import encode_ids, nearest, sample_texts
from rehead.pretrain.adapting.network_objective import NetworkObjective
from rehead.pretrain.adapting.tokens import BroughtTokenizer
from rehead.text.order import random_bits, shard_slice, shuffled, step_indices
from rehead.text.random_streams import Stream
from rehead.text.store_subset import StoreSubset
from rehead.training.objective import Batch, Measures, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

LEAST = 64  # texts: of fewer, most of a group would be neighbours
MEMBERS = 32  # texts of a group
GROUPS = 2  # of a step, unless --batch says otherwise
NEIGHBOURS = 5  # of a text, one of which is its partner
ALIKE = 50  # nearest texts that are no negatives; in a small corpus an eighth of it
CLOSE = 0.8  # cosine from which a neighbour is a partner
DELETED = 0.3  # share of the tokens that the copy of a text loses
TEMPERATURE = 0.05


class Contrastive(NetworkObjective):
    """A text is nearer to its neighbours than to others."""

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
        length: int,
        quiet: bool = True,
    ) -> None:
        """Find the neighbours of all texts. The first `length` tokens of each are read, about `batch` in a step."""
        if len(train) < LEAST:
            raise UserError(
                f"The text has {len(train)} documents to learn from: contrastive needs at least {LEAST}. Give more "
                "text, or split it into documents by lines or blocks (--documents line, --documents block)."
            )
        super().__init__(Model(NO_BASE))
        self.encoder, self.seed = encoder, seed
        self.attach(encoder.model, weight_decay)
        inner = max(1, length - tokenizer.specials)

        def read(store: StoreSubset, document: int) -> list[int]:
            return [*tokenizer.prefix, *np.asarray(store[document][:inner]).tolist(), *tokenizer.suffix]

        chosen = sample_texts(train, length, encoder.work, seed)
        self.texts = [read(train, int(each)) for each in chosen]
        self.held_out_texts = [read(valid, each) for each in range(len(valid))]
        vectors = encode_ids(encoder, self.texts, quiet=quiet)
        alike = max(1, min(ALIKE, len(vectors) // 8))
        self.nearest, self.cosines = nearest(vectors, vectors, alike, own=True)
        found = nearest(encode_ids(encoder, self.held_out_texts, quiet=True), vectors, alike)
        self.held_out_nearest, self.held_out_cosines = found
        self.around = (len(tokenizer.prefix), len(tokenizer.suffix))
        self.members = min(MEMBERS, len(self.texts))
        group = 2 * self.members * float(np.mean([len(each) for each in self.texts]))
        self.groups = GROUPS if batch is None else max(1, round(batch / group))

    def steps_in_epoch(self) -> float:
        """Steps per epoch."""
        return len(self.texts) / (self.members * self.groups)

    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of a step's groups."""
        groups = step_indices(step, self.groups, part, parts)
        at = (groups[:, None] * self.members + np.arange(self.members)).reshape(-1)
        epochs, places = np.divmod(at, len(self.texts))
        texts = shuffled(places, len(self.texts), self.seed, Stream.CONTRAST_ORDER, epochs)
        count = min(NEIGHBOURS, self.nearest.shape[1])
        which = (random_bits(self.seed, Stream.CONTRAST_PARTNER, at) % np.uint64(count)).astype(np.int64)
        partners, known = self.nearest[texts, which], self.nearest[texts]
        close = self.cosines[texts, which] >= CLOSE
        alike = _is_among(np.where(close, partners, texts), known, self.members)
        alike |= _is_among(texts, known, self.members)
        alike |= _is_among(texts, texts[:, None], self.members)  # across the end of an epoch
        rows = [self.texts[each] for each in texts]
        return self._batch(rows, self._partners(rows, partners, close, at, self.seed), alike)

    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Yield the held-out texts with their nearest neighbours, in groups; an incomplete last group is left out."""
        members = min(self.members, len(self.held_out_texts))
        count = len(self.held_out_texts) // members
        for begin in range(0, count, self.groups):
            groups = np.arange(begin, min(begin + self.groups, count))
            groups = groups[shard_slice(len(groups), part, parts)]
            texts = (groups[:, None] * members + np.arange(members)).reshape(-1)
            known = self.held_out_nearest[texts]
            close = self.held_out_cosines[texts, 0] >= CLOSE
            alike = _is_among(np.where(close, known[:, 0], -1), known, members)
            rows = [self.held_out_texts[each] for each in texts]
            partners = self._partners(rows, known[:, 0], close, texts, Stream.VALIDATION_CONTRAST)
            yield self._batch(rows, partners, alike)

    def _partners(
        self, rows: list[list[int]], partners: Ints, close: NDArray[np.bool_], at: Ints, seed: int
    ) -> list[list[int]]:
        """Take the partner of each text where it is close, else a copy with tokens deleted: a function of its place."""
        return [
            self.texts[partner] if near else self._delete(row, int(place), seed)
            for row, partner, near, place in zip(rows, partners, close, at, strict=True)
        ]

    def _delete(self, row: list[int], place: int, seed: int) -> list[int]:
        """Delete some tokens, but neither special ones nor all."""
        bits = random_bits(seed, Stream.CONTRAST_DELETED, np.full(len(row), place), np.arange(len(row)))
        kept = (bits >> np.uint64(11)) * 2.0**-53 >= DELETED
        left, right = self.around
        if not kept[left : len(row) - right].any():
            return row
        kept[:left], kept[len(row) - right :] = True, True
        return [each for each, stays in zip(row, kept, strict=True) if stays]

    def _batch(self, texts: list[list[int]], partners: list[list[int]], alike: NDArray[np.bool_]) -> Batch:
        """Pad the texts, and after them their partners; `alike` (G, M, M) are no negatives."""
        rows = [*texts, *partners]
        longest = max((len(each) for each in rows), default=1) or 1
        ids = np.full((len(rows), longest), self.encoder.pad, np.int64)
        keep = np.zeros((len(rows), longest), np.bool_)
        for row, each in enumerate(rows):
            ids[row, : len(each)] = each
            keep[row, : max(1, len(each))] = True
        alike = (alike | alike.transpose(0, 2, 1)) & ~np.eye(alike.shape[1], dtype=np.bool_)
        tensors = {"ids": torch.from_numpy(ids), "keep": torch.from_numpy(keep), "alike": torch.from_numpy(alike)}
        return Batch(tensors, {"contrastive": len(texts)}, int(keep.sum()))

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the losses of all texts: ids and keep (2 · G · M, T), alike (G, M, M)."""
        alike = tensors["alike"]
        measured = {} if self.training else {"contrastive_hits": torch.zeros(())}
        if not len(alike):
            return Sums({"contrastive": self.empty()}, measured)
        vectors = F.normalize(self.encoder.vectors(tensors["ids"], tensors["keep"]), dim=1)
        texts, partners = vectors.view(2, *alike.shape[:2], -1)  # (G, M, W) each
        scores = (texts @ partners.transpose(1, 2) / TEMPERATURE).masked_fill(alike, float("-inf"))  # (G, M, M)
        own = torch.arange(alike.shape[1], device=alike.device).expand(alike.shape[:2]).flatten()
        ways = (scores.flatten(0, 1), scores.transpose(1, 2).flatten(0, 1))
        loss = torch.stack([F.cross_entropy(each.float(), own, reduction="sum") for each in ways]).mean()
        if measured:
            measured["contrastive_hits"] = (ways[0].argmax(1) == own).sum()
        return Sums({"contrastive": loss}, measured)

    def report(self, measures: Measures) -> dict[str, float]:
        """Report the loss, and how often a text's own partner was the nearest."""
        right = measures.metrics["contrastive_hits"] / max(1.0, measures.counts["contrastive"])
        return {"loss": measures.mean("contrastive"), "accuracy": right}


def _is_among(texts: Ints, known: Ints, members: int) -> NDArray[np.bool_]:
    """Tell, within each group, which texts (N,) are among those that are known to each other one (N, K): (G, M, M)."""
    groups, lists = texts.reshape(-1, members), known.reshape(-1, members, known.shape[1])
    found: NDArray[np.bool_] = (lists[:, :, None, :] == groups[:, None, :, None]).any(3)
    return found
