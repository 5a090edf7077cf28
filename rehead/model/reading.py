"""Texts in, vectors or class scores out, whatever their number and length: how a finished model reads documents.

Documents are read in groups of about the same length, so that little is padding, and come out in the order in which
they went in. Where nothing but embeddings is read (no layers, or layers that are still the identity), a document is the
sum of its rows, whole, and no hidden state is ever made. Layers read at most `longest` tokens at once.

Shapes: N texts, H hidden width, K classes, P pieces of documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rehead.errors import ConfigError
from rehead.model.base import Base
from rehead.model.config import Classifier
from rehead.model.grams import Grams, each_once, find_grams, rows_of
from rehead.model.heads import ClassifierHead
from rehead.model.layers import Layer
from rehead.model.model import Model
from rehead.model.run import Run
from rehead.model.spread import rows_in
from rehead.model.words import Words
from rehead.text.long_documents import LongRule, Pieces, cut_long
from rehead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]

LONGEST = 256  # tokens that layers read at once, unless told otherwise
WHOLE = 2**40  # longer than any document
TEXTS = 4096  # encoded at once


@dataclass(frozen=True)
class Reading:
    """How a classifier reads documents: a run keeps it in `details["reading"]`."""

    longest: int | None = None
    "Tokens read at once; None: the whole document where there are no layers, else 256."
    long: LongRule = "windows"
    "What is read of a longer document; the scores of several windows are averaged."

    def __post_init__(self) -> None:
        if self.longest is not None and (type(self.longest) is not int or self.longest < 1):
            raise ConfigError(f"longest={self.longest!r}: must be a whole number of tokens, or None.")
        if self.long not in get_args(LongRule):
            raise ConfigError(f"long={self.long!r} is not known. Choose one of: {', '.join(get_args(LongRule))}.")

    @classmethod
    def of(cls, run: Run) -> Reading:
        """Find how a run's classifier reads; one that does not say reads as is usual."""
        said = run.details.get("reading")
        if not isinstance(said, dict):
            return cls()
        try:
            return cls(**said)
        except TypeError:
            raise ConfigError(f"details: reading is {said!r}. Expected {', '.join(asdict(cls()))}.") from None

    def limit(self, base: Base) -> int:
        """How many tokens this base reads at once."""
        if self.longest is None:
            return WHOLE if is_bag(base) else min(LONGEST, base.config.maxlen)
        return self.longest


def is_bag(base: Base) -> bool:
    """Tell whether reading is adding up embeddings: no positions are added, and every layer is the identity.

    A layer in training is not taken for the identity: it is to learn.
    """
    return base.positions is None and all(isinstance(layer, Layer) and layer.passes() for layer in base.layers)


def document_vectors(
    model: Run | Model,
    tokenizer: Tokenizer | None,
    texts: Sequence[str],
    *,
    longest: int | None = None,
    batch_tokens: int = 16_384,
) -> Floats:
    """Give one vector for each text: (N, H). A text without tokens gives zeros.

    Where nothing but embeddings is read, it is the mean over the text's different tokens and n-grams. Otherwise it is
    the mean hidden state over all its tokens; layers read stretches of at most `longest` of them (256 if left out).
    """
    bare, tokenizer = _parts(model, tokenizer)
    vectors = np.zeros((len(texts), bare.config.nhid), np.float32)
    for begin, ids in _encoded(tokenizer, texts):
        vectors[begin : begin + len(ids)] = vectors_of_ids(bare, ids, longest=longest, batch_tokens=batch_tokens)
    return vectors


def vectors_of_ids(
    model: Model, ids: Sequence[Ints], *, longest: int | None = None, batch_tokens: int = 16_384
) -> Floats:
    """Give one vector for each document that is encoded already, as `document_vectors` does: (N, H)."""
    base = model.base
    with _at_rest(model):
        if not len(ids):
            return np.zeros((0, model.config.nhid), np.float32)
        if is_bag(base):
            found = [mean_of_distinct(base, group) for group in _in_order(ids, batch_tokens)]
            return np.concatenate([each.cpu().numpy() for each in found])
        sums = _summed(model, ids, _stretches(ids, Reading(longest).limit(base)), batch_tokens)
        counts = np.array([max(1, len(each)) for each in ids], np.float32)
        vectors: Floats = sums / counts[:, None]
        return vectors


def class_logits(
    model: Run | Model,
    tokenizer: Tokenizer | None,
    texts: Sequence[str],
    *,
    reading: Reading | None = None,
    batch_tokens: int = 16_384,
) -> Floats:
    """Give the classifier's scores of each text: (N, K). `reading` is that of the run, unless given."""
    bare, known = _parts(model, tokenizer)
    if not isinstance(bare.head, ClassifierHead) or not isinstance(bare.head_config, Classifier):
        raise ConfigError("this model has no classifier head. Fine-tune it on labelled text first (rehead finetune).")
    if reading is None:
        reading = Reading.of(model) if isinstance(model, Run) else Reading()
    logits = np.zeros((len(texts), bare.head_config.classes), np.float32)
    with _at_rest(bare):
        for begin, ids in _encoded(known, texts):
            logits[begin : begin + len(ids)] = score_ids(bare, ids, reading, batch_tokens)
    return logits


def class_probabilities(run: Run, texts: Sequence[str], *, batch_tokens: int = 16_384) -> Floats:
    """Give the probability of each class for each text: (N, K). They sum to 1, unless the run is multi-label."""
    scores = class_logits(run, None, texts, batch_tokens=batch_tokens)
    assert isinstance(run.model.head, ClassifierHead)  # noqa: S101 (class_logits has checked)
    given: Floats = run.model.head.probabilities(torch.from_numpy(scores)).numpy()
    return given


def score_ids(model: Model, ids: Sequence[Ints], reading: Reading, batch_tokens: int = 16_384) -> Floats:
    """Score documents that are encoded already: (N, K). The model is to be in evaluation mode."""
    assert isinstance(model.head, ClassifierHead)  # noqa: S101 (for the type checker)
    with torch.no_grad():
        if reads_whole(model, reading):
            longest = reading.limit(model.base)
            vectors = torch.from_numpy(vectors_of_ids(model, ids, longest=longest, batch_tokens=batch_tokens))
            scores: Floats = model.head.score(vectors.to(_device(model))).float().cpu().numpy()
        else:
            pieces, parts = cut(ids, reading.limit(model.base), reading.long)
            vectors = torch.from_numpy(pooled_parts(model, parts, batch_tokens)).to(_device(model))
            scores = _averaged(model.head.score(vectors).float().cpu().numpy(), pieces, len(ids))  # (P, K) → (N, K)
        if model.head.words is not None:  # of the whole document
            scores = scores + _word_scores(model.base, model.head.words, ids, batch_tokens)
    return scores


def reads_whole(model: Model, reading: Reading) -> bool:
    """Tell whether a document that layers read in windows is scored by the direction of its whole vector."""
    head = model.head_config
    return (
        isinstance(head, Classifier)
        and (head.unit, head.pooling, reading.long) == (True, "mean", "windows")
        and head.causal == model.config.causal
        and not is_bag(model.base)
    )


def cut(ids: Sequence[Ints], longest: int, long: LongRule) -> tuple[Pieces, list[Ints]]:
    """Cut documents as a rule says: which pieces there are, and the pieces themselves."""
    pieces = cut_long(np.array([len(each) for each in ids], np.int64), longest, long)
    return pieces, [pieces.read(place, ids[int(document)]) for place, document in enumerate(pieces.document)]


def pooled_parts(model: Model, parts: Sequence[Ints], batch_tokens: int = 16_384) -> Floats:
    """Pool documents, or pieces of them, as the classifier does: (P, H), or twice as wide for max+mean.

    The model is to be in evaluation mode.
    """
    assert isinstance(model.head, ClassifierHead)  # noqa: S101 (for the type checker)
    vectors = np.zeros((len(parts), model.head.linear.in_features), np.float32)
    with torch.no_grad():
        if model.head.config.pooling == "distinct" or (is_bag(model.base) and model.head.config.pooling == "mean"):
            begin = 0
            for group in _in_order(parts, batch_tokens):
                if model.head.config.pooling == "distinct":
                    found = mean_of_distinct(model.base, group)
                else:
                    counts = torch.tensor([max(1, len(each)) for each in group], device=_device(model))
                    found = _bag_sums(model.base, find_grams(group, model.config, rows_of(model.base)), len(group))
                    found = found / counts[:, None]
                vectors[begin : begin + len(group)] = found.cpu().numpy()
                begin += len(group)
        else:
            for members, rows, keep in _padded(parts, batch_tokens, _device(model)):
                hidden = model.base(rows, keep, causal=model.reads_causally)
                vectors[members] = model.head.pool(hidden, keep).float().cpu().numpy()
    return vectors


def _averaged(scores: Floats, pieces: Pieces, documents: int) -> Floats:
    """Average the scores of a document's pieces: (P, K) → (N, K)."""
    if len(scores) == documents:
        return scores
    sums = np.zeros((documents, scores.shape[1]), np.float32)
    np.add.at(sums, pieces.document, scores)
    counts = np.bincount(pieces.document, minlength=documents)
    averaged: Floats = (sums / counts[:, None]).astype(np.float32)
    return averaged


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Ints]:
    """Encode texts, as `score_ids` and batches take them."""
    return [np.array(each, np.int64) for each in tokenizer.encode_batch(list(texts))]


def _parts(model: Run | Model, tokenizer: Tokenizer | None) -> tuple[Model, Tokenizer]:
    if isinstance(model, Run):
        tokenizer = model.tokenizer if tokenizer is None else tokenizer
        model = model.model
    if tokenizer is None:
        raise ConfigError("there is no tokenizer to read texts with. Give the one that the model was trained with.")
    return model, tokenizer


class _at_rest:  # noqa: N801 (reads as a phrase)
    """Put a model into evaluation mode, without gradients; afterwards it is in the mode that it was in."""

    def __init__(self, model: Model) -> None:
        self.model, self.no_grad = model, torch.no_grad()

    def __enter__(self) -> None:
        self.modes = [(each, each.training) for each in self.model.modules()]
        self.model.eval()
        self.no_grad.__enter__()

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401 (what Python gives)
        self.no_grad.__exit__(*error)
        for each, training in self.modes:
            each.training = training


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[tuple[int, list[Ints]]]:
    for begin in range(0, len(texts), TEXTS):
        yield begin, encode(tokenizer, texts[begin : begin + TEXTS])


def _device(model: Model) -> torch.device:
    return model.base.embedding.weight.device


def _in_order(parts: Sequence[Ints], budget: int) -> Iterator[Sequence[Ints]]:
    """Cut a row of documents into groups of about so many tokens."""
    begin, tokens = 0, 0
    for place, each in enumerate(parts):
        if place > begin and tokens + len(each) > budget:
            yield parts[begin:place]
            begin, tokens = place, 0
        tokens += len(each)
    yield parts[begin:]


def mean_of_distinct(base: Base, parts: Sequence[Ints]) -> Tensor:
    """Average the embeddings of each document's different tokens and n-grams: (documents, H)."""
    grams = distinct_grams(base, parts)
    counts = np.maximum(np.bincount(grams.document, minlength=len(parts)), 1)
    total = _bag_sums(base, grams, len(parts))
    return total / torch.from_numpy(counts).to(total)[:, None]


def distinct_grams(base: Base, parts: Sequence[Ints]) -> Grams:
    """Find the tokens and n-grams of documents that the base has rows for, each once in a document."""
    return each_once(find_grams(parts, base.config, rows_of(base)), base.config)


def _word_scores(base: Base, words: Words, ids: Sequence[Ints], budget: int) -> Floats:
    """Score documents by their different tokens and n-grams: (N, K)."""
    idf, found = words.idf.cpu().numpy(), []
    for group in _in_order(ids, budget):
        grams = distinct_grams(base, group)
        share = idf[grams.rows]
        length = np.sqrt(np.bincount(grams.document, weights=share**2, minlength=len(group)))
        share = share / np.maximum(length, 1e-12)[grams.document]
        rows, starts = _bags(grams, len(group), words.weight.device)
        each = torch.from_numpy(share.astype(np.float32)).to(words.weight.device)
        found.append(F.embedding_bag(rows, words.weight, starts, mode="sum", per_sample_weights=each))
    scores: Floats = torch.cat(found).float().cpu().numpy()
    return scores


def _bags(grams: Grams, documents: int, device: torch.device, first: int = 0) -> tuple[Tensor, Tensor]:
    """Give rows and where each document's begin, as `embedding_bag` takes them; `first` is row 0 of the table."""
    starts = np.searchsorted(grams.document, np.arange(documents))
    return torch.from_numpy(grams.rows - first).to(device), torch.from_numpy(starts).to(device)


def _bag_sums(base: Base, grams: Grams, documents: int) -> Tensor:
    """Add up the embeddings of each document's tokens and n-grams: (documents, H)."""
    total = torch.zeros(documents, base.config.nhid, device=base.embedding.weight.device)
    tables = [(base.embedding.weight, grams.size == 1, 0, base.scale)]
    if base.ngrams is not None:
        tables.append((base.ngrams.weight, grams.size > 1, base.config.ntokens, 1.0))
    for weight, which, first, scale in tables:
        rows, starts = _bags(grams.some(which), documents, total.device, first)
        total += F.embedding_bag(rows, weight, starts, mode="sum") * scale
    return total


def _stretches(ids: Sequence[Ints], longest: int) -> list[tuple[int, int, int]]:
    """Cut documents into stretches that do not overlap: document, begin, end."""
    return [
        (document, begin, min(begin + longest, len(each)))
        for document, each in enumerate(ids)
        for begin in range(0, len(each), longest)
    ]


def _summed(model: Model, ids: Sequence[Ints], stretches: list[tuple[int, int, int]], budget: int) -> Floats:
    """Add up the hidden states of each document's stretches: (N, H)."""
    sums = np.zeros((len(ids), model.config.nhid), np.float32)
    parts = [ids[document][begin:end] for document, begin, end in stretches]
    documents = np.array([document for document, _, _ in stretches], np.int64)
    for members, rows, keep in _padded(parts, budget, _device(model)) if parts else ():
        hidden = model.base(rows, keep, causal=model.config.causal)  # (pieces, T, H)
        total = hidden.masked_fill(~keep[..., None], 0.0).sum(1).float()
        np.add.at(sums, documents[members], total.cpu().numpy())
    return sums


def _padded(parts: Sequence[Ints], budget: int, device: torch.device) -> Iterator[tuple[Ints, Tensor, Tensor]]:
    """Put pieces of about the same length together: which ones, their ids (n, T), and where these are real (n, T)."""
    lengths = np.array([len(each) for each in parts], np.int64)
    order = np.argsort(lengths, kind="stable")
    begin = 0
    while begin < len(order):
        # As many as fit when padded to the longest of them, which is the last.
        sizes = np.arange(1, len(order) - begin + 1) * np.maximum(lengths[order[begin:]], 1)
        count = max(1, int(np.searchsorted(sizes, budget, side="right")))
        members = order[begin : begin + count]
        rows = np.zeros((len(members), max(1, int(lengths[members].max()))), np.int64)
        for row, place in zip(rows, members, strict=True):
            row[: lengths[place]] = parts[place]
        keep = np.arange(rows.shape[1]) < lengths[members][:, None]
        yield members, torch.from_numpy(rows).to(device), torch.from_numpy(keep).to(device)
        begin += count


def learn_spread(model: Model, ids: Sequence[Ints]) -> None:
    """Have a base keep how these documents lie in its space: `rehead.model.spread`."""
    frequency = np.zeros(rows_in(model.config), np.int64)
    for group in _in_order(ids, 1 << 18):
        frequency += np.bincount(distinct_grams(model.base, group).rows, minlength=len(frequency))
    model.base.spread.learn(vectors_of_ids(model, ids), frequency)
