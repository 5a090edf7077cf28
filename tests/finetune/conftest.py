"""Small bases of every kind to start from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import rehead.finetune.run
import rehead.pretrain.run
import rehead.runs.run
from rehead.finetune.candidates import linear
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
from tests.finetune.sets import multilabel, reviews

MakeBase = Callable[..., Run]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    texts = [*reviews(60).texts, *multilabel(60).texts]
    return Tokenizer.train([Document(each, "x", 1) for each in texts], vocab=320, lowercase=True, quiet=True)


@pytest.fixture
def make_base(tokenizer: Tokenizer) -> MakeBase:
    """Make a run of a preset in miniature. Without `learnt`, layers are the identity, and the base reads a bag."""

    def make(name: str = "bag", *, learnt: bool = False, seed: int = 0, **dials: Any) -> Run:
        torch.manual_seed(seed)
        if preset(name).nbuckets:
            dials = {"nbuckets": 128, **dials}
        if preset(name).nlayers:
            dials = {"nlayers": 2, "nhead": 2, **dials}
        if name == "small" and not learnt:
            dials = {"reads": "bag", **dials}
        made = Model(preset(name, ntokens=tokenizer.vocab_size, nhid=16, **dials))
        with torch.no_grad():
            for layer in made.base.layers if learnt else []:
                layer.output.weight.normal_(std=0.2)
            if made.base.ngrams is not None:
                made.base.ngrams.weight[1:].normal_(std=0.1)
        return Run(made.eval(), tokenizer, None, {"objective": "bag"})

    return make


@pytest.fixture
def quick_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search a linear classifier on a small grid, where what is searched does not matter: a third of the time.

    And fine-tune no encoder unasked.
    """
    monkeypatch.setattr("rehead.finetune.candidates.encoder.UNASKED", 0.0)
    monkeypatch.setattr("rehead.finetune.candidates.linear.POWERS", (1.0, 2.0))
    monkeypatch.setattr("rehead.finetune.candidates.linear.ALPHAS", (0.1, 1.0, 10.0))
    monkeypatch.setattr("rehead.finetune.candidates.linear.ROUNDS", 1)


@pytest.fixture
def through_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have documents read through the layers of a base, whatever the folds say."""
    plain = linear.search_views
    monkeypatch.setattr(linear, "search_views", lambda task, _, **rest: plain(task, "layers", **rest))


@pytest.fixture
def small_own_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make small bases of a classifier's own, draw no pictures, and do not wait for the disk."""
    monkeypatch.setattr(rehead.finetune.run.curves, "save", lambda metrics, directory: [])
    monkeypatch.setattr("rehead.disk.fsync", lambda path: None)
    monkeypatch.setattr(rehead.runs.run, "fsync", lambda path: None)
    plain = rehead.pretrain.run._config

    def config(options: Any, tokenizer: Any) -> Any:
        made = plain(options, tokenizer)
        return dataclasses.replace(made, nhid=16, nbuckets=128) if options.preset == "bag" else made

    monkeypatch.setattr(rehead.pretrain.run, "_config", config)
