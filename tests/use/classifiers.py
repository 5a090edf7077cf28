"""Small classifiers of every kind, with random weights: each way of reading, pooling and scoring."""

from __future__ import annotations

import functools
from typing import Any

import torch

from rehead.model.config import Classifier, preset
from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
from tests.finetune.sets import multilabel, reviews

# What a classifier may be made of: the preset, its head, and how it reads long documents.
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "distinct": ("bag", {"pooling": "distinct", "unit": True}, {}),
    "distinct, words": ("bag", {"pooling": "distinct", "unit": True, "words": True}, {}),
    "words in windows": ("bag", {"pooling": "distinct", "words": True}, {"longest": 7, "long": "windows"}),
    "bag": ("bag", {"pooling": "mean"}, {}),
    "bag, several labels": ("bag", {"pooling": "mean", "multilabel": True, "words": True}, {}),
    "bag, last": ("bag", {"pooling": "last"}, {"longest": 7, "long": "head+tail"}),
    "bag, head and tail": ("bag", {"pooling": "mean"}, {"longest": 7, "long": "head+tail"}),
    "identity layers": ("small", {"pooling": "distinct", "unit": True, "words": True}, {"long": "head+tail"}),
    "layers": ("small", {"pooling": "mean"}, {"longest": 9, "long": "windows"}),
    "layers, whole direction": ("small", {"pooling": "mean", "unit": True}, {"longest": 9, "long": "windows"}),
    "layers, words": ("small", {"pooling": "mean", "unit": True, "words": True}, {"longest": 9, "long": "tail"}),
    "layers, head": ("small", {"pooling": "mean"}, {"longest": 9, "long": "head"}),
    "lab, mean": ("lab", {"pooling": "mean", "causal": True}, {"longest": 9, "long": "head+tail"}),
    "lab": ("lab", {"pooling": "last", "causal": True}, {"longest": 9, "long": "windows"}),
    "learned positions": ("learned", {"pooling": "mean", "multilabel": True}, {}),
}
TEXTS = [
    "good film",
    "",
    "A great film, and a great story of two people: it was Superb, superb!",
    "awful",
    *reviews(4, 3).texts,
    *multilabel(3, 4).texts,
    " ".join(reviews(3, 5).texts),
]


@functools.cache
def tokenizer() -> Tokenizer:
    texts = [*reviews(60).texts, *multilabel(60).texts]
    return Tokenizer.train([Document(each, "x", 1) for each in texts], vocab=320, lowercase=True, quiet=True)


@functools.cache
def classifier(kind: str) -> Run:
    """Make a classifier of a kind, with random weights throughout."""
    name, head, reading = KINDS[kind]
    dials: dict[str, Any] = {"nhid": 16, "ntokens": tokenizer().vocab_size}
    if name == "learned":
        name, dials = "lab", {**dials, "positions": "learned", "maxlen": 300, "feedforward": "gelu"}
    if preset(name).nbuckets:
        dials |= {"nbuckets": 128}
    if preset(name).nlayers:
        dials |= {"nlayers": 2, "nhead": 2}
    torch.manual_seed(0)
    model = Model(preset(name, **dials), Classifier(classes=3, **head))
    assert isinstance(model.head, ClassifierHead)
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.normal_()
        if model.head.centre is not None:
            model.head.centre.normal_(std=0.1)
        if model.head.words is not None:
            model.head.words.idf.uniform_(0.5, 3.0)
        for layer in model.base.layers if kind != "identity layers" else []:
            layer.output.weight.normal_(std=0.2)
            layer.down.weight.normal_(std=0.2)
        if model.base.ngrams is not None:
            model.base.ngrams.choose_rows(torch.randint(0, 4, model.base.ngrams.rows.shape).float())
            model.base.ngrams.weight[1:].normal_(std=0.3)
    details: dict[str, Any] = {"reading": reading} if reading else {}
    if model.head.config.multilabel:
        details["thresholds"] = [0.3, 0.5, 0.7]
    return Run(model.eval(), tokenizer(), ["bad", "fair", "good"], details)
