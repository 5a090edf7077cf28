"""The vectors teach the words: each step against the same written out, and nothing of left-out labels in it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rehead.finetune.features import Features, Seen, in_space, unevenness
from rehead.finetune.linear import Linear, fit_average
from rehead.finetune.logistic import separate
from rehead.finetune.options import FitOptions
from rehead.finetune.probe import Probe, find_probe
from rehead.finetune.self_training import (
    EXAMPLE,
    STRENGTH,
    self_trained,
    size_of,
    sureness,
    together,
    words_of_guesses,
)
from rehead.model.reading import encode
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews

KINDS = [("bad", "good"), ("bad", "good", "so")]


def read(make_base: MakeBase, names: tuple[str, ...]) -> tuple[Probe, Features]:
    """A probe on few examples, and documents without labels in the same space."""
    base = make_base()
    assert base.tokenizer is not None
    probe = find_probe(reviews(36, names=names), base, FitOptions(), words=True)
    texts = encode(base.tokenizer, reviews(60, 4, names=names).texts)
    return probe, in_space(Seen.by(base.model, texts), probe.examples.space)


@pytest.mark.parametrize("names", KINDS, ids=len)
def test_words_learn_from_examples_and_from_guesses_by_how_sure_these_are(
    make_base: MakeBase, names: tuple[str, ...]
) -> None:
    probe, unlabelled = read(make_base, names)
    examples = probe.examples
    scores = probe.linear.scores(unlabelled)
    found = words_of_guesses(examples, unlabelled, scores)
    table = np.concatenate([unlabelled.words.toarray(), examples.features.words.toarray()])
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    sure = (len(names) * shares.max(1) - 1) / (len(names) - 1)
    assert sureness(scores) == pytest.approx(sure)
    truth = np.concatenate([scores.argmax(1), examples.truth])
    weights = np.concatenate([sure, np.full(len(examples), EXAMPLE)])
    from scipy import sparse

    table = table * unevenness(sparse.csr_matrix(table), truth, len(names)) * ((table > 0).sum(0) >= 3)
    for label in range(len(names)):
        model = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=5000)
        expected = model.fit(table, truth == label, sample_weight=weights).decision_function(table[:60])
        given = found.word_scores(unlabelled)[:, label] + found.bias[label]
        given = 2 * given if len(names) == 2 else given
        # liblinear holds the bias back, too, and stops early.
        assert np.corrcoef(given, expected)[0, 1] > 0.99
        assert np.abs(given - expected).max() < 0.25 * np.abs(expected).max()
    assert not found.directions.any()


@pytest.mark.parametrize("names", KINDS, ids=len)
def test_both_are_added_at_the_same_size(make_base: MakeBase, names: tuple[str, ...]) -> None:
    probe, unlabelled = read(make_base, names)
    _, linear = self_trained(probe, unlabelled)
    teacher = fit_average(probe.examples, probe.found.settings).scores(unlabelled)
    words = linear.scores(unlabelled) - teacher
    words = words - words.mean(0)  # but for the bias
    assert 0.5 < size_of(words) / size_of(teacher) < 2
    assert size_of(np.array([[1.0, -1.0], [4.0, 2.0]])) == 1.0
    np.testing.assert_allclose(size_of(np.array([[1.0, -5.0], [3.0, 1.0]]), multilabel=True), [1.0, 3.0])


def test_of_several_labels_each_is_learnt_for_itself(make_base: MakeBase) -> None:
    base = make_base()
    assert base.tokenizer is not None
    probe = find_probe(multilabel(48), base, FitOptions(), words=True)
    texts = encode(base.tokenizer, multilabel(60, 4).texts)
    unlabelled = in_space(Seen.by(base.model, texts), probe.examples.space)
    examples, scores = probe.examples, probe.linear.scores(unlabelled)
    found = words_of_guesses(examples, unlabelled, scores)
    shares = 1 / (1 + np.exp(-scores))
    assert sureness(scores, multilabel=True) == pytest.approx(np.abs(2 * shares - 1))
    truth = np.concatenate([shares > 0.5, examples.truth > 0])
    weights = np.concatenate([np.abs(2 * shares - 1), np.full(examples.truth.shape, EXAMPLE)])
    from scipy import sparse

    table = np.concatenate([unlabelled.words.toarray(), examples.features.words.toarray()])
    table = table * unevenness(sparse.csr_matrix(table), truth, 3) * ((table > 0).sum(0) >= 3)
    for label in range(3):
        model = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=5000)
        expected = model.fit(table, truth[:, label], sample_weight=weights[:, label]).decision_function(table[:60])
        given = found.word_scores(unlabelled)[:, label] + found.bias[label]
        assert np.corrcoef(given, expected)[0, 1] > 0.99
        assert np.abs(given - expected).max() < 0.25 * np.abs(expected).max()
    _, linear = self_trained(probe, unlabelled)
    teacher = fit_average(examples, probe.found.settings).scores(unlabelled)
    assert size_of(linear.scores(unlabelled) - teacher, multilabel=True) / size_of(
        teacher, multilabel=True
    ) == pytest.approx(np.full(3, 1.5), abs=0.5)


def test_classifiers_add_up() -> None:
    first = Linear(np.ones((2, 3)), np.array([1, 4]), np.array([[1.0, 2], [3, 4]]), np.array([0.5, -0.5]))
    second = Linear(np.zeros((2, 3)), np.array([0, 4]), np.array([[10.0, 20], [30, 40]]), np.array([1.0, 0.0]))
    found = together(first, second, np.array(0.1))
    assert found.rows.tolist() == [0, 1, 4]
    np.testing.assert_allclose(found.words, [[1, 1, 4], [3, 3, 8]])
    np.testing.assert_allclose(found.bias, [0.6, -0.5])
    np.testing.assert_allclose(found.directions, np.ones((2, 3)))
    np.testing.assert_allclose(together(first, second, np.array([0.1, 0.0])).words, [[1, 1, 4], [0, 3, 4]])


def test_left_out_labels_are_not_seen(make_base: MakeBase) -> None:
    probe, unlabelled = read(make_base, ("bad", "good"))
    outside = probe.folds[0][1]
    truth = probe.examples.truth.copy()
    truth[outside] = 1 - truth[outside]
    other = dataclasses.replace(probe, examples=dataclasses.replace(probe.examples, truth=truth))
    one, _ = self_trained(probe, unlabelled)
    two, _ = self_trained(other, unlabelled)
    np.testing.assert_array_equal(one.logits[outside], two.logits[outside])
    rest = probe.folds[1][1]
    assert not np.allclose(one.logits[rest], two.logits[rest])
    assert not np.isnan(one.logits).any()


def test_a_class_that_nobody_was_taken_for_has_no_words() -> None:
    from scipy import sparse

    inputs = sparse.csr_matrix(np.eye(4))
    weight, bias = separate(inputs, np.array([0, 0, 2, 2]), 4, 1.0, np.ones(4))
    assert not weight[[1, 3]].any()
    assert (bias[[1, 3]] < bias[[0, 2]]).all()
    weight, bias = separate(inputs, np.ones(4, np.int64), 2, 1.0, np.ones(4))
    assert not weight.any()
    assert bias[1] > 0 > bias[0]


def test_a_rare_class_may_count_as_much() -> None:
    from scipy import sparse

    inputs, truth = sparse.csr_matrix((30, 1)), np.array([0] * 25 + [1] * 5)
    for balanced, share in ((False, 1 / 6), (True, 0.5)):
        _, bias = separate(inputs, truth, 2, 100.0, np.ones(30), balanced=balanced)
        assert 1 / (1 + np.exp(bias[0] - bias[1])) == pytest.approx(share, abs=0.03)


def test_threads_do_not_change_what_comes_out() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from scipy import sparse

    rng = np.random.default_rng(0)
    inputs = sparse.random(3000, 2000, 0.02, "csr", random_state=0)
    truth = (rng.random(3000) < 0.5).astype(np.int64)
    alone, _ = separate(inputs, truth, 2, 10.0, np.ones(3000))
    with ThreadPoolExecutor(4) as pool:
        for each in pool.map(lambda _: separate(inputs, truth, 2, 10.0, np.ones(3000))[0], range(8)):
            np.testing.assert_array_equal(each, alone)
