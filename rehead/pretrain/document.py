"""The document objective: one half of a document predicts the n-grams of the other half, by sampled softmax.

It trains n-gram vectors (a token is an n-gram of length one) to capture topics, within minutes. The input n-grams of
a document are summed to a vector, which is normalised, scaled and scored against candidates: the targets of all
documents in its group, and n-grams sampled by their frequency to the power of 3/4. The loss is the cross-entropy of the
document's targets, with each candidate's score corrected by the logarithm of its probability of being a candidate.

The groups of a step have 64 documents or more; a step of film reviews (20,480 tokens) is one group. Groups, and the
candidates that they share, belong to the whole step, and every random choice is a function of the seed, the document,
the epoch and the n-gram, so splitting a step's batch into parts changes nothing. Every process prepares the whole step
for that, which takes a quarter of a step's time, in the prefetching thread.

A step of short texts has at most 192 documents, unless a batch size is given, and is read together with the steps
around it, so that its cost follows its tokens (bench/short_texts.py).

Without layers, or bypassing them, inputs are sampled n-gram by n-gram and summed directly from the tables. Layers read
a contiguous span of text instead, half of a document and at most `time` tokens; the n-grams outside it are the targets.

Figures for each choice, and for what did not help, are in docs/experiments/pretraining.md.

Shapes: B documents, H hidden width, C candidates, N targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from rehead.views.rows import RowFinder, Rows, index_rows, sum_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

LOGIT_SCALE = 5.0
"Norm of a document's vector before it is scored: the inverse temperature of the softmax."
SHORT_LOGIT_SCALE, SHORT_TEXT = 3.0, 80
"""The same for texts with fewer tokens than this on average: less can be known from half of ten words. With and without
layers, because the stages of a chain share the output table."""
MIN_NORM = 0.1
"Smallest norm to divide by: the direction of an almost zero sum would change with every update."
SAMPLING_POWER = 0.75
SAMPLED_CANDIDATES = 1000
"Maximum candidates sampled by frequency for a group of documents, in addition to its targets."
TOKENS_PER_CANDIDATE = 16
"A bag of short texts samples fewer: one for this many tokens of the group, about a tenth of its targets."
GROUP_DOCUMENTS = 64
"""Documents that share candidates, at least. Scores are documents × candidates, and candidates grow with documents: if
all of a step shared them, the cost of a token would grow with the documents per step."""
MAX_TARGETS = 128
"Maximum targets per document in a step, on average."
MIN_DOCUMENTS = 64
"Minimum documents per step without layers: 25 cost 0.8 points of accuracy with 500 labels (one seed), and more time."
DEFAULT_DOCUMENTS = 192
"Maximum documents per step where no batch size is given: of short texts, 20,480 tokens would make few, slow steps."
MAX_TOKENS = 4096
"Maximum tokens of a document; of a longer one, a random span is used."
BLOCK_TOKENS = 20_480
"""Tokens that are read at once: small steps are prepared several at a time. Of a step of 64 texts of ten words, the
fixed cost of some hundred numpy calls is most of the time."""


@dataclass
class Documents:
    """Some documents, with what is read of them and what is predicted."""

    texts: list[Ints]
    inputs: Rows
    targets: Rows
    spans: Ints
    "Start and end of the span of each document that the layers read: (B, 2)."

    def take(self, which: slice) -> Documents:
        """Select a slice of the documents."""
        return Documents(
            self.texts[which], _select(self.inputs, which), _select(self.targets, which), self.spans[which]
        )


@dataclass
class DocumentStep(Documents):
    """The data of a whole step: documents, inputs, targets and candidates."""

    candidates: list[Ints]
    "For each group of documents, rows of the output table, in ascending order: (C,)."
    log_probabilities: list[NDArray[np.float64]]
    "Logarithm of each candidate's probability of being one, for the correction of sampled softmax: (C,)."


class Document(Objective):
    """One half of a document predicts the n-grams of the other half."""

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
        max_documents: int | None = None,
    ) -> None:
        """Use about `batch` tokens per step, but at least 64 documents where no layers are used.

        `max_documents` limits the documents per step, for short texts.
        Layers read at most `time` tokens of a document.
        `fresh`: the model is untrained. Choose its n-grams, and scale the vectors of frequent tokens down.
        `layers=False` bypasses positions and layers and does not train them: this trains the embeddings under them at
        the cost of a bag of n-grams.
        """
        super().__init__(model)
        config = model.config
        self.train_store, self.valid_store, self.time, self.seed = train, valid, time, seed
        # Without layers, positions and dropout, word order does not matter: sum the rows directly.
        self.bag = not (layers and (config.nlayers or config.dropout or config.positions in ("sinusoidal", "learned")))
        self.mean_length = max(1.0, float(train.lengths.clip(max=MAX_TOKENS).mean()))
        wanted = round(batch / self.mean_length)
        self.documents = max(min(wanted, max_documents or wanted), MIN_DOCUMENTS if self.bag else 1)
        "Number of documents per step."
        in_group = self.documents / len(_groups(self.documents)) * self.mean_length
        fewer = max(1, int(in_group / TOKENS_PER_CANDIDATE)) if self.bag else SAMPLED_CANDIDATES
        self.sampled = min(SAMPLED_CANDIDATES, fewer)
        "Number of candidates sampled for a group."
        self.logit_scale = SHORT_LOGIT_SCALE if self.mean_length < SHORT_TEXT else LOGIT_SCALE
        self.output = new_output(config, seed)
        if fresh:
            choose_ngrams(model.base, train, seed)
        self.finder = RowFinder(model.base)
        counts = count_rows(train, model.base, seed)
        self.token_counts = counts[: config.ntokens]
        self.keep = keep_probabilities(counts, config.ntokens)
        self.wanted = np.where(counts > 0, self.keep, 0.0)  # n-grams that do not occur are no targets
        kept = counts * self.keep
        self.target_distribution = kept / kept.sum()
        "Distribution of the targets over rows: (rows,)."
        self.sampling_distribution = kept**SAMPLING_POWER / (kept**SAMPLING_POWER).sum()
        self.cumulative = np.cumsum(self.sampling_distribution)
        self.block: tuple[int, Documents] | None = None
        "The documents of the last block of steps that was read, by its number."
        self.last: tuple[int, DocumentStep] | None = None
        if fresh:
            with torch.no_grad():
                _, tokens = model.base.row_tables()[0]
                tokens.weight.mul_(self._keep(0, config.ntokens)[:, None])

    def share_output(self, before: Document) -> None:
        """Continue with the output table of an earlier objective of the run, instead of a random one."""
        self.output = before.output

    def conclude(self) -> None:
        """Bring embeddings that were trained past the layers to the size that layers and head expect."""
        if self.bag and self.model.base.settle_tokens():
            self.model.warm_up_head(torch.from_numpy(self.token_counts))

    def steps_in_epoch(self) -> float:
        """Steps per epoch."""
        return len(self.train_store) / self.documents

    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of a step's documents."""
        last = self.last
        if last is None or last[0] != step:
            last = self.last = (step, self._add_candidates(self._documents_of(step), self.seed, step))
        return self._part(last[1], shard_slice(self.documents, part, parts))

    def _documents_of(self, step: int) -> Documents:
        """Read the documents of a step, with those of the steps around it where steps are small."""
        steps = max(1, int(BLOCK_TOKENS / (self.documents * self.mean_length)))
        block, place = divmod(step, steps)
        if self.block is None or self.block[0] != block:
            indices = step_indices(block, steps * self.documents)
            epochs, positions = np.divmod(indices, len(self.train_store))
            documents = shuffled(positions, len(self.train_store), self.seed, Stream.DOCUMENT_ORDER, epochs)
            self.block = (block, self._read_documents(self.train_store, documents, epochs, self.seed))
        return self.block[1].take(slice(place * self.documents, (place + 1) * self.documents))

    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Yield the held-out documents, each once, with the same random choices every time."""
        for begin in range(0, len(self.valid_store), self.documents):
            documents = np.arange(begin, min(begin + self.documents, len(self.valid_store)))
            prepared = self._prepare(
                self.valid_store, documents, np.zeros_like(documents), Stream.VALIDATION_DOCUMENTS, begin
            )
            yield self._part(prepared, shard_slice(len(documents), part, parts))

    def _prepare(self, store: Store, documents: Ints, epochs: Ints, seed: int, step: int) -> DocumentStep:
        return self._add_candidates(self._read_documents(store, documents, epochs, seed), seed, step)

    def _read_documents(self, store: Store, documents: Ints, epochs: Ints, seed: int) -> Documents:
        """Read documents, and choose inputs and targets: each document by itself, whichever are read with it."""
        keys = random_bits(seed, Stream.TARGETS, epochs, documents).astype(np.int64)  # one per document
        texts = [
            _random_span(np.asarray(store[int(each)], np.int64), int(key))
            for each, key in zip(documents, keys, strict=True)
        ]
        spans = self._spans(texts, keys)
        ngrams = self.finder.find(texts)
        bits = random_bits(keys[ngrams.document], ngrams.start * 16 + ngrams.size)  # 64 bits per n-gram
        if self.bag:
            inside = bits >> np.uint64(63) == 0
        else:
            begin, end = spans[ngrams.document].T
            inside = (ngrams.start + ngrams.size > begin) & (ngrams.start < end)
        wanted = np.where(inside, 0.0, self.wanted[ngrams.row])  # probability of being a target
        wanted *= np.minimum(1.0, MAX_TARGETS / np.maximum(1.0, np.bincount(ngrams.document, wanted, len(texts))))[
            ngrams.document
        ]
        targets = ngrams.take((bits & np.uint64(2**32 - 1)).astype(np.float64) / 2.0**32 < wanted)
        return Documents(texts, ngrams.take(inside), targets, spans)

    def _add_candidates(self, read: Documents, seed: int, step: int) -> DocumentStep:
        """Draw the candidates of a step, which the documents of a group share."""
        found = [
            self._candidates(_select(read.targets, group).row, seed, step, place)
            for place, group in enumerate(_groups(len(read.texts)))
        ]
        candidates, log_probabilities = (list(each) for each in zip(*found, strict=True))
        return DocumentStep(read.texts, read.inputs, read.targets, read.spans, candidates, log_probabilities)

    def _candidates(self, targets: Ints, seed: int, step: int, group: int) -> tuple[Ints, NDArray[np.float64]]:
        """Give the candidates of a group, and the logarithm of each one's probability of being one."""
        draws = np.arange(group * self.sampled, (group + 1) * self.sampled)
        chances = random_bits(seed, Stream.CANDIDATES, step, draws).astype(np.float64) / 2.0**64 * self.cumulative[-1]
        drawn = np.searchsorted(self.cumulative, chances, side="right").clip(max=len(self.cumulative) - 1)
        candidates = np.sort(np.concatenate((targets, drawn)))
        candidates = candidates[np.diff(candidates, prepend=-1) != 0]  # half the time of `np.unique`
        expected = self.target_distribution[candidates] * len(targets)
        expected += self.sampling_distribution[candidates] * self.sampled
        return candidates, np.log(-np.expm1(-np.maximum(expected, 1e-12)))

    def _spans(self, texts: list[Ints], keys: Ints) -> Ints:
        """Choose the span of each document that the layers read: half of it, at most `time` tokens, at random."""
        lengths = np.array([len(each) for each in texts], np.int64)
        wide = np.minimum(-(-lengths // 2), self.time)
        begin = (random_bits(keys, Stream.DOCUMENT_STRETCH) % (lengths - wide + 1).astype(np.uint64)).astype(np.int64)
        return np.stack((begin, begin + wide), 1)

    def _part(self, step: DocumentStep, which: slice) -> Batch:
        """Create the batch for a slice of the step's documents."""
        size = which.stop - which.start
        targets = _select(step.targets, which)
        tensors = {"counts": np.bincount(targets.document, minlength=size)}
        # The groups that have documents in this part; a part without documents has the first group's candidates.
        bounds = [slice(max(each.start, which.start), min(each.stop, which.stop)) for each in _groups(len(step.texts))]
        groups = [place for place, each in enumerate(bounds) if each.start < each.stop] or [0]
        parts = [_select(step.targets, bounds[place]) for place in groups]
        candidates = [step.candidates[place] for place in groups]
        found = [np.searchsorted(some, part.row) for some, part in zip(candidates, parts, strict=True)]
        tensors["candidates"] = np.concatenate(candidates)
        tensors["documents"] = np.concatenate([part.document for part in parts])  # counted within the group
        tensors["targets"] = np.concatenate(found)
        lengths = [max(0, bounds[place].stop - bounds[place].start) for place in groups]
        tensors["groups"] = np.array([lengths, [*map(len, candidates)], [*map(len, found)]], np.int64)
        if self.bag:
            read = _select(step.inputs, which)
            tensors |= index_rows(read.row, read.document, size, self.model.config.ntokens)
        else:
            spans = step.spans[which]
            wide = spans[:, 1] - spans[:, 0]
            ids = np.zeros((size, int(wide.max(initial=1))), np.int64)
            for row, text, (begin, end) in zip(ids, step.texts[which], spans, strict=True):
                row[: end - begin] = text[begin:end]
            tensors |= {"ids": ids, "lengths": wide}
        given = {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in tensors.items()}
        log_probabilities = np.concatenate([step.log_probabilities[place] for place in groups])
        given["log_probabilities"] = torch.from_numpy(log_probabilities).float()
        return Batch(given, {"document": float(len(targets.row))}, sum(map(len, step.texts[which])))

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the cross-entropy of the targets (N,) over the candidates, group by group."""
        pooled = F.normalize(self.pooled(tensors), eps=MIN_NORM) * self.logit_scale  # (B, H)
        output = self.output(tensors["candidates"])  # (C, H)
        documents, candidates, targets = tensors["groups"].tolist()  # how many each group has
        groups = zip(
            _split(pooled, documents),
            _split(tensors["counts"], documents),
            _split(output, candidates),
            _split(tensors["log_probabilities"], candidates),
            _split(tensors["documents"], targets),
            _split(tensors["targets"], targets),
            strict=True,
        )
        return Sums({"document": torch.stack([_loss(*group) for group in groups]).sum()})

    def pooled(self, tensors: dict[str, Tensor]) -> Tensor:
        """Sum the hidden states of the inputs: (B, H)."""
        base = self.model.base
        if self.bag:
            return sum_rows(base, tensors)
        ids, lengths = tensors["ids"], tensors["lengths"]
        if empty := not len(ids):  # this part has no document: read a dummy token
            ids, lengths = ids.new_zeros(1, 1), lengths.new_ones(1)
        keep = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        hidden: Tensor = base(ids, keep, causal=False)  # (B, T, H)
        total = hidden.masked_fill(~keep[..., None], 0.0).sum(1)
        return total[:0] if empty else total

    def report(self, measures: Measures) -> dict[str, float]:
        """Report the loss: the mean cross-entropy of a target over the candidates."""
        return {"loss": measures.mean("document")}

    def _tables(self) -> list[tuple[int, nn.Embedding]]:
        """The base's tables of which a step touches few rows, with their first row; with layers, not the tokens'."""
        return [(first, table) for first, table in self.model.base.row_tables() if first or self.bag]

    def row_tables(self) -> list[nn.Parameter]:
        """List the output table and the n-gram table; without layers, the token table too."""
        tables = [self.output, *(table for _, table in self._tables())]
        return [each for table in tables for each in table.parameters()]

    def row_rates(self) -> dict[nn.Parameter, Tensor]:
        """Scale the learning rates of frequent rows down, as if their occurrences were subsampled.

        Together with smaller initial values, this is the expected effect of subsampling frequent words in the inputs
        and scaling their vectors by the keep probability afterwards, without the noise.
        """
        rates: dict[nn.Parameter, Tensor] = {}
        for first, table in self._tables():
            rates |= dict.fromkeys(table.parameters(), self._keep(first, first + table.num_embeddings))
        return rates

    def _keep(self, begin: int, end: int | None) -> Tensor:
        return torch.from_numpy(self.keep[begin:end]).float()

    def idle(self) -> list[nn.Parameter]:
        """List the parameters not trained: the head, if there is one, and layers that are bypassed."""
        resting = [] if self.model.head is None else list(self.model.head.parameters())
        layers = self.model.base.parameters_by_depth()[:-1]
        return [*resting, *(each for layer in layers for each in layer)] if self.bag else resting


def build(context: BuildContext) -> Document:
    """Build the objective `document`, or `bag`, which bypasses the layers."""
    before = next((each for each in reversed(context.built) if isinstance(each, Document)), None)
    made = Document(
        context.model,
        context.prepared.train,
        context.prepared.valid,
        fresh=context.stage == 0 and before is None,
        layers=context.spec.trains_layers,
        max_documents=DEFAULT_DOCUMENTS if context.options.batch is None else None,
        **context.sizes,
    )
    made.name = context.spec.name
    if before is not None:
        made.share_output(before)
    return made


def new_output(config: ModelConfig, seed: int) -> nn.Embedding:
    """Create the output table, with a row for each token and each n-gram, initialised with small random values."""
    rows = config.ntokens + config.nbuckets
    generator = torch.Generator().manual_seed(int(random_bits(seed, Stream.OUTPUT_TABLE)[0]) >> 1)
    start = torch.empty(rows, config.nhid).normal_(std=0.01 * config.nhid**-0.5, generator=generator)
    return nn.Embedding(rows, config.nhid, _weight=start)


def _loss(
    pooled: Tensor, counts: Tensor, output: Tensor, log_probabilities: Tensor, documents: Tensor, targets: Tensor
) -> Tensor:
    """Sum the cross-entropy of the targets (N,) of the documents (B,) of a group, over its candidates (C,)."""
    scores = pooled @ output.T - log_probabilities  # (B, C)
    return (scores.logsumexp(1) * counts).sum() - scores[documents, targets].sum()


def _groups(documents: int) -> list[slice]:
    """Cut the documents of a step into groups that share candidates."""
    count = max(1, documents // GROUP_DOCUMENTS)
    return [shard_slice(documents, place, count) for place in range(count)]


def _split(tensor: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    """Split a tensor; a single part is the tensor itself, whose gradient need not be copied."""
    return torch.split(tensor, sizes) if len(sizes) > 1 else (tensor,)


def _random_span(text: Ints, key: int) -> Ints:
    """Take a random span of a document that is too long."""
    if len(text) <= MAX_TOKENS:
        return text
    begin = int(random_bits(key, Stream.DOCUMENT_CUT)[0] % np.uint64(len(text) - MAX_TOKENS + 1))
    return text[begin : begin + MAX_TOKENS]


def _select(ngrams: Rows, which: slice) -> Rows:
    """Select the n-grams of a slice of the documents, renumbered from 0."""
    begin, end = np.searchsorted(ngrams.document, (which.start, which.stop))
    some = ngrams.take(slice(begin, end))
    return some._replace(document=some.document - which.start)
