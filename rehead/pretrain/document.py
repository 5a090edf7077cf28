"""A part of a document predicts the words of the rest: what documents are about, learnt by a bag of n-grams in minutes.

Half of a document's n-grams (words are n-grams of one token) are read and pooled into one vector, which, at a fixed
length, is scored against some candidates, and the n-grams of the other half are to get the highest scores (softmax).
Candidates are drawn anew for every step, by the n-grams' frequency to the power of 3/4, and shared by all documents:
what of a document's other half is not among them does not count in that step. So a step costs one matrix product
however many targets there are, and a document's loss depends on the document and the step alone: cutting a step's
batch into parts changes nothing.

Without layers the n-grams to read are drawn one by one and summed straight from the tables (`BagOfRows`). Layers read a
stretch of text instead, half of a document and at most `time` tokens, and the n-grams outside it are the targets.

Figures for each choice, and for what did not help, are in docs/pretraining.md.

Shapes: B documents, H hidden width, C candidates, N targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.model import Model
from rehead.model.ngrams import ngram_buckets
from rehead.text.order import number, part_of, places, shuffled
from rehead.text.store_part import Store
from rehead.training.objective import Batch, Measures, Objective, Sums
from rehead.training.row_sums import Readings, readings, row_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

LENGTH = 5.0
"Of a document's vector, before it is scored: what a softmax calls inverse temperature."
THIN = 1e-4
"An n-gram that makes up a larger share of the text than this is thinned out."
POWER = 0.75
CANDIDATES = 8192
LARGEST_SAMPLE = 30_000_000  # tokens that n-grams are counted in

# What a random choice is for, as part of its key.
ORDER, DRAW, CHOOSE, STRETCH, COUNT, OUTPUT, VALIDATION = 20, 21, 22, 23, 24, 25, 26


class Grams(NamedTuple):
    """The n-grams of some documents, one document after the other: four arrays of the same length."""

    rows: Ints
    "Which row of the output table: tokens first, then the buckets of n-grams."
    document: Ints
    "Which of the documents, from 0."
    start: Ints
    "Which token of the document is its first."
    size: Ints
    "How many tokens it has."

    def some(self, which: NDArray[np.bool_]) -> Grams:
        """Keep some of them."""
        return Grams(*(each[which] for each in self))


class Document(Objective):
    """Half of a document predicts the n-grams of the other half."""

    name = "document"
    weights = MappingProxyType({"document": 1.0})

    def __init__(self, model: Model, train: Store, valid: Store, *, time: int, batch: int, seed: int) -> None:
        """Read documents with about `batch` tokens in a step; layers read at most `time` tokens of a document."""
        super().__init__(model)
        config = model.config
        self.train_store, self.valid_store, self.time, self.seed = train, valid, time, seed
        self.documents = max(1, round(batch / max(1.0, float(train.lengths.mean()))))
        "How many documents there are in a step."
        # With no layers, and nothing added or dropped per position, order does not matter: a sum of rows is enough.
        self.bag = not config.nlayers and model.base.positions is None and not config.dropout
        rows = config.ntokens + config.nbuckets
        chance = torch.Generator().manual_seed(int(number(seed, OUTPUT)[0]) >> 1)
        start = torch.empty(rows, config.nhid).normal_(std=0.01 * config.nhid**-0.5, generator=chance)
        self.output = nn.Embedding(rows, config.nhid, _weight=start)
        counts = count_rows(train, config.ntokens, config.ngrams, config.nbuckets, seed)
        self.kept = kept_share(counts, config.ntokens)
        weights = (counts * self.kept) ** POWER
        self.cumulative = np.cumsum(weights) / weights.sum()

    def steps_in_epoch(self) -> float:
        """How many steps show every document once."""
        return len(self.train_store) / self.documents

    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of a step's documents."""
        at = places(step, self.documents, part, parts)
        epochs, positions = np.divmod(at, len(self.train_store))
        documents = shuffled(positions, len(self.train_store), self.seed, ORDER, epochs)
        return self._make(self.train_store, documents, epochs, self._candidates(self.seed, step))

    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Give the held-out documents, every one once, with the same choices every time."""
        for begin in range(0, len(self.valid_store), self.documents):
            at = np.arange(begin, min(begin + self.documents, len(self.valid_store)))
            documents = at[part_of(len(at), part, parts)]
            yield self._make(
                self.valid_store, documents, np.full_like(documents, VALIDATION), self._candidates(0, begin)
            )

    def _candidates(self, seed: int, step: int) -> Ints:
        """Draw the rows that a step's documents are scored against, in ascending order."""
        draws = number(seed, DRAW, step, np.arange(CANDIDATES)).astype(np.float64) / 2.0**64
        return np.unique(np.searchsorted(self.cumulative, draws, side="right").clip(max=len(self.cumulative) - 1))

    def _make(self, store: Store, documents: Ints, epochs: Ints, candidates: Ints) -> Batch:
        config = self.model.config
        texts = [np.asarray(store[int(each)], np.int64) for each in documents]
        grams = find_grams(texts, config.ntokens, config.ngrams, config.nbuckets)
        keys = number(self.seed, CHOOSE, epochs, documents).astype(np.int64) if len(documents) else documents
        chance = number(keys[grams.document], grams.start * 16 + grams.size)  # 64 bits for each n-gram
        tensors: dict[str, NDArray[np.int64]] = {}
        if self.bag:
            reading = chance >> np.uint64(63) == 0
            tensors |= bag_tensors(grams.some(reading), len(texts), config.ntokens)
        else:
            reading, tensors["ids"], tensors["lengths"] = self._stretches(texts, grams, keys)
        draws = (chance & np.uint64(2**32 - 1)).astype(np.float64) / 2.0**32
        targets = grams.some(~reading & (draws < self.kept[grams.rows]))
        place = np.searchsorted(candidates, targets.rows).clip(max=len(candidates) - 1)
        found = candidates[place] == targets.rows
        tensors |= {"candidates": candidates, "targets": place[found], "documents": targets.document[found]}
        tensors["counts"] = np.bincount(targets.document[found], minlength=len(texts))
        given = {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in tensors.items()}
        return Batch(given, {"document": float(found.sum())}, sum(map(len, texts)))

    def _stretches(self, texts: list[Ints], grams: Grams, keys: Ints) -> tuple[NDArray[np.bool_], Ints, Ints]:
        """Choose what layers read of each document: half of it, `time` tokens at most, from a place drawn by chance.

        Tell which n-grams lie at least partly in it, its ids (B, T), and how many of these are real (B,).
        """
        lengths = np.array([len(each) for each in texts], np.int64)
        wide = np.minimum(-(-lengths // 2), self.time)
        begin = (number(keys, STRETCH) % (lengths - wide + 1).astype(np.uint64)).astype(np.int64) if texts else wide
        ids = np.zeros((len(texts), int(wide.max(initial=1))), np.int64)
        for row, text, first, count in zip(ids, texts, begin, wide, strict=True):
            row[:count] = text[first : first + count]
        inside = (grams.start + grams.size > begin[grams.document]) & (grams.start < (begin + wide)[grams.document])
        return inside, ids, wide

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum −log(share of the target among the candidates) over the targets (N,) of all documents."""
        pooled = F.normalize(self._read_bag(tensors) if self.bag else self._read_text(tensors)) * LENGTH  # (B, H)
        scores = pooled @ self.output(tensors["candidates"]).T  # (B, C)
        right = scores[tensors["documents"], tensors["targets"]]  # (N,)
        return Sums({"document": (scores.logsumexp(1) * tensors["counts"]).sum() - right.sum()})

    def _read_bag(self, tensors: dict[str, Tensor]) -> Tensor:
        base = self.model.base
        total = row_sums(base.embedding, _readings(tensors, "tokens")) * base.scale
        if base.ngrams is not None:
            total = total + row_sums(base.ngrams, _readings(tensors, "ngrams"))
        return total

    def _read_text(self, tensors: dict[str, Tensor]) -> Tensor:
        ids, lengths = tensors["ids"], tensors["lengths"]
        if not len(ids):  # this part got no document: read a token that counts for nothing
            ids, lengths = ids.new_zeros(1, 1), lengths.new_ones(1)
        keep = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        hidden = self.model.base(ids, keep, causal=False)  # (B, T, H)
        pooled = hidden.masked_fill(~keep[..., None], 0.0).sum(1)
        return pooled[: len(tensors["counts"])]

    def report(self, measures: Measures) -> dict[str, float]:
        """Say the loss: −log of the share that a target gets among the candidates."""
        return {"loss": measures.mean("document")}

    def row_tables(self) -> list[nn.Parameter]:
        """Name the output table and the n-grams; without layers, the tokens too."""
        base = self.model.base
        tables = [self.output.weight]
        if base.ngrams is not None:
            tables.append(base.ngrams.weight)
        return [*tables, base.embedding.weight] if self.bag else tables

    def idle(self) -> list[nn.Parameter]:
        """Name the head, if there is one: it takes no part."""
        return [] if self.model.head is None else list(self.model.head.parameters())


def find_grams(texts: list[Ints], ntokens: int, longest: int, nbuckets: int) -> Grams:
    """Find all n-grams of 1 … `longest` tokens in some documents."""
    lengths = np.array([len(each) for each in texts], np.int64)
    ids = np.concatenate(texts) if texts else np.zeros(0, np.int64)
    document = np.repeat(np.arange(len(texts)), lengths)
    start = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found = [Grams(ids, document, start, np.ones_like(ids))]
    for n in range(2, min(longest, len(ids)) + 1):
        rows = ngram_buckets(torch.from_numpy(ids)[None], n, nbuckets)[0].numpy() + ntokens
        count = len(rows)
        whole = start[:count] + n <= lengths[document[:count]]
        found.append(Grams(rows, document[:count], start[:count], np.full(count, n)).some(whole))
    joined = Grams(*(np.concatenate(each) for each in zip(*found, strict=True)))
    return joined.some(np.argsort(joined.document, kind="stable"))


def bag_tensors(grams: Grams, size: int, ntokens: int) -> dict[str, Ints]:
    """Prepare what `row_sums` takes for both tables, that of the tokens and that of the n-grams."""
    tokens, longer = grams.some(grams.size == 1), grams.some(grams.size > 1)
    parts = {"tokens": (tokens.rows, tokens.document), "ngrams": (longer.rows - ntokens, longer.document)}
    return {
        f"{table}.{name}": each
        for table, (rows, documents) in parts.items()
        for name, each in readings(rows, documents, size).items()
    }


def count_rows(store: Store, ntokens: int, longest: int, nbuckets: int, seed: int) -> NDArray[np.float64]:
    """Count how often every row occurs in the documents, or in a sample of a very large corpus."""
    counts = np.zeros(ntokens + nbuckets, np.int64)
    documents = len(store)
    sampled = min(documents, max(1, int(documents * LARGEST_SAMPLE / max(1, int(store.offsets[-1])))))
    chosen = (
        np.sort(shuffled(np.arange(sampled), documents, seed, COUNT)) if sampled < documents else np.arange(documents)
    )
    for begin in range(0, sampled, 1000):
        texts = [np.asarray(store[int(each)], np.int64) for each in chosen[begin : begin + 1000]]
        counts += np.bincount(find_grams(texts, ntokens, longest, nbuckets).rows, minlength=len(counts))
    return counts.astype(np.float64)


def kept_share(counts: NDArray[np.float64], ntokens: int) -> NDArray[np.float64]:
    """Say which share of each row's occurrences is kept, so that frequent n-grams do not drown the others."""
    share = counts / max(1.0, counts[:ntokens].sum())
    ratio = THIN / np.maximum(share, 1e-30)
    return np.minimum(1.0, np.sqrt(ratio) + ratio)


def _readings(tensors: dict[str, Tensor], table: str) -> Readings:
    return Readings(*(tensors[f"{table}.{name}"] for name in Readings._fields))
