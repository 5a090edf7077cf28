"""Directions and words, against loops over documents."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import sparse

from rehead.finetune.features import Seen, find_space, in_space, read_documents, unevenness
from rehead.model.reading import distinct_rows, document_vectors, encode, learn_spread, vectors_of_ids
from rehead.runs.run import Run
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import reviews


def ids_of(base: Run, texts: list[str]) -> list[np.ndarray]:
    assert base.tokenizer is not None
    return encode(base.tokenizer, texts)


@pytest.mark.parametrize("known", [True, False])
def test_a_document_as_a_direction_and_as_words(make_base: MakeBase, known: bool) -> None:
    base = make_base()
    texts = [*reviews(20).texts, "", "film"]
    ids = ids_of(base, texts)
    if known:
        learn_spread(base.model, ids_of(base, reviews(50, 7).texts))
    found, space = read_documents(base.model, ids)
    rows = [set(distinct_rows(base.model.base, [each]).rows.tolist()) for each in ids]
    vectors = document_vectors(base, None, texts).astype(np.float64)
    kept = base.model.base.spread
    centre = kept.centre.numpy() if known else vectors.mean(0)
    often = Counter(row for each in rows for row in each)
    count = 50 if known else len(texts)
    for place, (vector, there) in enumerate(zip(vectors, rows, strict=True)):
        apart = vector - centre
        np.testing.assert_allclose(found.directions[place], apart / np.sqrt(apart @ apart), atol=1e-6)
        frequency = {row: float(kept.frequency[row]) if known else often[row] for row in there}
        idf = {row: np.log((1 + count) / (1 + frequency[row])) + 1 for row in there}
        length = np.sqrt(sum(each**2 for each in idf.values()))
        line = found.words[place].toarray()[0]
        assert set(np.flatnonzero(line).tolist()) == there
        for row in there:
            assert line[row] == pytest.approx(idf[row] / length)
    again = in_space(Seen.by(base.model, ids[:3]), space)
    np.testing.assert_allclose(again.directions, found.directions[:3], atol=1e-12)
    np.testing.assert_array_equal(found.some(np.array([2, 0])).directions, found.directions[[2, 0]])


def test_axes_are_those_of_the_spread(make_base: MakeBase) -> None:
    base = make_base()
    ids = ids_of(base, reviews(80).texts)
    learn_spread(base.model, ids)
    vectors = vectors_of_ids(base.model, ids).astype(np.float64)
    space = find_space(base.model, Seen(vectors, np.arange(len(vectors)), None))
    values, axes = np.linalg.eigh(np.cov(vectors.T))
    np.testing.assert_allclose(space.spread, np.maximum(np.sqrt(values[::-1] / values[-1]), 1e-3), atol=1e-4)
    np.testing.assert_allclose(np.abs((space.axes * axes[:, ::-1]).sum(0))[:5], 1, atol=1e-3)
    assert (np.diff(space.spread) <= 0).all()
    # With the power 1, distances are as they were; with more, the widest axis counts the most.
    np.testing.assert_allclose(space.turn(1.0) @ space.turn(1.0).T, np.eye(16), atol=1e-6)
    turned = space.turn(2.0)
    scale = np.linalg.norm(turned, axis=0)
    np.testing.assert_allclose(scale / scale[0], space.spread, atol=1e-6)
    apart = vectors - vectors.mean(0)
    for power in (1.0, 2.0, 3.0):  # the mean square of what spreads like the documents stays
        assert ((apart @ space.turn(power)) ** 2).sum() == pytest.approx((apart**2).sum(), rel=1e-2)


def test_of_few_documents_the_covariance_is_shrunk(make_base: MakeBase) -> None:
    base = make_base()
    features, space = read_documents(base.model, ids_of(base, reviews(4).texts))
    assert not base.model.base.spread.known
    assert np.isfinite(features.directions).all()
    assert space.spread[-1] > 0.1  # where nothing was seen to spread, something may
    _, alone = read_documents(base.model, ids_of(base, ["film"]))
    np.testing.assert_array_equal(alone.spread, np.ones(16))
    none = in_space(Seen.by(base.model, []), space)
    assert none.words.shape == (0, features.words.shape[1])


def test_unevenness_is_the_log_count_ratio_of_naive_bayes() -> None:
    there = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0]])
    weighted = there * np.array([0.3, 0.5, 2.0, 1.0])  # weights do not matter, only whether a row is there
    truth = np.array([0, 0, 1, 1])
    p, q = 1 + there[:2].sum(0), 1 + there[2:].sum(0)
    expected = np.abs(np.log((p / p.sum()) / (q / q.sum())))
    assert expected[3] == pytest.approx(np.log(9 / 7))
    expected[3] = 0  # found nowhere
    found = unevenness(sparse.csr_matrix(weighted), truth, 2)
    np.testing.assert_allclose(found, expected)


def test_unevenness_over_more_classes_and_labels() -> None:
    chance = np.random.RandomState(0)
    there = (chance.rand(12, 5) < 0.5).astype(float)
    truth = chance.randint(0, 3, 12)

    def ratio(members: np.ndarray) -> np.ndarray:
        p, q = 1 + there[members].sum(0), 1 + there[~members].sum(0)
        return np.log((p / p.sum()) / (q / q.sum()))

    expected = np.sqrt(np.mean([ratio(truth == label) ** 2 for label in range(3)], axis=0))
    # A class without examples says nothing, nor does one that all have.
    np.testing.assert_allclose(unevenness(sparse.csr_matrix(there), truth, 4), expected)
    table = np.stack([truth == 0, truth != 1, np.ones(12, bool)], 1).astype(np.float32)
    expected = np.sqrt(np.mean([ratio(truth == 0) ** 2, ratio(truth != 1) ** 2], axis=0))
    np.testing.assert_allclose(unevenness(sparse.csr_matrix(there), table, 3), expected)
