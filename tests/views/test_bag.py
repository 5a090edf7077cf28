"""The bag of n-grams, against sums by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from rehead.errors import ConfigError
from rehead.model.config import ViewConfig
from rehead.model.model import Model
from rehead.text.long_documents import UNLIMITED
from rehead.views import bag as module
from rehead.views import make_view
from rehead.views.bag import BagOptions, BagView
from rehead.views.encoded import EncodedTexts
from tests.model.conftest import miniature
from tests.views.by_hand import bag_vector, documents, living


def of(made: Model, **options: object) -> BagView:
    return BagView(made, BagOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["bag", "small"])
@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("tokens", [20, 16_384])
def test_vectors_are_means_of_rows(name: str, distinct: bool, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In groups of documents or all at once; the layers of `small` take no part."""
    made, ids = living(miniature(name)), documents()
    assert any(not len(each) for each in ids)
    assert any(len(set(each.tolist())) < len(each) for each in ids)
    texts = EncodedTexts(ids=ids)
    groups = list(texts.groups(tokens))
    monkeypatch.setattr(texts, "groups", lambda: iter(groups))
    raw = of(made, distinct=distinct).read(texts)
    expected = np.stack([bag_vector(made, each, each_once=distinct) for each in ids])
    assert raw.matrix.dtype == np.float32
    assert raw.document.tolist() == list(range(raw.texts)) == list(range(len(ids)))
    np.testing.assert_allclose(raw.matrix, expected, atol=1e-5)


def test_a_document_of_any_length_is_read_whole_unless_told() -> None:
    made = living(miniature("bag"))
    long = np.random.RandomState(2).randint(3, 50, 3000)
    assert of(made).max_length == UNLIMITED
    np.testing.assert_allclose(of(made).read(EncodedTexts(ids=[long])).matrix[0], bag_vector(made, long), atol=1e-5)


@pytest.mark.parametrize(("long", "pieces"), [("windows", [[0, 10], [7, 17], [15, 25]]), ("tail", [[15, 25]])])
def test_pieces_are_vectors_of_their_own(long: str, pieces: list[list[int]]) -> None:
    made = living(miniature("bag"))
    ids = [np.random.RandomState(2).randint(3, 50, 25), np.arange(5, 9)]
    raw = of(made, max_length=10, long=long).read(EncodedTexts(ids=ids))
    assert raw.document.tolist() == [0] * len(pieces) + [1]
    expected = [bag_vector(made, ids[0][begin:end]) for begin, end in pieces]
    np.testing.assert_allclose(raw.matrix[:-1], expected, atol=1e-5)
    np.testing.assert_allclose(raw.matrix[-1], bag_vector(made, ids[1]), atol=1e-5)


@pytest.mark.parametrize("distinct", [True, False])
def test_training_reads_what_reading_reads(distinct: bool) -> None:
    made, ids = living(miniature("bag")), documents()
    view = of(made, distinct=distinct)
    with torch.no_grad():
        pooled = view.pool(view.collate(view.finder, ids))
    np.testing.assert_allclose(pooled, view.read(EncodedTexts(ids=ids)).matrix, atol=1e-5)


def test_the_device_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made, ids = living(miniature("bag")), documents()
    view = of(made, max_length=7)
    expected, seen = view.read(EncodedTexts(ids=ids)), []
    plain = module.cut
    monkeypatch.setattr(module, "cut", lambda *given: seen.append(given[1:]) or plain(*given))
    monkeypatch.setattr(Model, "device", property(lambda self: torch.device("meta")))
    found = view.read(EncodedTexts(ids=ids))
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    np.testing.assert_array_equal(found.document, expected.document)
    assert set(seen) == {(7, "windows")}


def test_a_view_survives_its_config() -> None:
    made = living(miniature("bag"))
    view = of(made, distinct=False, max_length=9, long="head")
    again = make_view(made, view.config())
    assert (again.options, again.unit, again.columns) == (view.options, view.unit, view.columns)
    with pytest.raises(ConfigError, match="'pixels'"):
        make_view(made, dataclasses.replace(view.config(), name="pixels"))
    with pytest.raises(ConfigError, match="'short'"):
        make_view(made, ViewConfig(name="bag", columns=16, options={"short": 1}))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_length": 0}, "0"),
        ({"max_length": True}, "True"),
        ({"max_length": 2.5}, "2.5"),
        ({"long": "middle"}, "middle"),
    ],
)
def test_options_that_mean_nothing_are_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BagOptions(**wrong)  # type: ignore[arg-type]
