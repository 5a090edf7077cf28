"""Linear classifiers and their search, against scikit-learn on features that are written out."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from rehead.finetune.features import read_documents, unevenness
from rehead.model.reading import encode
from sklearn.linear_model import LogisticRegression

from rehead.finetune.linear import (
    STRENGTHS,
    Examples,
    Setting,
    Tried,
    average,
    best_strength,
    fit_average,
    fit_path,
    left_out,
    mean_loss,
    search,
)
from rehead.finetune.logistic import losses_of, one_thread
from rehead.finetune.splits import folds
from rehead.finetune.targets import targets
from rehead.text.documents import LabelledData
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews


def read(make_base: MakeBase, data: LabelledData) -> Examples:
    base = make_base()
    assert base.tokenizer is not None
    features, space = read_documents(base.model, encode(base.tokenizer, data.texts))
    return Examples(features, targets(data, data.names, multilabel=data.multilabel), space, len(data.names))


def written_out(examples: Examples, power: float, words: float) -> Any:
    """The table that a logistic regression is fitted to: axes, then words, each as much as it counts."""
    spread = examples.space.spread
    scale = spread ** (power - 1)
    scale = scale * np.sqrt((spread**2).sum() / (spread**2 * scale**2).sum())
    dense = (examples.features.directions @ examples.space.axes) * scale
    if not words:
        return dense
    table = examples.features.words.toarray()
    often = (table > 0).sum(0) >= 2
    uneven = unevenness(examples.features.words, examples.truth, examples.classes)
    return np.hstack([dense, words * (table * uneven)[:, often]])


@pytest.mark.parametrize(("power", "words"), [(1.0, 0.0), (2.0, 0.0), (3.0, 4.0)])
@pytest.mark.parametrize("names", [("bad", "good"), ("bad", "good", "so")], ids=len)
@pytest.mark.parametrize("balanced", [False, True])
def test_it_is_a_logistic_regression(
    make_base: MakeBase, power: float, words: float, names: tuple[str, ...], balanced: bool
) -> None:
    data = reviews(45, names=names)
    weights = np.random.RandomState(0).rand(45) + 0.5
    examples = dataclasses.replace(read(make_base, data), balanced=balanced, weights=weights)
    features, truth = examples.features, examples.truth
    table = written_out(examples, power, words)
    strengths = (0.3, 3.0)
    for strength, linear in zip(strengths, fit_path(examples, power, words, strengths), strict=True):
        model = LogisticRegression(C=strength, tol=1e-8, max_iter=5000, class_weight="balanced" if balanced else None)
        expected = model.fit(table, truth, sample_weight=weights).predict_proba(table)
        scores = linear.scores(features)
        shares = np.exp(scores - scores.max(1, keepdims=True))
        np.testing.assert_allclose(shares / shares.sum(1, keepdims=True), expected, atol=0.03)
        assert bool(len(linear.rows)) == bool(words)
        without = features.directions @ linear.directions.T + linear.bias
        np.testing.assert_allclose(scores - without, linear.word_scores(features), atol=1e-9)


def test_each_of_several_labels_has_its_own(make_base: MakeBase) -> None:
    data = multilabel(50)
    examples = read(make_base, data)
    (linear,) = fit_path(examples, 2.0, 4.0, [3.0])
    table = written_out(examples, 2.0, 4.0)
    for label in range(3):
        model = LogisticRegression(C=3.0, tol=1e-8, max_iter=5000).fit(table, examples.truth[:, label])
        scores = linear.scores(examples.features)[:, label]
        np.testing.assert_allclose(1 / (1 + np.exp(-scores)), model.predict_proba(table)[:, 1], atol=0.03)


def test_a_class_that_is_not_there_is_unlikely(make_base: MakeBase) -> None:
    examples = read(make_base, reviews(20))

    def scores(truth: Any, classes: int) -> Any:
        (linear,) = fit_path(dataclasses.replace(examples, truth=truth, classes=classes), 1.0, 0.0, [1.0])
        return linear.scores(examples.features)

    assert set(scores(examples.truth, 4).argmax(1).tolist()) <= {0, 1}
    assert set(scores(np.full(20, 2), 4).argmax(1).tolist()) == {2}
    assert (np.sign(scores(np.array([[1, 0]] * 20, np.float32), 2)) == [1, -1]).all()


def test_losses() -> None:
    scores = np.array([[1.0, 3.0], [0.0, 0.0], [np.nan, np.nan]])
    one = np.log(1 + np.exp(-2.0))
    np.testing.assert_allclose(losses_of(scores[:2], np.array([1, 0])), [one, np.log(2)])
    assert mean_loss(scores, np.array([1, 0, 0])) == pytest.approx((one + np.log(2)) / 2)
    table = np.array([[1, 0]], np.float32)
    expected = (np.log(1 + np.exp(-1.0)) + np.log(1 + np.exp(3.0))) / 2
    np.testing.assert_allclose(losses_of(scores[:1], table), [expected])


def test_balanced_losses_are_means_of_the_classes() -> None:
    """As if the rare class had been repeated until there are as many of it; of several labels, for each of them."""
    chance = np.random.RandomState(0)
    scores, truth = chance.randn(8, 2), np.array([0, 1, 0, 0, 0, 1, 0, 0])
    repeated = np.concatenate([np.arange(8), [1, 5, 1, 5]])
    expected = losses_of(scores[repeated], truth[repeated]).mean()
    assert mean_loss(scores, truth, balanced=True) == pytest.approx(expected)
    assert mean_loss(scores, truth) != pytest.approx(expected)
    table = np.stack([truth, np.zeros(8)], 1).astype(np.float32)
    alone = np.stack([np.zeros(8), scores[:, 0]], 1)
    of_first = losses_of(alone[repeated], truth[repeated]).mean()
    of_second = np.logaddexp(0, scores[:, 1]).mean()
    assert mean_loss(scores, table, balanced=True) == pytest.approx((of_first + of_second) / 2)


def test_the_search_finds_what_trying_all_finds(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    data = reviews(36, names=("bad", "good", "so"))
    examples = read(make_base, data)
    truth = examples.truth
    parts = folds(data, 3, 0)
    monkeypatch.setattr("rehead.finetune.linear.POWERS", (1.0, 2.0))
    found = search(examples, parts, words=())
    losses: dict[tuple[float, float], float] = {}
    for power in (1.0, 2.0):
        for strength in STRENGTHS:
            logits = np.full((36, 3), np.nan)
            for inside, outside in parts:
                table = written_out(examples, power, 0.0)
                model = LogisticRegression(C=strength, tol=1e-8, max_iter=5000).fit(table[inside], truth[inside])
                logits[outside] = model.decision_function(table[outside])
            losses[power, strength] = mean_loss(logits, truth)
    best = min(losses, key=lambda each: losses[each])
    assert (found.settings[0].power, found.settings[0].strength) == best
    for power in (1.0, 2.0):
        lowest = min(losses[power, strength] for strength in STRENGTHS)
        assert best_strength(examples, parts, power, 0.0, STRENGTHS).loss == pytest.approx(lowest, abs=0.01)
    assert not np.isnan(found.logits).any()


def test_left_out_labels_are_not_seen(make_base: MakeBase) -> None:
    """Turned round, they change nothing of what their documents are given, though words are weighed by labels."""
    data = reviews(24)
    examples = read(make_base, data)
    inside, outside = folds(data, 2, 0)[0]
    other = examples.truth.copy()
    other[outside] = 1 - other[outside]
    for words in (0.0, 4.0):
        one, two = (
            left_out(dataclasses.replace(examples, truth=labels), [(inside, outside)], 2.0, words, (1.0, 10.0))
            for labels in (examples.truth, other)
        )
        for strength in (1.0, 10.0):
            np.testing.assert_array_equal(one[strength], two[strength])
            assert np.isnan(one[strength][inside]).all()


def test_settings_that_chance_cannot_tell_apart_are_averaged() -> None:
    truth = np.arange(40) % 2
    good = np.where(truth[:, None] == np.arange(2), 2.0, 0.0)
    noisy = good + 0.05 * (np.arange(40) // 2 % 2 * 2 - 1)[:, None] * [1, -1]
    bad = -good
    tried = [
        Tried(Setting(float(place), 0.0, 1.0), each, mean_loss(each, truth))
        for place, each in enumerate((bad, noisy, good))
    ]
    found = average(tried, truth)
    assert {each.power for each in found.settings} == {1.0, 2.0}
    np.testing.assert_allclose(found.logits, (good + noisy) / 2)
    assert found.settings[0].power == 2.0


def test_an_average_of_classifiers_scores_their_mean(make_base: MakeBase) -> None:
    examples = read(make_base, reviews(40))
    settings = [Setting(1.0, 0.0, 1.0), Setting(2.0, 4.0, 10.0), Setting(3.0, 1.0, 3.0)]
    together = fit_average(examples, settings).scores(examples.features)
    each = [fit_average(examples, [setting]).scores(examples.features) for setting in settings]
    np.testing.assert_allclose(together, np.mean(each, axis=0), atol=1e-9)
    assert str(settings[1]) == "power 2, words 4, strength 10"
    assert str(settings[0]) == "power 1, strength 1"


def test_solvers_have_one_thread_and_leave_the_others_theirs() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_thread():
            assert threads() <= {1}
        assert threads() == before
