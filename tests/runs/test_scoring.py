"""Many texts scored at once, against each alone, spelt out with loops; and what a run states about its reading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.errors import ConfigError
from rehead.model.config import Classifier, ModelConfig
from rehead.model.heads import ClassifierHead
from rehead.runs import scoring
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import (
    class_logits,
    class_probabilities,
    document_vectors,
    encode,
    encoded_probabilities,
    score_texts,
)
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import neural_view
from tests.model.conftest import alive, classifier_of, miniature
from tests.views.by_hand import documents, hidden, living, scores

WORDS = "a the film was not good bad long short and then it ended well with many people in one small room"

HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "vectors": ("bag", {}),
    "sums per token": ("bag", {"distinct": False}),
    "directions": ("bag", {"unit": True}),
    "directions and tokens": ("bag", {"unit": True, "tokens": True}),
    "bag under layers": ("small", {"view": "bag", "unit": True, "tokens": True}),
    "hidden states": ("small", {"pooling": "mean"}),
    "directions of hidden states": ("small", {"unit": True, "tokens": True}),
    "last and tokens": ("lab", {"pooling": "last", "causal": True, "tokens": True}),
    "last, as a direction": ("lab", {"pooling": "last", "unit": True}),
}


def texts() -> list[str]:
    chance = np.random.RandomState(0)
    made = [" ".join(chance.choice(WORDS.split(), size)) for size in (3, 40, 7, 1, 90, 12, 25)]
    return [*made, "", *made[:2]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    documents = [Document(each, "x", 1) for each in texts() if each]
    return Tokenizer.train(documents, vocab=300, lowercase=True, quiet=True)


def a_run(name: str, tokenizer: Tokenizer, head: Callable[[ModelConfig], Classifier] | None = None) -> Run:
    config = miniature(name, ntokens=tokenizer.vocab_size, maxlen=512)
    return Run(living(config, None if head is None else head(config)), tokenizer)


@pytest.mark.parametrize("kind", list(HEADS))
def test_scored_together_or_spelt_out_it_is_the_same(kind: str) -> None:
    name, dials = HEADS[kind]
    config = miniature(name)
    made, ids = living(config, classifier_of(config, 3, **dials)), documents()
    assert any(not len(each) for each in ids)
    expected = np.stack([scores(made, each) for each in ids])
    found = score_texts(made, EncodedTexts(ids=ids))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-5)
    in_groups = [score_texts(made, group) for group in EncodedTexts(ids=ids).groups(40)]
    assert len(in_groups) > 3
    np.testing.assert_allclose(np.concatenate(in_groups), expected, atol=2e-5)


@pytest.mark.parametrize("kind", ["directions and tokens", "directions of hidden states"])
def test_a_head_scores_the_same_when_it_comes_back(kind: str, tmp_path: Path) -> None:
    name, dials = HEADS[kind]
    made = living(miniature(name), classifier_of(miniature(name), 3, **dials))
    again = load(save(Run(made, None, ["a", "b", "c"]), tmp_path / "run")).model
    assert again.head_config == made.head_config
    given = EncodedTexts(ids=documents())
    np.testing.assert_array_equal(score_texts(again, given), score_texts(made, given))


def test_a_model_that_reads_layers_alone_can_be_called(tokenizer: Tokenizer) -> None:
    run = a_run("small", tokenizer, lambda config: classifier_of(config, pooling="mean"))
    for text, found in zip(texts(), class_logits(run, texts()), strict=True):
        if text:
            with torch.no_grad():
                called = run.model(torch.tensor([tokenizer.encode(text)]))[0]
            np.testing.assert_allclose(found, called, atol=1e-5)


def test_windows_are_averaged_and_other_rules_cut() -> None:
    config = miniature("small", maxlen=512)
    ids = np.random.RandomState(1).randint(3, 50, 85)
    starts = [0, 27, 55]
    for long, pieces in (("windows", [ids[at : at + 30] for at in starts]), ("tail", [ids[-30:]])):
        made = living(config, classifier_of(config, max_length=30, long=long))
        expected = np.mean([scores(made, piece) for piece in pieces], axis=0)
        np.testing.assert_allclose(score_texts(made, EncodedTexts(ids=[ids]))[0], expected, atol=2e-5)


def test_directions_of_layers_are_of_whole_documents_and_tokens_are_too() -> None:
    config = miniature("small")
    ids = np.random.RandomState(1).randint(3, 50, 25)
    made = living(config, classifier_of(config, unit=True, tokens=True, max_length=10))
    head = made.head
    assert isinstance(head, ClassifierHead)
    part = head.of("layers")
    assert part.shift is not None
    whole = scores(made, ids)  # of the document read at once; its vector is replaced below
    states = np.concatenate([hidden(made, ids[at : at + 10], causal=False) for at in (0, 10, 20)])

    def direction(vector: np.ndarray) -> np.ndarray:
        assert part.shift is not None
        apart = vector - part.shift.numpy()
        return part.weight.detach().numpy() @ (apart / np.sqrt((apart**2).sum()))

    expected = whole - direction(hidden(made, ids, causal=False).mean(0)) + direction(states.mean(0))
    np.testing.assert_allclose(score_texts(made, EncodedTexts(ids=[ids]))[0], expected, atol=2e-5)


def test_probabilities_by_kind_of_classifier(tokenizer: Tokenizer) -> None:
    one = a_run("bag", tokenizer, lambda config: classifier_of(config, 3))
    many = a_run("bag", tokenizer, lambda config: classifier_of(config, 3, multilabel=True))
    np.testing.assert_allclose(class_probabilities(one, texts()).sum(1), 1, rtol=1e-5)
    logits = class_logits(many, texts())
    np.testing.assert_allclose(class_probabilities(many, texts()), 1 / (1 + np.exp(-logits)), rtol=1e-5)
    assert class_probabilities(one, []).shape == (0, 3)
    np.testing.assert_array_equal(encoded_probabilities(one, encode(one, texts())), class_probabilities(one, texts()))


@pytest.mark.parametrize("name", ["bag", "small", "lab"])
def test_texts_are_tokenized_some_at_a_time(name: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(name, tokenizer, lambda config: config.classifier(2))
    vectors, logits = document_vectors(run, texts()), class_logits(run, texts())
    monkeypatch.setattr(scoring, "TEXTS", 3)
    np.testing.assert_allclose(document_vectors(run, texts()), vectors, atol=1e-5)
    np.testing.assert_allclose(class_logits(run, texts()), logits, atol=1e-5)
    assert vectors.dtype == np.float32
    assert not vectors[7].any(), "a text without tokens"
    ids = [np.array(tokenizer.encode(each), np.int64) for each in texts()]
    np.testing.assert_allclose(vectors, neural_view(run.model).read(EncodedTexts(ids=ids)).matrix, atol=1e-5)


def test_what_cannot_be_read_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="no classifier head"):
        class_logits(a_run("bag", tokenizer), ["a"])
    with pytest.raises(ConfigError, match="no tokenizer"):
        document_vectors(Run(alive(miniature("bag"))), ["a"])
