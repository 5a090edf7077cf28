"""Probabilities become labels, or none where the classifier is not sure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rehead.errors import UserError
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.runs.run import Run, save
from rehead.runs.scoring import class_probabilities
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
from rehead.use.labeller import Labeller

TEXTS = ["good film", "bad film", "a good book", ""]


def made(*, multilabel: bool = False) -> Run:
    tokenizer = Tokenizer.train([Document(text, "x", 1) for text in TEXTS * 5], vocab=270, quiet=True)
    torch.manual_seed(1)
    config = preset("bag", ntokens=tokenizer.vocab_size, nhid=4, nbuckets=8)
    model = Model(config, config.classifier(3, multilabel))
    return Run(model.eval(), tokenizer, ["bad", "fair", "good"])


def test_opened_it_gives_what_the_run_gives(tmp_path: Path) -> None:
    labeller = Labeller.open(save(made(), tmp_path / "run"))
    found = labeller.probabilities(TEXTS)
    assert np.array_equal(found, class_probabilities(made(), TEXTS))
    assert labeller.labels(found) == [(labeller.names[place],) for place in found.argmax(1)]


def test_one_label_is_given_from_how_sure_on() -> None:
    labeller = Labeller.of(made())
    given = np.array([[0.2, 0.7, 0.1], [0.4, 0.3, 0.3]])
    assert labeller.labels(given) == [("fair",), ("bad",)]
    assert labeller.labels(given, min_confidence=0.7) == [("fair",), None]
    assert labeller.labels(given[:0]) == []


def test_thresholds_of_one_label_decide_and_confidence_is_that_of_what_is_given() -> None:
    run = made()
    run.details["thresholds"] = [0.6, 0.3, 0.1]
    labeller = Labeller.of(run)
    given = np.array([[0.6, 0.25, 0.15], [0.8, 0.15, 0.05]])  # by threshold: 1, 0.83, 1.5 and 1.33, 0.5, 0.5
    assert labeller.labels(given) == [("good",), ("bad",)]
    assert labeller.labels(given, min_confidence=0.5) == [None, ("bad",)]
    assert labeller.labels(given[:0]) == []


def test_of_several_the_most_doubtful_decides() -> None:
    labeller = Labeller.of(made(multilabel=True))
    given = np.array([[0.95, 0.05, 0.9], [0.95, 0.45, 0.9], [0.1, 0.1, 0.1]])
    assert labeller.labels(given) == [("bad", "good"), ("bad", "good"), ()]
    assert labeller.labels(given, min_confidence=0.8) == [("bad", "good"), None, ()]


def test_a_language_model_is_no_classifier(tmp_path: Path) -> None:
    config = preset("bag", ntokens=270, nhid=4, nbuckets=8)
    save(Run(Model(config, config.language_model())), tmp_path / "run")
    with pytest.raises(UserError, match="not a classifier"):
        Labeller.open(tmp_path / "run")
