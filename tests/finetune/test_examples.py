"""Features of documents, dense and sparse, against loops over documents."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from rehead.finetune.examples import Examples, read_examples, read_unlabelled
from rehead.runs.run import Run
from rehead.runs.scoring import document_vectors
from rehead.views.bag import BagView
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import learn_statistics, neural_view
from rehead.views.rows import RowFinder
from rehead.views.text_view import NoOptions
from rehead.views.tokens import TokensOptions, TokensView
from rehead.views.view import DenseView
from rehead.views.words import WordsView
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import reviews


def encode(base: Run, texts: list[str]) -> list[np.ndarray]:
    return EncodedTexts(texts, base.tokenizer).ids


def read(base: Run, texts: list[str]) -> Examples:
    views = [neural_view(base.model), TokensView(base.model, TokensOptions())]
    return read_examples(base, views, texts, np.arange(len(texts)) % 2, 2, balanced=False)


def dense(examples: Examples) -> DenseView:
    view = examples.views[0]
    assert isinstance(view, DenseView)
    return view


@pytest.mark.parametrize("known", [True, False])
def test_a_document_as_a_direction_and_as_tokens(make_base: MakeBase, known: bool) -> None:
    """With the statistics of the unlabelled text, where the base has kept them, else those of these documents."""
    base = make_base()
    texts = [*reviews(20).texts, "", "film"]
    if known:
        learn_statistics(base.model, encode(base, reviews(50, 7).texts))
    found, kept, finder = read(base, texts), base.model.base.statistics, RowFinder(base.model.base)
    rows = [set(finder.find_distinct([each]).row.tolist()) for each in encode(base, texts)]
    vectors = document_vectors(base, texts).astype(np.float64)
    mean = kept.views["bag"].mean.numpy() if known else vectors.mean(0)
    often = Counter(row for each in rows for row in each)
    count = 50 if known else len(texts)
    for place, (vector, there) in enumerate(zip(vectors, rows, strict=True)):
        apart = vector - mean
        np.testing.assert_allclose(found.features["bag"][place], apart / np.sqrt(apart @ apart), atol=1e-6)
        frequency = {row: float(kept.frequency[row]) if known else often[row] for row in there}
        idf = {row: np.log((1 + count) / (1 + frequency[row])) + 1 for row in there}
        length = np.sqrt(sum(each**2 for each in idf.values()))
        line = found.features["tokens"][place].toarray()[0]
        assert set(np.flatnonzero(line).tolist()) == there
        for row in there:
            assert line[row] == pytest.approx(idf[row] / length)
    again = read_unlabelled(base, found, texts[:3])
    np.testing.assert_allclose(again.features["bag"], found.features["bag"][:3], atol=1e-12)
    np.testing.assert_allclose(again.features["tokens"].toarray(), found.features["tokens"][:3].toarray(), atol=1e-12)
    some = found.take(np.array([2, 0]))
    np.testing.assert_array_equal(some.features["bag"], found.features["bag"][[2, 0]])
    np.testing.assert_array_equal(some.features["tokens"].toarray(), found.features["tokens"][[2, 0]].toarray())
    assert some.truth.tolist() == [0, 0]


def test_axes_are_those_of_the_covariance(make_base: MakeBase) -> None:
    base, texts = make_base(), reviews(80).texts
    learn_statistics(base.model, encode(base, texts))
    view = dense(read(base, texts[:2]))
    assert isinstance(view, BagView)
    vectors = document_vectors(base, texts).astype(np.float64)
    values, axes = np.linalg.eigh(np.cov(vectors.T))
    np.testing.assert_allclose(view.deviations, np.maximum(np.sqrt(values[::-1] / values[-1]), 1e-3), atol=1e-4)
    np.testing.assert_allclose(np.abs((view.components * axes[:, ::-1]).sum(0))[:5], 1, atol=1e-3)
    assert (np.diff(view.deviations) <= 0).all()
    # With the power 1, distances are as they were; with more, the widest axis counts the most.
    np.testing.assert_allclose(view.rescaling(1.0) @ view.rescaling(1.0).T, np.eye(16), atol=1e-6)
    scale = np.linalg.norm(view.rescaling(2.0), axis=0)
    np.testing.assert_allclose(scale / scale[0], view.deviations, atol=1e-6)
    apart = vectors - vectors.mean(0)
    for power in (1.0, 2.0, 3.0):  # the mean square of what varies as the documents do stays
        assert ((apart @ view.rescaling(power)) ** 2).sum() == pytest.approx((apart**2).sum(), rel=1e-2)


def test_the_covariance_of_few_documents_is_shrunk(make_base: MakeBase) -> None:
    base = make_base()
    found = read(base, reviews(4).texts)
    assert not base.model.base.statistics.known
    assert np.isfinite(found.features["bag"]).all()
    assert dense(found).deviations[-1] > 0.1  # where no document varied, another may
    np.testing.assert_array_equal(dense(read(base, ["film"])).deviations, np.ones(16))
    none = read_unlabelled(base, found, [])
    assert len(none) == 0
    assert none.features["tokens"].shape == (0, found.features["tokens"].shape[1])


def test_views_of_the_text_keep_what_they_have_learnt(make_base: MakeBase) -> None:
    """Neither reading examples nor reading more text changes the vocabulary or its idf."""
    base, texts = make_base(), reviews(30).texts
    words = WordsView(base.model, NoOptions())
    words.learn(EncodedTexts([*texts, *reviews(40, 3).texts]))
    keys, scale = words.keys.copy(), words.scale.copy()
    found = read_examples(base, [words], texts, np.arange(30) % 2, 2, balanced=False)
    more = read_unlabelled(base, found, ["of words nobody has seen", "", texts[4]])
    np.testing.assert_array_equal(words.keys, keys)
    np.testing.assert_array_equal(words.scale, scale)
    assert found.features["words"].shape == (30, len(keys))
    line = more.features["words"].toarray()
    np.testing.assert_array_equal(line[2], found.features["words"][4].toarray()[0])
    assert not line[1].any()
    assert len(found) == 30
    assert len(more) == 3
    assert more.truth.shape == (0,)
