"""Linear classifiers on the features of views, against scikit-learn on features that are written out."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from rehead.finetune.examples import Examples, read_examples
from rehead.finetune.linear import LinearClassifier, fit_path, mean_classifier, naive_bayes_scale
from rehead.finetune.logistic import fit_one_vs_rest, log_losses, one_thread
from rehead.finetune.targets import targets
from rehead.text.documents import LabelledData
from rehead.views.neural import neural_view
from rehead.views.view import DenseView
from rehead.views.words import WordsOptions, WordsView
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews


def read(make_base: MakeBase, data: LabelledData) -> Examples:
    base = make_base()
    views = [neural_view(base.model), WordsView(base.model, WordsOptions())]
    truth = targets(data, data.names, multilabel=data.multilabel)
    return read_examples(base, views, data.texts, truth, len(data.names), balanced=False)


def written_out(examples: Examples, power: float, words: float) -> Any:
    """The table that a logistic regression is fitted to: axes, then words, each times its scale."""
    view = examples.views[0]
    assert isinstance(view, DenseView)
    scale = view.deviations ** (power - 1)
    scale = scale * np.sqrt((view.deviations**2).sum() / (view.deviations**2 * scale**2).sum())
    dense = (examples.features["bag"] @ view.components) * scale
    if not words:
        return dense
    columns, uneven = naive_bayes_scale(examples.features["words"], examples.truth, examples.classes, 2)
    return np.hstack([dense, words * examples.features["words"].toarray()[:, columns] * uneven])


@pytest.mark.parametrize(("power", "words"), [(1.0, 0.0), (2.0, 0.0), (3.0, 4.0)])
@pytest.mark.parametrize("names", [("bad", "good"), ("bad", "good", "so")], ids=len)
@pytest.mark.parametrize("balanced", [False, True])
def test_it_is_a_logistic_regression(
    make_base: MakeBase, power: float, words: float, names: tuple[str, ...], balanced: bool
) -> None:
    examples = dataclasses.replace(read(make_base, reviews(45, names=names)), balanced=balanced)
    examples = examples.take(np.arange(len(names) - 1, 45))  # so that classes are not of one size
    table, Cs = written_out(examples, power, words), (0.3, 3.0)  # noqa: N806
    settings = {"power": power, "words": words}
    for C, linear in zip(Cs, fit_path(examples, settings, Cs), strict=True):  # noqa: N806
        model = LogisticRegression(C=C, tol=1e-8, max_iter=5000, class_weight="balanced" if balanced else None)
        expected = model.fit(table, examples.truth).predict_proba(table)
        scores = linear.scores(examples)
        shares = np.exp(scores - scores.max(1, keepdims=True))
        np.testing.assert_allclose(shares / shares.sum(1, keepdims=True), expected, atol=0.03)
        assert bool(len(linear.columns["words"])) == bool(words)
        without = examples.features["bag"] @ linear.weights["bag"].T + linear.bias
        np.testing.assert_allclose(scores - without, linear.view_scores(examples, "words"), atol=1e-9)


def test_each_of_several_labels_has_its_own(make_base: MakeBase) -> None:
    examples = read(make_base, multilabel(50))
    (linear,) = fit_path(examples, {"power": 2.0, "words": 4.0}, [3.0])
    table = written_out(examples, 2.0, 4.0)
    for label in range(3):
        model = LogisticRegression(C=3.0, tol=1e-8, max_iter=5000).fit(table, examples.truth[:, label])
        scores = linear.scores(examples)[:, label]
        np.testing.assert_allclose(1 / (1 + np.exp(-scores)), model.predict_proba(table)[:, 1], atol=0.03)


def test_a_class_without_examples_is_unlikely(make_base: MakeBase) -> None:
    examples = read(make_base, reviews(20))

    def scores(truth: Any, classes: int) -> Any:
        changed = dataclasses.replace(examples, truth=truth, classes=classes)
        (linear,) = fit_path(changed, {"power": 1.0, "words": 0.0}, [1.0])
        return linear.scores(examples)

    assert set(scores(examples.truth, 4).argmax(1).tolist()) <= {0, 1}
    assert set(scores(np.full(20, 2), 4).argmax(1).tolist()) == {2}
    assert (np.sign(scores(np.array([[1, 0]] * 20, np.float32), 2)) == [1, -1]).all()


def test_log_losses() -> None:
    scores = np.array([[1.0, 3.0], [0.0, 0.0]])
    np.testing.assert_allclose(log_losses(scores, np.array([1, 0])), [np.log(1 + np.exp(-2.0)), np.log(2)])
    table = np.array([[1, 0]], np.float32)
    expected = (np.log(1 + np.exp(-1.0)) + np.log(1 + np.exp(3.0))) / 2
    np.testing.assert_allclose(log_losses(scores[:1], table), [expected])


def test_balanced_losses_are_means_of_the_classes() -> None:
    """As if the rare class had been repeated until there are as many of it; of several labels, for each of them."""
    chance = np.random.RandomState(0)
    scores, truth = chance.randn(8, 2), np.array([0, 1, 0, 0, 0, 1, 0, 0])
    repeated = np.concatenate([np.arange(8), [1, 5, 1, 5]])
    expected = log_losses(scores[repeated], truth[repeated]).mean()
    assert log_losses(scores, truth, balanced=True).mean() == pytest.approx(expected)
    assert log_losses(scores, truth).mean() != pytest.approx(expected)
    table = np.stack([truth, np.zeros(8)], 1).astype(np.float32)
    alone = np.stack([np.zeros(8), scores[:, 0]], 1)
    of_first = log_losses(alone[repeated], truth[repeated]).mean()
    of_second = np.logaddexp(0, scores[:, 1]).mean()
    assert log_losses(scores, table, balanced=True).mean() == pytest.approx((of_first + of_second) / 2)


def test_classifiers_are_averaged_or_added_up() -> None:
    columns = {"words": np.array([1, 4])}, {"words": np.array([0, 4])}
    first = LinearClassifier(
        {"bag": np.ones((2, 3)), "words": np.array([[1.0, 2], [3, 4]])}, columns[0], np.array([0.5, -0.5])
    )
    second = LinearClassifier(
        {"bag": np.zeros((2, 3)), "words": np.array([[10.0, 20], [30, 40]])}, columns[1], np.array([1.0, 0.0])
    )
    found = mean_classifier([first, second], [np.ones(2), np.array([0.1, 0.1])])
    assert found.columns["words"].tolist() == [0, 1, 4]
    np.testing.assert_allclose(found.weights["words"], [[1, 1, 4], [3, 3, 8]])
    np.testing.assert_allclose(found.bias, [0.6, -0.5])
    np.testing.assert_allclose(found.weights["bag"], np.ones((2, 3)))
    each = mean_classifier([first, second], [np.ones(2), np.array([0.1, 0.0])])
    np.testing.assert_allclose(each.weights["words"], [[1, 1, 4], [0, 3, 4]])
    mean = mean_classifier([first, second])
    np.testing.assert_allclose(mean.weights["words"], [[5, 0.5, 11], [15, 1.5, 22]])
    np.testing.assert_allclose(mean.bias, [0.75, -0.25])


def test_the_scale_of_words_is_the_log_count_ratio_of_naive_bayes() -> None:
    there = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0]])
    weighted = there * np.array([0.3, 0.5, 2.0, 1.0])  # weights do not matter, only whether a row is there
    p, q = 1 + there[:2].sum(0), 1 + there[2:].sum(0)
    expected = np.abs(np.log((p / p.sum()) / (q / q.sum())))
    columns, scale = naive_bayes_scale(sparse.csr_matrix(weighted), np.array([0, 0, 1, 1]), 2, 1)
    assert columns.tolist() == [0, 1, 2]  # the last occurs nowhere
    np.testing.assert_allclose(scale, expected[:3])
    often, scale = naive_bayes_scale(sparse.csr_matrix(weighted), np.array([0, 0, 1, 1]), 2, 3)
    assert often.tolist() == [0, 1]
    np.testing.assert_allclose(scale, expected[:2])


def test_the_scale_of_words_over_more_classes_and_labels() -> None:
    chance = np.random.RandomState(0)
    there = (chance.rand(12, 5) < 0.5).astype(float)
    truth = chance.randint(0, 3, 12)

    def ratio(members: np.ndarray) -> np.ndarray:
        p, q = 1 + there[members].sum(0), 1 + there[~members].sum(0)
        return np.log((p / p.sum()) / (q / q.sum()))

    expected = np.sqrt(np.mean([ratio(truth == label) ** 2 for label in range(3)], axis=0))
    # A class without examples says nothing, nor does one that all have.
    columns, scale = naive_bayes_scale(sparse.csr_matrix(there), truth, 4, 1)
    assert columns.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(scale, expected)
    table = np.stack([truth == 0, truth != 1, np.ones(12, bool)], 1).astype(np.float32)
    expected = np.sqrt(np.mean([ratio(truth == 0) ** 2, ratio(truth != 1) ** 2], axis=0))
    np.testing.assert_allclose(naive_bayes_scale(sparse.csr_matrix(there), table, 3, 1)[1], expected)


def test_one_vs_rest_gives_a_class_without_examples_no_weights() -> None:
    inputs = sparse.csr_matrix(np.eye(4))
    weight, bias = fit_one_vs_rest(inputs, np.array([0, 0, 2, 2]), 4, 1.0, np.ones(4))
    assert not weight[[1, 3]].any()
    assert (bias[[1, 3]] < bias[[0, 2]]).all()
    weight, bias = fit_one_vs_rest(inputs, np.ones(4, np.int64), 2, 1.0, np.ones(4))
    assert not weight.any()
    assert bias[1] > 0 > bias[0]


def test_one_vs_rest_may_balance_classes() -> None:
    inputs, truth = sparse.csr_matrix((30, 1)), np.array([0] * 25 + [1] * 5)
    for balanced, share in ((False, 1 / 6), (True, 0.5)):
        _, bias = fit_one_vs_rest(inputs, truth, 2, 100.0, np.ones(30), balanced=balanced)
        assert 1 / (1 + np.exp(bias[0] - bias[1])) == pytest.approx(share, abs=0.03)


def test_one_vs_rest_gives_the_same_in_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    inputs = sparse.random(1000, 800, 0.03, "csr", random_state=0)
    truth = (np.random.default_rng(0).random(1000) < 0.5).astype(np.int64)
    alone, _ = fit_one_vs_rest(inputs, truth, 2, 10.0, np.ones(1000))
    with ThreadPoolExecutor(4) as pool:
        for each in pool.map(lambda _: fit_one_vs_rest(inputs, truth, 2, 10.0, np.ones(1000))[0], range(8)):
            np.testing.assert_array_equal(each, alone)


def test_solvers_have_one_thread_and_leave_the_others_theirs() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_thread():
            assert threads() <= {1}
        assert threads() == before
