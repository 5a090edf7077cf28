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

from rehead.errors import ConfigError
from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.views import make_view
from rehead.views.bag import BagOptions, BagView
from rehead.views.encoded import EncodedTexts
from rehead.views.layers import LayersOptions, LayersView
from rehead.views.rows import RowFinder, row_count
from rehead.views.view import DenseView, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]

TEXTS = 4096  # tokenized at once
SAMPLE_TOKENS = 1 << 18  # whose rows are counted at once


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
    found = [_score(head, views, group) + bias for group in texts.groups()]
    scores: Floats = np.concatenate(found).astype(np.float32)
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


def neural_view(model: Model, name: str | None = None, *, unit: bool = True, **options: Any) -> DenseView:  # noqa: ANN401
    """Make a view of a base's vectors, by default of what its config says it reads.

    For a frozen base it is the direction (`unit`) of the mean hidden state or n-gram vector, unless options say more.
    """
    if (model.config.reads if name is None else name) == "bag":
        return BagView(model, BagOptions(**options), unit=unit)
    return LayersView(model, LayersOptions(**{"causal": model.config.causal, **options}), unit=unit)


def document_vectors(run: Run, texts: Sequence[str]) -> Floats:
    """Give one vector for each text, as the base reads it: (N, H). A text without tokens gives zeros."""
    view = neural_view(run.model)
    vectors = np.zeros((len(texts), view.columns), np.float32)
    for begin in range(0, len(texts), TEXTS):
        some = texts[begin : begin + TEXTS]
        vectors[begin : begin + len(some)] = view.read(EncodedTexts(some, run.tokenizer)).matrix
    return vectors


def learn_statistics(model: Model, ids: Sequence[Ints], layers_tokens: int | None = None) -> None:
    """Have a base keep the statistics of these documents, for every view that it was trained to give.

    Layers read only the first of the documents, of about `layers_tokens` tokens.
    """
    finder = RowFinder(model.base)
    frequency = np.zeros(row_count(model.base), np.int64)
    for group in EncodedTexts(ids=ids).groups(SAMPLE_TOKENS):
        frequency += np.bincount(group.distinct_rows(finder).row, minlength=len(frequency))
    model.base.learn_frequency(frequency, len(ids))
    for name in model.config.views if model.config.reads == "layers" else ("bag",):
        some = ids
        if name == "layers" and layers_tokens is not None:
            some = ids[: int(np.searchsorted(np.cumsum([len(each) for each in ids]), layers_tokens)) + 1]
        model.base.learn_vectors(name, neural_view(model, name).read(EncodedTexts(ids=some)).matrix)
