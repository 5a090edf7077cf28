"""Hidden states of the Transformer: batches of many documents against each read alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rehead.errors import ConfigError
from rehead.model.model import Model
from rehead.text.long_documents import UNLIMITED
from rehead.views import layers as module
from rehead.views.bag import BagView
from rehead.views.encoded import EncodedTexts
from rehead.views.layers import LayersOptions, LayersView, pad, padded_batches
from rehead.views.neural import neural_view
from tests.model.conftest import miniature
from tests.views.by_hand import bag_vector, documents, hidden, layers_vector, living


def of(made: Model, *, unit: bool = True, **options: object) -> LayersView:
    return LayersView(made, LayersOptions(**options), unit=unit)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["small", "lab"])
@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("tokens", [40, 4096])
def test_vectors_are_those_of_each_document_alone(
    name: str, pooling: str, causal: bool, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CPU_TOKENS", tokens)
    made, ids = living(miniature(name)), documents()
    made.train()  # and must be so again afterwards
    raw = of(made, pooling=pooling, causal=causal).read(EncodedTexts(ids=ids))
    assert made.training
    assert made.base.dropout.training
    made.eval()
    expected = np.stack([layers_vector(made, each, pooling=pooling, causal=causal) for each in ids])
    assert raw.matrix.dtype == np.float32
    np.testing.assert_allclose(raw.matrix, expected, atol=2e-5)


def test_long_documents_are_averaged_over_stretches_where_the_base_is_frozen() -> None:
    made, ids = living(miniature("small")), np.random.RandomState(1).randint(3, 50, 25)
    parts = [hidden(made, ids[at : at + 10], causal=False) for at in (0, 10, 20)]
    view = of(made, max_length=10)
    assert view.whole
    raw = view.read(EncodedTexts(ids=[ids, ids[:3]]))
    np.testing.assert_allclose(raw.matrix[0], np.concatenate(parts).mean(0), atol=2e-5)


def test_otherwise_each_piece_is_pooled() -> None:
    made, ids = living(miniature("small")), np.random.RandomState(1).randint(3, 50, 25)
    raw = of(made, unit=False, max_length=10).read(EncodedTexts(ids=[ids[:4], ids]))
    assert raw.document.tolist() == [0, 1, 1, 1]
    ends = [hidden(made, each, causal=False).mean(0) for each in (ids[:10], ids[-10:])]
    np.testing.assert_allclose(raw.matrix[[1, 3]], ends, atol=2e-5)
    cut = of(made, max_length=10, long="head").read(EncodedTexts(ids=[ids]))
    np.testing.assert_allclose(cut.matrix, ends[:1], atol=2e-5)


def plan(made: Model, monkeypatch: pytest.MonkeyPatch, **options: object) -> list[list[int]]:
    """The pieces that would be read, in their order; none of them is."""
    seen: list[list[int]] = []

    def recorded(parts: list[np.ndarray], tokens: int) -> list[object]:
        seen.extend(each.tolist() for each in parts)
        return []

    with monkeypatch.context() as patch:
        patch.setattr(module, "padded_batches", recorded)
        long = np.random.RandomState(3).randint(3, 50, 700)
        of(made, **options).read(EncodedTexts(ids=[*documents(), long]))  # type: ignore[arg-type]
    return seen


@pytest.mark.parametrize(
    "options", [{}, {"unit": False}, {"max_length": 9}, {"max_length": 9, "long": "head+tail"}], ids=str
)
def test_what_is_read_does_not_depend_on_the_device(
    options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = (living(miniature("small", maxlen=512)) for _ in range(2))
    elsewhere.to("meta")
    assert elsewhere.device.type == "meta"
    assert of(here, **options).max_length == of(elsewhere, **options).max_length  # type: ignore[arg-type]
    assert plan(here, monkeypatch, **options) == plan(elsewhere, monkeypatch, **options)


@pytest.mark.parametrize("reads", ["bag", "layers"])
def test_the_config_says_what_is_read_whatever_the_weights(reads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh layers are the identity; that they are trained, or not, changes nothing about what is read."""
    long = np.random.RandomState(3).randint(3, 50, 700)
    for made in (
        Model(miniature("small", maxlen=512, reads=reads)).eval(),
        living(miniature("small", maxlen=512, reads=reads)),
    ):
        view = neural_view(made)
        if reads == "bag":
            assert isinstance(view, BagView)
            assert view.max_length == UNLIMITED
            np.testing.assert_allclose(view.read(EncodedTexts(ids=[long])).matrix[0], bag_vector(made, long), atol=1e-5)
        else:
            assert isinstance(view, LayersView)
            assert view.max_length == 256
            assert [len(each) for each in plan(made, monkeypatch)[-3:]] == [256, 256, 700 - 512]


def test_no_more_is_read_at_once_than_there_are_positions() -> None:
    assert of(living(miniature("lab", maxlen=32))).max_length == 32
    assert of(living(miniature("lab", maxlen=512))).max_length == 256
    assert of(living(miniature("lab", maxlen=32)), max_length=20).max_length == 20


def test_training_reads_what_reading_reads() -> None:
    made, ids = living(miniature("small")), documents()
    view = of(made, unit=False)
    rows, keep = (torch.from_numpy(each) for each in pad(ids))
    with torch.no_grad():
        pooled = view.pool({"ids": rows, "keep": keep})
        nothing = view.pool({"ids": rows[:0], "keep": keep[:0]})
    np.testing.assert_allclose(pooled, view.read(EncodedTexts(ids=ids)).matrix, atol=2e-5)
    assert nothing.shape == (0, 16)


@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_batches_hold_every_piece_once_and_not_too_many_tokens(tokens: int) -> None:
    ids, seen = documents(), []
    for members, rows, keep in padded_batches(ids, tokens):
        assert rows.size <= tokens or len(members) == 1
        for place, row, real in zip(members, rows, keep, strict=True):
            assert row[real].tolist() == ids[place].tolist()
        seen += members.tolist()
    assert sorted(seen) == list(range(len(ids)))


@pytest.mark.parametrize(
    ("wrong", "said"), [({"pooling": "distinct"}, "distinct"), ({"causal": 1}, "1"), ({"max_length": -1}, "-1")]
)
def test_options_that_mean_nothing_are_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LayersOptions(**wrong)  # type: ignore[arg-type]
