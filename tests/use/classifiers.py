"""Small classifiers of every kind, with random weights: each way of reading, pooling and scoring."""

from __future__ import annotations

import functools
from typing import Any

import torch

from rehead.model.config import Classifier, ModelConfig, ViewConfig, preset
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.runs.scoring import classifier_head
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
from tests.finetune.sets import multilabel, reviews

BAG: dict[str, Any] = {"name": "bag"}
LAYERS: dict[str, Any] = {"name": "layers", "pooling": "mean", "causal": False}
TOKENS: dict[str, Any] = {"name": "tokens"}
SUMS: dict[str, Any] = {**BAG, "distinct": False}

# What a classifier may be made of: the preset, its views with their options, and what else the head has.
KINDS: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any]]] = {
    "distinct": ("bag", [{**BAG, "unit": True}], {}),
    "distinct, tokens": ("bag", [{**BAG, "unit": True}, TOKENS], {}),
    "tokens in windows": ("bag", [{**BAG, "max_length": 7, "long": "windows"}, TOKENS], {}),
    "bag": ("bag", [SUMS], {}),
    "bag, multilabel": ("bag", [SUMS, TOKENS], {"multilabel": True}),
    "bag, head and tail": ("bag", [{**SUMS, "max_length": 7, "long": "head+tail"}], {}),
    "tokens alone": ("bag", [TOKENS], {}),
    "bag under layers": ("small", [{**BAG, "unit": True, "long": "head+tail"}, TOKENS], {}),
    "layers": ("small", [{**LAYERS, "max_length": 9}], {}),
    "layers, whole direction": ("small", [{**LAYERS, "max_length": 9, "unit": True}], {}),
    "layers, tokens": ("small", [{**LAYERS, "max_length": 9, "long": "tail", "unit": True}, TOKENS], {}),
    "layers and bag": ("small", [{**LAYERS, "max_length": 9, "unit": True}, {**BAG, "unit": True}], {}),
    "layers, head": ("small", [{**LAYERS, "max_length": 9, "long": "head"}], {}),
    "lab, mean": ("lab", [{**LAYERS, "causal": True, "max_length": 9, "long": "head+tail"}], {}),
    "lab": ("lab", [{**LAYERS, "pooling": "last", "causal": True, "max_length": 9}], {}),
    "positions, no layers": ("lab", [{**LAYERS, "pooling": "last", "max_length": 7, "long": "head+tail"}], {}),
    "learned positions": ("learned", [LAYERS], {"multilabel": True}),
}
WITHOUT_LAYERS = [kind for kind, (_, views, _) in KINDS.items() if all(each["name"] != "layers" for each in views)]
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
    name, views, more = KINDS[kind]
    dials: dict[str, Any] = {"nhid": 16, "ntokens": tokenizer().vocab_size}
    if name == "learned":
        name, dials = "lab", {**dials, "positions": "learned", "maxlen": 300, "feedforward": "gelu"}
    if preset(name).nbuckets:
        dials |= {"nbuckets": 128}
    if preset(name).nlayers:
        dials |= {"nlayers": 0 if kind == "positions, no layers" else 2, "nhead": 2}
    config = preset(name, **dials)
    torch.manual_seed(0)
    model = Model(config, Classifier(classes=3, views=tuple(view(config, **each) for each in views), **more))
    head = classifier_head(model)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
        for each in head.config.views:
            part = head.of(each.name)
            if part.shift is not None:
                part.shift.normal_(std=0.1)
            if part.scale is not None:
                part.scale.uniform_(0.5, 3.0)
        for layer in model.base.layers:
            layer.output.weight.normal_(std=0.2)
            layer.down.weight.normal_(std=0.2)
        if model.base.ngrams is not None:
            model.base.ngrams.choose_rows(torch.randint(0, 4, model.base.ngrams.rows.shape).float())
            model.base.ngrams.weight[1:].normal_(std=0.3)
    details = {"thresholds": [0.3, 0.5, 0.7]} if head.config.multilabel else {}
    return Run(model.eval(), tokenizer(), ["bad", "fair", "good"], details)


def view(config: ModelConfig, name: str, *, unit: bool = False, **options: Any) -> ViewConfig:
    """Describe a view of a base."""
    if name == "tokens":
        return ViewConfig(name=name, columns=config.ntokens + config.nbuckets, sparse=True)
    return ViewConfig(name=name, columns=config.nhid, unit=unit, options=options)
