"""Latent semantic analysis, against a full singular value decomposition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from rehead.model.model import Model
from rehead.views import lsa
from rehead.views.encoded import EncodedTexts
from rehead.views.lsa import LsaView, principal_directions
from rehead.views.text_view import NoOptions
from rehead.views.words import WordsView
from tests.finetune.sets import reviews
from tests.model.conftest import miniature
from tests.use.text_classifiers import SCRIPTS, learn_views

CHANCE = np.random.RandomState(0)
LOW_RANK = CHANCE.randn(80, 4) @ CHANCE.randn(4, 60)
DECAYING = (
    np.linalg.qr(CHANCE.randn(80, 40))[0] * 0.8 ** np.arange(40) @ np.linalg.qr(CHANCE.randn(60, 40))[0].T
)  # singular values 1, 0.8, 0.64, …
SPARSE = CHANCE.randn(80, 60) * (CHANCE.rand(80, 60) < 0.1)
EITHER_WAY = pytest.mark.parametrize("few", [0, 100], ids=["by iteration", "exactly"])


@EITHER_WAY
@pytest.mark.parametrize(
    ("matrix", "width", "rank"),
    [
        (DECAYING, 8, 8),
        (SPARSE, 60, 60),
        (SPARSE[:10], 10, 10),  # as many documents as directions
        (SPARSE[:, :5], 5, 5),  # as many n-grams
        (LOW_RANK, 20, 4),
        (np.ones((30, 20)), 10, 1),  # the same document many times
        (np.diag([3.0, 0, 0, 0]), 4, 1),
        (np.diag([3.0, 2, 1, 0]), 1, 1),
    ],
)
def test_directions_and_singular_values_are_those_of_numpy(
    matrix: np.ndarray, width: int, rank: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lsa, "FEW", few)
    found = principal_directions(sparse.csr_matrix(matrix.astype(np.float32)), width).astype(np.float64)
    _, values, right = np.linalg.svd(matrix)
    assert found.shape == (matrix.shape[1], width)
    used, rest = found[:, :rank], found[:, rank:]
    np.testing.assert_allclose(np.linalg.norm(matrix @ used, axis=0), values[:rank], rtol=1e-4)
    np.testing.assert_allclose(used.T @ used, np.eye(rank), atol=1e-4)
    # The subspaces are the same if all angles between them are zero.
    np.testing.assert_allclose(np.linalg.svd(right[:rank] @ used)[1], 1, atol=1e-4)
    np.testing.assert_allclose(matrix @ rest, 0, atol=1e-4)
    assert np.abs(rest).max(initial=0) < 1.01


@EITHER_WAY
@pytest.mark.parametrize("shape", [(5, 6), (1, 1)])
def test_documents_without_anything_have_no_direction(
    shape: tuple[int, int], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lsa, "FEW", few)
    found = principal_directions(sparse.csr_matrix(shape, dtype=np.float32), 1)
    np.testing.assert_array_equal(found, np.zeros((shape[1], 1)))


def test_it_is_the_same_every_time_and_signs_are_fixed() -> None:
    matrix = sparse.csr_matrix(SPARSE.astype(np.float32))
    first, second = principal_directions(matrix, 12), principal_directions(matrix.copy(), 12)
    np.testing.assert_array_equal(first, second)
    assert (first.sum(0) >= 0).all()
    flipped = principal_directions(-matrix, 12)
    np.testing.assert_allclose(np.abs(flipped.T @ first).diagonal(), 1, atol=1e-3)


def test_of_much_text_a_sample_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many documents as it takes, drawn at random and always the same."""
    texts = reviews(200).texts
    whole = view(texts)
    monkeypatch.setattr(lsa, "SAMPLED", 10)
    monkeypatch.setattr(lsa, "ENTRIES", 3_000)
    first, second = view(texts), view(texts)
    np.testing.assert_array_equal(first.table, second.table)
    each = sum(kind.read(EncodedTexts(texts)).matrix.nnz for kind in whole.kinds) / len(texts)
    rows = first._sample(EncodedTexts(texts)).shape[0]
    assert 0.7 * 3_000 / each < rows < 1.5 * 3_000 / each < len(texts)


def test_ngrams_are_those_of_the_views_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lsa._Words, "limit", 30)
    texts = reviews(80).texts
    model = Model(miniature("bag"))
    words = WordsView(model, NoOptions())
    words.learn(EncodedTexts(texts))
    made = LsaView(model, NoOptions())
    made.learn(EncodedTexts(texts), [words])
    own, others = made.kinds
    assert others.terms == 0  # no view of characters stands beside it
    alone = lsa._Words(model, NoOptions())
    alone.learn(EncodedTexts(texts))
    assert own.terms == alone.terms == 30 < words.terms
    np.testing.assert_array_equal(own.keys, alone.keys)
    np.testing.assert_allclose(own.scale, alone.scale)


def view(texts: list[str]) -> LsaView:
    [made] = learn_views(Model(miniature("bag")), ["lsa"], texts)
    assert isinstance(made, LsaView)
    return made


def dense(made: LsaView, texts: list[str]) -> np.ndarray:
    """TF-IDF of words and of characters, each at unit length, side by side."""
    parts = []
    for kind in made.kinds:
        features = kind.read(EncodedTexts(texts)).matrix.toarray() * kind.scale
        parts.append(features / np.maximum(1e-12, np.linalg.norm(features, axis=1, keepdims=True)))
    return np.concatenate(parts, 1)


def test_a_text_is_the_sum_of_its_ngrams_along_the_directions() -> None:
    texts = [*reviews(60).texts, *SCRIPTS * 2]
    made = view(texts)
    new = [*reviews(5, 3).texts, "这部电影很好", "", "qqqq"]
    raw = made.read(EncodedTexts(new))
    assert raw.matrix.dtype == np.float32
    assert raw.matrix.shape == (len(new), made.columns)
    np.testing.assert_allclose(raw.matrix, dense(made, new) @ made.table, atol=1e-5)
    whole = dense(made, texts)
    values = np.linalg.svd(whole)[1]
    found = np.linalg.norm(whole @ made.table, axis=0)
    np.testing.assert_allclose(found[:10], values[:10], rtol=1e-3)
    vectors = whole @ made.table
    np.testing.assert_allclose(made.shift, vectors.mean(0), atol=1e-5)
    np.testing.assert_allclose(made.covariance, np.cov(vectors.T), atol=1e-5)
    axes, apart = made.components * made.deviations, vectors - vectors.mean(0)
    widest = np.linalg.eigvalsh(np.cov(vectors.T))[-1]
    np.testing.assert_allclose(axes[:, :5] @ axes[:, :5].T * widest, _low_rank(np.cov(apart.T), 5), atol=1e-4)


def _low_rank(matrix: np.ndarray, rank: int) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    kept: np.ndarray = vectors[:, -rank:] * values[-rank:] @ vectors[:, -rank:].T
    return kept


def test_texts_without_any_known_ngram_are_zeros() -> None:
    made = view(reviews(30).texts)
    raw = made.read(EncodedTexts(["", "XQ", "电影"]))
    np.testing.assert_array_equal(raw.matrix, np.zeros((3, made.columns)))
    # As any document, they are measured from the mean document.
    np.testing.assert_allclose(
        made.transform(raw), np.tile(-made.shift / np.linalg.norm(made.shift), (3, 1)), atol=1e-6
    )


@pytest.mark.parametrize("texts", [[""], ["a"], ["a", "b"], ["", ""], ["same"] * 5])
def test_few_texts(texts: list[str]) -> None:
    """Fewer documents than directions, and those that have nothing in common: whatever there is to learn is learnt."""
    made = LsaView(Model(miniature("bag")), NoOptions())
    made.learn(EncodedTexts(texts))
    raw = made.read(EncodedTexts(["same", "a"]))
    made.fit(raw)
    features = made.transform(raw)
    assert features.shape == (2, made.columns)
    assert np.isfinite(features).all()
    assert made.columns <= min(len(texts), made.terms)
    assert np.isfinite(made.components).all()


def test_two_views_that_learnt_the_same_are_the_same() -> None:
    texts = reviews(40).texts
    first, second, other = view(texts), view(list(texts)), view(texts[:-1])
    assert first.state() == second.state() != other.state()
    np.testing.assert_array_equal(first.table, second.table)
