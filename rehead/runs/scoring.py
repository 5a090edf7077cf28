"""Texts in, class scores or vectors out, whatever their number and length: how a finished run reads.

A classifier's score is the sum over its views: features times weights, plus the bias. Nothing depends on the device or
on the values of weights: what is read stands in the run's config.

Shapes: N texts, H hidden width, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rehead.errors import ConfigError, DamagedError
from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.views import brought_views, make_view
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import neural_view
from rehead.views.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]

TEXTS = 4096  # tokenized at once
GROUP_CHARACTERS = 1 << 18  # scored at once where no view reads tokens of the base


def class_logits(run: Run, texts: Sequence[str]) -> Floats:
    """Give the classifier's scores of each text: (N, K)."""
    head = classifier_head(run.model)
    logits = np.zeros((len(texts), head.config.classes), np.float32)
    for begin in range(0, len(texts), TEXTS):
        some = texts[begin : begin + TEXTS]
        logits[begin : begin + len(some)] = score_texts(run.model, EncodedTexts(some, run.tokenizer))
    return logits


def class_probabilities(run: Run, texts: Sequence[str]) -> Floats:
    """Give the probability of each class for each text: (N, K). They sum to 1, unless the run is multilabel."""
    return probabilities(run.model, class_logits(run, texts))


def encode(run: Run, texts: Sequence[str]) -> EncodedTexts:
    """Tokenize texts now: the first half of scoring them, for a thread of its own."""
    encoded = EncodedTexts(texts, run.tokenizer)
    if not run.model.config.empty:
        _ = encoded.ids
    return encoded


def encoded_probabilities(run: Run, texts: EncodedTexts) -> Floats:
    """Give the probabilities of texts that are tokenized already: (N, K)."""
    return probabilities(run.model, score_texts(run.model, texts))


def probabilities(model: Model, logits: Floats) -> Floats:
    """Turn scores (N, K) into probabilities."""
    given: Floats = classifier_head(model).probabilities(torch.from_numpy(logits)).numpy()
    return given


def score_texts(model: Model, texts: EncodedTexts) -> Floats:
    """Score texts, a group at a time, so that views share what they find: (N, K)."""
    head, views = classifier_head(model), open_views(model)
    bias = head.bias.detach().cpu().numpy()
    needs_tokens = any(view.of_base for view in views)
    groups = texts.groups() if needs_tokens else texts.groups_of_characters(GROUP_CHARACTERS)
    with np.errstate(over="ignore", invalid="ignore"):
        found = [_score(head, views, group) + bias for group in groups]
    scores: Floats = np.concatenate(found).astype(np.float32)
    if not np.isfinite(scores).all():
        raise DamagedError("the scores of a text are no numbers: weights of the run are too large. Train it again.")
    return scores


def _score(head: ClassifierHead, views: Sequence[View], texts: EncodedTexts) -> NDArray[Any]:
    total = np.zeros((len(texts), head.config.classes), np.float32)
    for view in views:
        total = total + view.transform(view.read(texts)) @ view_weight(head, view).T
    return total


def view_weight(head: ClassifierHead, view: View) -> NDArray[np.float32]:
    """Give the weights of a view, a row for each class: (K, W)."""
    weight: NDArray[np.float32] = head.of(view.name).weight.detach().cpu().numpy()
    return weight.T if view.sparse else weight


def open_views(model: Model) -> list[View]:
    """Make the views that a classifier reads, with the statistics that its head has kept."""
    head = classifier_head(model)
    views = [make_view(model, config) for config in head.config.views]
    for view in views:
        view.load_statistics(dict(head.of(view.name).named_buffers()))
    return views


def classifier_head(model: Model) -> ClassifierHead:
    """Give the head of a classifier; refuse a model that is none."""
    if not isinstance(model.head, ClassifierHead):
        raise ConfigError("this model has no classifier head. Fine-tune it on labelled text first (rehead finetune).")
    return model.head


def document_vectors(run: Run, texts: Sequence[str]) -> Floats:
    """Give one vector for each text, as the base reads it: (N, H). A text without tokens gives zeros.

    Without a base of its own: as the first dense view of its head, or of brought bases, does.
    """
    view = _vector_view(run.model)
    vectors = np.zeros((len(texts), view.columns), np.float32)
    for begin in range(0, len(texts), TEXTS):
        some = texts[begin : begin + TEXTS]
        vectors[begin : begin + len(some)] = view.read(EncodedTexts(some, run.tokenizer)).matrix
    return vectors


def _vector_view(model: Model) -> View:
    """Make the view that gives documents vectors."""
    if not model.config.empty:
        return neural_view(model)
    views = open_views(model) if isinstance(model.head, ClassifierHead) else brought_views(model)
    if (found := next((view for view in views if not view.sparse), None)) is None:
        raise ConfigError("this run has no base, so texts have no vectors: its classifier reads words and characters.")
    return found
