"""Tokens of the base, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.views.encoded import EncodedTexts
from rehead.views.neural import learn_statistics
from rehead.views.tokens import TokensOptions, TokensView
from tests.model.conftest import PRESETS, miniature
from tests.views.by_hand import distinct, documents, living


@pytest.mark.parametrize("name", PRESETS)
def test_features_are_idf_of_the_tokens_there_at_unit_length(name: str) -> None:
    made, ids = living(miniature(name)), documents()
    view = TokensView(made, TokensOptions())
    raw = view.read(EncodedTexts(ids=ids))
    view.fit(raw)
    features = view.transform(raw).toarray()
    assert features.shape == (len(ids), view.columns)
    frequency = np.zeros(view.columns)
    for each in ids:
        frequency[distinct(made, each)] += 1
    for each, found in zip(ids, features, strict=True):
        expected = np.zeros(view.columns)
        rows = distinct(made, each)
        expected[rows] = np.log((1 + len(ids)) / (1 + frequency[rows])) + 1
        expected /= max(1e-12, np.sqrt((expected**2).sum()))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_idf_is_that_of_the_unlabelled_text_where_it_is_known() -> None:
    made, ids = living(miniature("bag")), documents()
    learn_statistics(made, ids)
    view = TokensView(made, TokensOptions())
    few = view.read(EncodedTexts(ids=ids[:3]))
    view.fit(few)
    known = made.base.statistics
    np.testing.assert_allclose(view.scale, np.log(31 / (1 + known.frequency.numpy())) + 1, rtol=1e-6)
    view.load_statistics(living(miniature("bag"), None).state_dict() | {"scale": known.frequency})
    assert view.statistics()["scale"].tolist() == known.frequency.tolist()


def test_texts_without_tokens_have_no_features() -> None:
    view = TokensView(living(miniature("bag")), TokensOptions())
    for ids in ([], [np.zeros(0, np.int64)] * 2, [np.array([7]), np.zeros(0, np.int64)]):
        raw = view.read(EncodedTexts(ids=ids))
        view.fit(raw)
        found = view.transform(raw).toarray()
        assert found.shape == (len(ids), view.columns)
        assert (np.count_nonzero(found, 1) == [len(each) for each in ids]).all()
