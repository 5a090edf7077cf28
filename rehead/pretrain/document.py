"""A part of a document predicts the words of the rest: what documents are about, learnt by a bag of n-grams in minutes.

Half of a document's n-grams (words are n-grams of one token) are read and pooled into one vector, which, at a fixed
length, is scored against candidates: all n-grams that any document of the step is to predict, and some drawn by
frequency to the power of 3/4. A softmax over the candidates is to give its share to the document's own other half, with
each candidate's score lowered by the logarithm of its chance to be one (sampled softmax).

Candidates are those of the whole step, and every random choice is a function of the seed, the document, the epoch and
the n-gram: cutting a step's batch into parts changes nothing. Every process prepares the whole step for that, which is
a quarter of a step's time, done by the thread that reads ahead.

Without layers, or past them, the n-grams to read are drawn one by one and summed straight from the tables. Layers read
a stretch of text instead, half of a document and at most `time` tokens, and the n-grams outside it are the targets.

Figures for each choice, and for what did not help, are in docs/experiments/pretraining.md.

Shapes: B documents, H hidden width, C candidates, N targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.config import ModelConfig
from rehead.model.model import Model
from rehead.pretrain.context import BuildContext
from rehead.pretrain.ngram_counts import choose_ngrams, count_rows, keep_probabilities
from rehead.text.order import random_bits, shard_slice, shuffled, step_indices
from rehead.text.random_streams import Stream
from rehead.text.store_subset import Store
from rehead.training.objective import Batch, Measures, Objective, Sums
from rehead.views.row_sums import index_rows, sum_rows
from rehead.views.rows import RowFinder, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

LOGIT_SCALE = 5.0
"Of a document's vector before it is scored; what a softmax calls inverse temperature."
MIN_NORM = 0.1
"Sums shorter than this are not brought to that length: of what is almost nothing, every change would be a turn."
SAMPLING_POWER = 0.75
SAMPLED_CANDIDATES = 1000
"Candidates drawn by frequency, beside the step's targets."
MAX_TARGETS = 128
"N-grams that a document is to predict in a step, on average at most."
MIN_DOCUMENTS = 64
"Documents in a step at least, where no layer reads them: 25 cost 0.8 points with 500 labels (one seed), and more time."
MAX_TOKENS = 4096
"Tokens of a document that take part; of a longer one, a stretch drawn by chance."


@dataclass
class DocumentStep:
    """A whole step: its documents, what is read of them, what they are to predict, and among what."""

    texts: list[Ints]
    reading: Rows
    targets: Rows
    stretches: Ints
    "Where each document's stretch begins and ends: (B, 2)."
    candidates: Ints
    "Rows of the output table, in ascending order: (C,)."
    chances: NDArray[np.float64]
    "Logarithm of the chance of each to be a candidate: (C,)."


class Document(Objective):
    """Half of a document predicts the n-grams of the other half."""

    name = "document"
    weights = MappingProxyType({"document": 1.0})

    def __init__(
        self,
        model: Model,
        train: Store,
        valid: Store,
        *,
        time: int,
        batch: int,
        seed: int,
        fresh: bool = False,
        layers: bool = True,
    ) -> None:
        """Read documents with about `batch` tokens in a step, but at least 64 where no layer reads them.

        Layers read at most `time` tokens of a document.
        `fresh`: the model has learnt nothing yet. Then its n-grams are chosen, and frequent tokens start small.
        `layers=False` reads past the layers, as if there were none, and leaves them as they are: new ones are the
        identity, so this trains what is under them at the cost of a bag.
        """
        super().__init__(model)
        config = model.config
        self.train_store, self.valid_store, self.time, self.seed = train, valid, time, seed
        # With no layers, and nothing added or dropped per position, order does not matter: a sum of rows is enough.
        through = layers and (config.nlayers or config.dropout)
        self.bag = not through and model.base.positions is None
        self.documents = round(batch / max(1.0, float(train.lengths.clip(max=MAX_TOKENS).mean())))
        "How many documents there are in a step."
        self.documents = max(self.documents, MIN_DOCUMENTS if self.bag else 1)
        self.output = new_output(config, seed)
        if fresh:
            choose_ngrams(model.base, train, seed)
        self.finder = RowFinder(model.base)
        counts = count_rows(train, model.base, seed)
        self.kept = keep_probabilities(counts, config.ntokens)
        self.wanted = np.where(counts > 0, self.kept, 0.0)  # what was never counted cannot be learnt
        kept = counts * self.kept
        self.as_target = kept / kept.sum()
        "How likely a target is to be each row: (rows,)."
        self.as_draw = kept**SAMPLING_POWER / (kept**SAMPLING_POWER).sum()
        self.cumulative = np.cumsum(self.as_draw)
        self.last: tuple[int, DocumentStep] | None = None
        if fresh:
            with torch.no_grad():
                _, tokens = model.base.row_tables()[0]
                tokens.weight.mul_(self._kept(0, config.ntokens)[:, None])

    def share_output(self, before: Document) -> None:
        """Continue with the output table that another objective of the run trains: a new one starts from noise."""
        self.output = before.output

    def steps_in_epoch(self) -> float:
        """How many steps show every document once."""
        return len(self.train_store) / self.documents

    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of a step's documents."""
        last = self.last
        if last is None or last[0] != step:
            epochs, positions = np.divmod(step_indices(step, self.documents), len(self.train_store))
            documents = shuffled(positions, len(self.train_store), self.seed, Stream.DOCUMENT_ORDER, epochs)
            last = self.last = (step, self._prepare(self.train_store, documents, epochs, self.seed, step))
        return self._part(last[1], shard_slice(self.documents, part, parts))

    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Give the held-out documents, every one once, with the same choices every time."""
        for begin in range(0, len(self.valid_store), self.documents):
            documents = np.arange(begin, min(begin + self.documents, len(self.valid_store)))
            prepared = self._prepare(
                self.valid_store, documents, np.zeros_like(documents), Stream.VALIDATION_DOCUMENTS, begin
            )
            yield self._part(prepared, shard_slice(len(documents), part, parts))

    def _prepare(self, store: Store, documents: Ints, epochs: Ints, seed: int, step: int) -> DocumentStep:
        keys = random_bits(seed, Stream.TARGETS, epochs, documents).astype(np.int64)  # one for each document
        texts = [
            _cut(np.asarray(store[int(each)], np.int64), int(key)) for each, key in zip(documents, keys, strict=True)
        ]
        stretches = self._stretches(texts, keys)
        grams = self.finder.find(texts)
        chance = random_bits(keys[grams.document], grams.start * 16 + grams.size)  # 64 bits for each n-gram
        if self.bag:
            inside = chance >> np.uint64(63) == 0
        else:
            begin, end = stretches[grams.document].T
            inside = (grams.start + grams.size > begin) & (grams.start < end)
        wanted = np.where(inside, 0.0, self.wanted[grams.row])  # chance to be a target
        wanted *= np.minimum(1.0, MAX_TARGETS / np.maximum(1.0, np.bincount(grams.document, wanted, len(texts))))[
            grams.document
        ]
        targets = grams.take((chance & np.uint64(2**32 - 1)).astype(np.float64) / 2.0**32 < wanted)
        draws = (
            random_bits(seed, Stream.CANDIDATES, step, np.arange(SAMPLED_CANDIDATES)).astype(np.float64)
            / 2.0**64
            * self.cumulative[-1]
        )
        drawn = np.searchsorted(self.cumulative, draws, side="right").clip(max=len(self.cumulative) - 1)
        candidates = np.unique(np.concatenate((targets.row, drawn)))
        often = self.as_target[candidates] * len(targets.row) + self.as_draw[candidates] * SAMPLED_CANDIDATES
        chances = np.log(-np.expm1(-np.maximum(often, 1e-12)))
        return DocumentStep(texts, grams.take(inside), targets, stretches, candidates, chances)

    def _stretches(self, texts: list[Ints], keys: Ints) -> Ints:
        """Choose what layers read of each document: half of it, `time` tokens at most, from a place drawn by chance."""
        lengths = np.array([len(each) for each in texts], np.int64)
        wide = np.minimum(-(-lengths // 2), self.time)
        begin = (random_bits(keys, Stream.DOCUMENT_STRETCH) % (lengths - wide + 1).astype(np.uint64)).astype(np.int64)
        return np.stack((begin, begin + wide), 1)

    def _part(self, step: DocumentStep, mine: slice) -> Batch:
        """Make the batch of some documents of a step."""
        size = mine.stop - mine.start
        targets = _of(step.targets, mine)
        tensors = {"candidates": step.candidates, "documents": targets.document}
        tensors["targets"] = np.searchsorted(step.candidates, targets.row)
        tensors["counts"] = np.bincount(targets.document, minlength=size)
        if self.bag:
            read = _of(step.reading, mine)
            tensors |= index_rows(read.row, read.document, size, self.model.config.ntokens)
        else:
            stretches = step.stretches[mine]
            wide = stretches[:, 1] - stretches[:, 0]
            ids = np.zeros((size, int(wide.max(initial=1))), np.int64)
            for row, text, (begin, end) in zip(ids, step.texts[mine], stretches, strict=True):
                row[: end - begin] = text[begin:end]
            tensors |= {"ids": ids, "lengths": wide}
        given = {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in tensors.items()}
        given["chances"] = torch.from_numpy(step.chances).float()
        return Batch(given, {"document": float(len(targets.row))}, sum(map(len, step.texts[mine])))

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum −log(share of the target among the candidates) over the targets (N,) of all documents."""
        pooled = F.normalize(self.pooled(tensors), eps=MIN_NORM) * LOGIT_SCALE  # (B, H)
        scores = pooled @ self.output(tensors["candidates"]).T - tensors["chances"]  # (B, C)
        right = scores[tensors["documents"], tensors["targets"]]  # (N,)
        return Sums({"document": (scores.logsumexp(1) * tensors["counts"]).sum() - right.sum()})

    def pooled(self, tensors: dict[str, Tensor]) -> Tensor:
        """Sum the hidden states of what is read: (B, H)."""
        base = self.model.base
        if self.bag:
            return sum_rows(base, tensors)
        ids, lengths = tensors["ids"], tensors["lengths"]
        if nothing := not len(ids):  # this part got no document: read a token that counts for nothing
            ids, lengths = ids.new_zeros(1, 1), lengths.new_ones(1)
        keep = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        hidden: Tensor = base(ids, keep, causal=False)  # (B, T, H)
        total = hidden.masked_fill(~keep[..., None], 0.0).sum(1)
        return total[:0] if nothing else total

    def report(self, measures: Measures) -> dict[str, float]:
        """Say the loss: −log of the share that a target gets among the candidates."""
        return {"loss": measures.mean("document")}

    def _tables(self) -> list[tuple[int, nn.Embedding]]:
        """The base's tables that a step touches in few rows, with their first row: layers read all tokens' rows."""
        return [(first, table) for first, table in self.model.base.row_tables() if first or self.bag]

    def row_tables(self) -> list[nn.Parameter]:
        """Name the output table and the n-grams; without layers, the tokens too."""
        tables = [self.output, *(table for _, table in self._tables())]
        return [each for table in tables for each in table.parameters()]

    def row_rates(self) -> dict[nn.Parameter, Tensor]:
        """Scale the learning rates of frequent rows down, as if their occurrences were subsampled.

        With smaller initial values, this is what subsampling in reading, and multiplying by the share kept afterwards,
        would do, without the randomness.
        """
        rates: dict[nn.Parameter, Tensor] = {}
        for first, table in self._tables():
            rates |= dict.fromkeys(table.parameters(), self._kept(first, first + table.num_embeddings))
        return rates

    def _kept(self, begin: int, end: int | None) -> Tensor:
        return torch.from_numpy(self.kept[begin:end]).float()

    def idle(self) -> list[nn.Parameter]:
        """Name what takes no part: the head, if there is one, and layers that are read past."""
        resting = [] if self.model.head is None else list(self.model.head.parameters())
        layers = self.model.base.parameters_by_depth()[:-1]
        return [*resting, *(each for layer in layers for each in layer)] if self.bag else resting


def build(context: BuildContext) -> Document:
    """Build the objective `document`, or `bag`, which skips the layers."""
    before = next((each for each in reversed(context.built) if isinstance(each, Document)), None)
    made = Document(
        context.model,
        context.prepared.train,
        context.prepared.valid,
        fresh=context.stage == 0 and before is None,
        layers=context.spec.trains_layers,
        **context.sizes,
    )
    made.name = context.spec.name
    if before is not None:
        made.share_output(before)
    return made


def new_output(config: ModelConfig, seed: int) -> nn.Embedding:
    """Make an output table, a row for each token and each n-gram, with small values drawn by the seed."""
    rows = config.ntokens + config.nbuckets
    chance = torch.Generator().manual_seed(int(random_bits(seed, Stream.OUTPUT_TABLE)[0]) >> 1)
    start = torch.empty(rows, config.nhid).normal_(std=0.01 * config.nhid**-0.5, generator=chance)
    return nn.Embedding(rows, config.nhid, _weight=start)


def _cut(text: Ints, key: int) -> Ints:
    """Take a stretch of a document that is too long."""
    if len(text) <= MAX_TOKENS:
        return text
    begin = int(random_bits(key, Stream.DOCUMENT_CUT)[0] % np.uint64(len(text) - MAX_TOKENS + 1))
    return text[begin : begin + MAX_TOKENS]


def _of(grams: Rows, mine: slice) -> Rows:
    """Give the n-grams of some documents, which are numbered from 0 again."""
    begin, end = np.searchsorted(grams.document, (mine.start, mine.stop))
    some = grams.take(slice(begin, end))
    return some._replace(document=some.document - mine.start)
