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
from torch import Tensor, nn

from rehead.errors import ConfigError
from rehead.model.base import Base
from rehead.model.config import Classifier
from rehead.model.grams import DistinctRows, find_distinct, find_grams, rows_of
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
CACHED = 4096  # tokens that layers read at once on a CPU: what is made of them stays in its cache (a fifth faster)


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
    classes = _check_classifier(bare).classes
    if reading is None:
        reading = Reading.of(model) if isinstance(model, Run) else Reading()
    logits = np.zeros((len(texts), classes), np.float32)
    with _at_rest(bare):
        for begin, ids in _encoded(known, texts):
            logits[begin : begin + len(ids)] = score_ids(bare, ids, reading, batch_tokens)
    return logits


def class_probabilities(run: Run, texts: Sequence[str], *, batch_tokens: int = 16_384) -> Floats:
    """Give the probability of each class for each text: (N, K). They sum to 1, unless the run is multi-label."""
    return _probabilities(run, class_logits(run, None, texts, batch_tokens=batch_tokens))


def class_probabilities_of_ids(run: Run, ids: Sequence[Ints], *, batch_tokens: int = 16_384) -> Floats:
    """Give the same for texts that are encoded already, by `encode_texts`."""
    model, _ = _parts(run, None)
    _check_classifier(model)
    with _at_rest(model):
        return _probabilities(run, score_ids(model, ids, Reading.of(run), batch_tokens))


def encode_texts(run: Run, texts: Sequence[str]) -> list[Ints]:
    """Encode texts as a run reads them."""
    return encode(_parts(run, None)[1], texts)


def _probabilities(run: Run, scores: Floats) -> Floats:
    assert isinstance(run.model.head, ClassifierHead)  # noqa: S101 (whoever scored has checked)
    given: Floats = run.model.head.probabilities(torch.from_numpy(scores)).numpy()
    return given


def score_ids(model: Model, ids: Sequence[Ints], reading: Reading, batch_tokens: int = 16_384) -> Floats:
    """Score documents that are encoded already: (N, K). The model is to be in evaluation mode."""
    assert isinstance(model.head, ClassifierHead)  # noqa: S101 (for the type checker)
    with torch.no_grad():
        if model.head.config.pooling == "distinct" and _short(model, ids, reading):
            return _scores_by_rows(model, ids, batch_tokens)
        if reads_whole(model, reading):
            longest = reading.limit(model.base)
            vectors = torch.from_numpy(vectors_of_ids(model, ids, longest=longest, batch_tokens=batch_tokens))
            scores: Floats = model.head.score(vectors.to(_device(model))).float().cpu().numpy()
        else:
            pieces, parts = cut(ids, reading.limit(model.base), reading.long)
            vectors = torch.from_numpy(pooled_parts(model, parts, batch_tokens)).to(_device(model))
            scores = _averaged(model.head.score(vectors).float().cpu().numpy(), pieces, len(ids))  # (P, K) → (N, K)
        if (words := model.head.words) is not None:  # of the whole document
            found = [_word_scores(words, distinct_rows(model.base, group)) for group in _in_order(ids, batch_tokens)]
            scores = scores + torch.cat(found).float().cpu().numpy()
    return scores


def _short(model: Model, ids: Sequence[Ints], reading: Reading) -> bool:
    """Tell whether every document is read as one piece."""
    longest = max(map(len, ids), default=0)
    return reading.longest is None and (
        longest <= min(LONGEST, model.config.maxlen) or longest <= reading.limit(model.base)
    )


def _scores_by_rows(model: Model, ids: Sequence[Ints], budget: int) -> Floats:
    """Score documents that nothing but their different tokens and n-grams is asked of, which are found once: (N, K)."""
    head = model.head
    assert isinstance(head, ClassifierHead)  # noqa: S101 (for the type checker)
    scores = np.zeros((len(ids), head.config.classes), np.float32)
    begin = 0
    for group in _in_order(ids, budget):
        there = distinct_rows(model.base, group)
        found = head.score(_mean_of_rows(model.base, there)).float()
        if head.words is not None:
            found = found + _word_scores(head.words, there)
        scores[begin : begin + len(group)] = found.cpu().numpy()
        begin += len(group)
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
    """Pool documents, or pieces of them, as the classifier does: (P, H).

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
                    grams = find_grams(group, model.config, rows_of(model.base))
                    found = _bag_sums(model.base, grams.rows, grams.document, len(group))
                    found = found / counts[:, None]
                vectors[begin : begin + len(group)] = found.cpu().numpy()
                begin += len(group)
        else:
            for members, rows, keep in _padded(parts, batch_tokens, _device(model)):
                hidden = _hidden(model.base, rows, keep, causal=model.reads_causally)
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


def _check_classifier(model: Model) -> Classifier:
    if not isinstance(model.head, ClassifierHead) or not isinstance(model.head_config, Classifier):
        raise ConfigError("this model has no classifier head. Fine-tune it on labelled text first (rehead finetune).")
    return model.head_config


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
        self.busy = _in_training(self.model)
        for each in self.busy:
            each.training = False
        self.no_grad.__enter__()

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401 (what Python gives)
        self.no_grad.__exit__(*error)
        for each in self.busy:
            each.training = True


def _in_training(module: nn.Module) -> list[nn.Module]:
    """List what is in training mode. To name all parts, as `modules()` does, would take longer than a short text."""
    below = [each for child in module.children() for each in _in_training(child)]
    return [module, *below] if module.training else below


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
    return _mean_of_rows(base, distinct_rows(base, parts))


def distinct_rows(base: Base, parts: Sequence[Ints]) -> DistinctRows:
    """Find the tokens and n-grams of documents that the base has rows for, each once in a document."""
    return find_distinct(parts, base.config, rows_of(base))


def _mean_of_rows(base: Base, there: DistinctRows) -> Tensor:
    """Average the embeddings of each document's rows: (documents, H)."""
    total = _bag_sums(base, there.rows, there.document, there.documents)
    counts = np.maximum(np.bincount(there.document, minlength=there.documents), 1)
    return total / torch.from_numpy(counts).to(total)[:, None]


def _word_scores(words: Words, there: DistinctRows) -> Tensor:
    """Score documents by their different tokens and n-grams: (documents, K)."""
    share = words.idf.cpu().numpy()[there.rows]
    length = np.sqrt(np.bincount(there.document, weights=share**2, minlength=there.documents))
    share = share / np.maximum(length, 1e-12)[there.document]
    rows, starts = _bags(there.rows, there.document, there.documents, words.weight.device)
    each = torch.from_numpy(share.astype(np.float32)).to(words.weight.device)
    return F.embedding_bag(rows, words.weight, starts, mode="sum", per_sample_weights=each)


def _bags(rows: Ints, document: Ints, documents: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Give rows and where each document's begin, as `embedding_bag` takes them."""
    starts = np.searchsorted(document, np.arange(documents))
    return torch.from_numpy(rows).to(device), torch.from_numpy(starts).to(device)


def _bag_sums(base: Base, rows: Ints, document: Ints, documents: int) -> Tensor:
    """Add up the embeddings of each document's tokens and n-grams, one document after the other: (documents, H)."""
    tokens = rows < base.config.ntokens
    total = torch.zeros(documents, base.config.nhid, device=base.embedding.weight.device)
    tables = [(base.embedding.weight, tokens, 0, base.scale)]
    if base.ngrams is not None:
        tables.append((base.ngrams.weight, ~tokens, base.config.ntokens, 1.0))
    for weight, which, first, scale in tables:
        some, starts = _bags(rows[which] - first, document[which], documents, total.device)
        total += F.embedding_bag(some, weight, starts, mode="sum") * scale
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
        hidden = _hidden(model.base, rows, keep, causal=model.config.causal)  # (pieces, T, H)
        total = hidden.masked_fill(~keep[..., None], 0.0).sum(1).float()
        np.add.at(sums, documents[members], total.cpu().numpy())
    return sums


def _hidden(base: Base, rows: Tensor, keep: Tensor, *, causal: bool) -> Tensor:
    """Read rows that have their padding behind them, as `_padded` makes them: (n, T) → (n, T, H).

    Under the square mask no token sees what comes behind it, and in rows of one length there is no padding: no mask is
    needed then. What is made of the padding nobody looks at.
    """
    needless = causal or bool(keep.all())
    hidden: Tensor = base(rows, None if needless else keep, causal=causal)
    return hidden


def _padded(parts: Sequence[Ints], budget: int, device: torch.device) -> Iterator[tuple[Ints, Tensor, Tensor]]:
    """Put pieces of about the same length together: which ones, their ids (n, T), and where these are real (n, T)."""
    budget = min(budget, CACHED) if device.type == "cpu" else budget
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


def learn_spread(model: Model, ids: Sequence[Ints], most: int = WHOLE) -> None:
    """Have a base keep how these documents lie in its space: `rehead.model.spread`.

    Layers read the first of them alone, of about `most` tokens.
    """
    frequency = np.zeros(rows_in(model.config), np.int64)
    for group in _in_order(ids, 1 << 18):
        frequency += np.bincount(distinct_rows(model.base, group).rows, minlength=len(frequency))
    base = model.base
    if is_bag(base):
        base.spread.learn(vectors_of_ids(model, ids), frequency, len(ids))
        return
    enough = int(np.searchsorted(np.cumsum([len(each) for each in ids]), most)) + 1
    base.spread.learn(vectors_of_ids(model, ids[:enough]), frequency, len(ids))
    if base.positions is None:
        with _at_rest(model):
            past = [mean_of_distinct(base, group).cpu().numpy() for group in _in_order(ids, 1 << 14)]
        base.spread.learn_past(np.concatenate(past))
