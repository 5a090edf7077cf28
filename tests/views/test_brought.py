"""Views of bases that others pretrained: vectors, statistics, the cache by text, explanations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rehead.errors import ConfigError
from rehead.model.config import NO_BASE, ViewConfig
from rehead.model.model import Model
from rehead.runs.run import bring
from rehead.text.spans import word_spans
from rehead.views import brought_views, make_view
from rehead.views.brought import BroughtView, texts_without
from rehead.views.cache import read_cached
from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups
from rehead.views.view import shrunk_covariance
from tests.bases.tiny import TEXTS, make_encoder, make_model2vec


@pytest.fixture
def view(tmp_path: Path) -> BroughtView:
    [made] = brought_views(bring(make_encoder(tmp_path / "tiny")).model)
    return made


def test_a_view_is_named_after_its_base_and_made_again_from_its_config(view: BroughtView) -> None:
    assert view.name == "encoder:tiny"
    config = view.config()
    assert (config.name, config.kind, config.columns, config.sparse) == ("encoder:tiny", "encoder", 16, False)
    again = make_view(view.model, config)
    texts = EncodedTexts(TEXTS)
    np.testing.assert_array_equal(again.read(texts).matrix, view.read(texts).matrix)
    np.testing.assert_array_equal(view.read(texts).matrix, view.brought.engine.encode(TEXTS))
    with pytest.raises(ConfigError, match="no such base"):
        make_view(Model(NO_BASE), config)


@pytest.mark.parametrize("name", ["encoder:a.b", "encoder:", "Encoder:x", "encoder:x:y", "encoder:" + "x" * 61])
def test_names_that_tensors_could_not_have_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="view name"):
        ViewConfig(name=name, columns=1)


def test_statistics_are_those_of_the_texts_at_hand(view: BroughtView) -> None:
    raw = view.read(EncodedTexts(TEXTS[:3]))
    view.fit(raw)
    mean, _ = shrunk_covariance(raw.matrix.astype(np.float64))
    np.testing.assert_allclose(view.shift, mean)
    every = view.read(EncodedTexts(TEXTS))
    view.learn_statistics(every)
    view.fit(raw)
    np.testing.assert_allclose(view.shift, every.matrix.astype(np.float64).mean(0))
    features = view.transform(raw)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1)


class Counting:
    """An engine that counts what it is asked."""

    def __init__(self, engine: object) -> None:
        self.engine, self.texts = engine, []
        self.width, self.parameters, self.work, self.max_length = 16, 1, 1, None
        self.precision = "float32"

    def encode(self, texts: list[str], progress: object = None) -> np.ndarray:
        self.texts += list(texts)
        return self.engine.encode(texts)


def test_no_text_is_encoded_twice_whatever_set_it_is_in(
    view: BroughtView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REHEAD_CACHE", str(tmp_path / "cache"))
    expected = view.read(EncodedTexts(TEXTS)).matrix
    view.brought._engine = counting = Counting(view.brought.engine)
    first = read_cached(view, EncodedTexts([*TEXTS[:3], *TEXTS[:2]]), None)
    assert sorted(counting.texts) == sorted(TEXTS[:3])
    second = read_cached(view, EncodedTexts(TEXTS), "another run")
    assert sorted(counting.texts) == sorted(TEXTS)
    np.testing.assert_allclose(first.matrix, expected[[0, 1, 2, 0, 1]], atol=1e-6)
    np.testing.assert_allclose(second.matrix, expected, atol=1e-6)
    read_cached(view, EncodedTexts(TEXTS[::-1]), None)
    assert len(counting.texts) == len(TEXTS)
    for entry in (tmp_path / "cache").iterdir():  # damaged entries are read anew
        (entry / "keys.npy").write_bytes(b"x")
    np.testing.assert_allclose(read_cached(view, EncodedTexts(TEXTS), None).matrix, expected, atol=1e-6)
    assert len(counting.texts) == 2 * len(TEXTS)


def test_other_bases_have_other_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REHEAD_CACHE", str(tmp_path / "cache"))
    for seed in (0, 1):
        [view] = brought_views(bring(make_encoder(tmp_path / f"{seed}" / "tiny", seed=seed)).model)
        found = read_cached(view, EncodedTexts(TEXTS), None).matrix
        np.testing.assert_allclose(found, view.brought.engine.encode(TEXTS), atol=1e-6)


def test_texts_without_words() -> None:
    text = "The film, the good film."
    spans = word_spans(text)
    names = [text[begin:end] for begin, end in spans]
    groups = [0 if name.lower() == "film" else 1 for name in names]
    given = Groups(np.zeros(0, np.int64), np.zeros(0, np.int64), 2, list(zip(spans, groups, strict=True)))
    assert texts_without(text, given) == ["The , the good .", " film   film"]


@pytest.mark.parametrize("make", [make_encoder, make_model2vec])
def test_explaining_scores_the_text_without_each_word(make: object, tmp_path: Path) -> None:
    [view] = brought_views(bring(make(tmp_path / "tiny")).model)
    view.fit(view.read(EncodedTexts(TEXTS)))
    weight = np.random.RandomState(0).randn(3, view.columns)
    text = "the film was very good"
    spans = word_spans(text)
    groups = Groups(np.zeros(0, np.int64), np.zeros(0, np.int64), 5, list(zip(spans, range(5), strict=True)))
    asked = []
    scores = view.scores_without(weight, EncodedTexts([text]), groups, lambda: asked.append(1))
    words = text.split()
    shorter = [" ".join(words[:place] + words[place + 1 :]) for place in range(5)]
    expected = view.transform(view.read(EncodedTexts([text, *shorter]))) @ weight.T
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert asked


def test_what_explaining_costs_is_known_before(tmp_path: Path) -> None:
    """An encoder reads the text once more for every word; a table only looks its tokens up."""
    text = "the film was very good" * 100
    empty, nothing = EncodedTexts([text], ids=[np.zeros(0, np.int64)]), np.zeros(0, np.int64)
    costs = {}
    for make in (make_encoder, make_model2vec):
        [view] = brought_views(bring(make(tmp_path / make.__name__)).model)
        costs[make] = [view.tokens_without(empty, Groups(nothing, nothing, count)) for count in (0, 9, 99)]
    assert costs[make_encoder] == [len(text) // 4 * times for times in (1, 10, 100)]
    assert 0 < costs[make_model2vec][2] < costs[make_encoder][2] / 10
