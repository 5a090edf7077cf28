"""Thresholds against searches over everything, and against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.finetune import thresholds
from rehead.finetune.metrics import DecisionRule, accuracy, macro_f1, micro_f1, per_class, predicted_labels
from rehead.finetune.options import Metric
from rehead.finetune.thresholds import (
    GRID,
    Decisions,
    choose_rule,
    class_thresholds,
    exact_threshold,
    find_thresholds,
    stratified,
    tune_rule,
)


def made(count: int, frequencies: list[float], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities of labels of these frequencies, and the truth."""
    chance, prior = np.random.default_rng(seed), np.array(frequencies)
    truth = chance.random((count, len(prior))) < prior
    scores = 1.5 * truth + chance.normal(size=truth.shape)
    odds = np.exp(1.5 * scores - 1.5**2 / 2) * prior / (1 - prior)  # the ratio of two normal densities
    return odds / (1 + odds), truth


def imbalanced(count: int, seed: int = 0, skill: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities of three classes, of which the rarest has one document in twenty."""
    chance = np.random.default_rng(seed)
    prior = np.array([0.8, 0.15, 0.05])
    truth = chance.choice(3, size=count, p=prior)
    scores = skill * (np.eye(3)[truth] + chance.normal(size=(count, 3))) + np.log(prior)
    shares = np.exp(scores)
    return shares / shares.sum(1, keepdims=True), truth


def thresholds_of(found: Decisions) -> list[float]:
    assert found.rule.thresholds is not None
    return found.rule.thresholds


def test_thresholds_are_the_best_of_all() -> None:
    chance = np.random.RandomState(1)
    truth = (chance.rand(300, 2) < (0.1, 0.5)).astype(np.float32)
    shares = np.clip(0.15 + 0.25 * truth + 0.15 * chance.randn(300, 2), 0, 1).round(2)  # with many equals
    found = find_thresholds(shares, truth)
    for label, threshold in enumerate(found):
        tried = np.linspace(0.05, 0.95, 181)
        scores = [_f1(shares, truth, label, each) for each in tried]
        assert _f1(shares, truth, label, threshold) == pytest.approx(max(scores))
    assert found[0] < 0.5


def test_a_label_that_hardly_occurs_keeps_one_half() -> None:
    truth = np.zeros((50, 2))
    truth[:4, 0] = truth[:46, 1] = 1
    assert find_thresholds(np.random.RandomState(0).rand(50, 2), truth) == [0.5, 0.5]


def test_the_documents_of_each_class_are_dealt_out_to_folds() -> None:
    parts = stratified(np.array([1, 0, 1, 0, 1, 0, 0]), 3)  # in this order: 1 3 5 6, 0 2 4
    assert [held_out.tolist() for _, held_out in parts] == [[1, 4, 6], [0, 3], [2, 5]]
    assert [rest.tolist() for rest, _ in parts] == [[0, 2, 3, 5], [1, 2, 4, 5, 6], [0, 1, 3, 4, 6]]
    tags = stratified(np.array([[1, 0], [1, 1], [1, 0], [0, 1], [1, 1]]), 2)  # 0 2 are of the first label: 1 3 4 not
    assert [held_out.tolist() for _, held_out in tags] == [[0, 1, 4], [2, 3]]
    rounds = stratified(np.arange(50) % 10)  # a file in which classes take turns
    assert all(np.bincount(np.arange(50)[held_out] % 10).tolist() == [1] * 10 for _, held_out in rounds)
    assert len(stratified(np.arange(3))) == 3  # no empty fold
    assert stratified(np.zeros(1, np.int64)) == stratified(np.zeros((0, 2))) == []


def test_a_shared_threshold_is_the_best_for_micro_f1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "OWN_FROM", (None,))
    probabilities, truth = made(300, [0.3, 0.1, 0.05])
    found = choose_rule(probabilities, truth, metric="micro-f1")
    assert len(set(thresholds_of(found))) == 1
    best = max(micro_f1(truth, probabilities >= each) for each in np.unique(probabilities))
    assert micro_f1(truth, probabilities >= thresholds_of(found)[0]) == pytest.approx(best)
    assert found.micro_f1 <= best  # tuned on other folds


def test_for_accuracy_it_is_the_best_for_exact_match_and_micro_f1() -> None:
    probabilities, truth = made(200, [0.4, 0.2, 0.1, 0.1])
    truth[:3], truth[3:6] = True, False  # all labels, and none
    probabilities[10:14] = probabilities[10:14].round(1)  # with equals
    tried = [(accuracy(truth, probabilities >= each) + micro_f1(truth, probabilities >= each)) / 2 for each in GRID]
    assert exact_threshold(probabilities, truth) == GRID[int(np.argmax(tried))]
    assert exact_threshold(probabilities[:2], truth[:2, :]) == 0.5  # nothing is false: too few to tune


def test_the_score_of_a_metric_is_what_it_says() -> None:
    found = Decisions(DecisionRule([0.5]), exact_match=0.2, micro_f1=0.4, macro_f1=0.1)
    assert found.by("accuracy") == pytest.approx(0.3)
    assert (found.by("micro-f1"), found.by("macro-f1")) == (0.4, 0.1)


def test_scores_are_those_of_thresholds_tuned_on_other_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "OWN_FROM", (5,))
    probabilities, truth = made(100, [0.3, 0.2])
    predicted = np.zeros_like(truth)
    fold_of = np.arange(100) // 20
    for fold in range(5):
        inside = fold_of == fold
        predicted[inside] = probabilities[inside] >= find_thresholds(probabilities[~inside], truth[~inside])
    folds = [(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)) for fold in range(5)]
    found = choose_rule(probabilities, truth.astype(np.float32), folds, metric="macro-f1")
    assert found.rule == DecisionRule(find_thresholds(probabilities, truth))
    assert found.exact_match == accuracy(truth, predicted)
    assert found.micro_f1 == micro_f1(truth, predicted)
    assert found.macro_f1 == macro_f1(truth, predicted, 2)


@pytest.mark.parametrize("metric", ["accuracy", "macro-f1", "micro-f1"])
def test_labels_share_a_threshold_unless_their_own_pays(metric: Metric) -> None:
    """Many examples of miscalibrated labels: each gets its own. Few examples of calibrated ones: they share."""
    probabilities, truth = made(4000, [0.5, 0.2, 0.2])
    odds = probabilities / (1 - probabilities) * np.exp([-3.0, 0.0, 3.0])
    assert len(set(thresholds_of(choose_rule(odds / (1 + odds), truth, metric=metric)))) == 3
    if metric != "macro-f1":
        assert len(set(thresholds_of(choose_rule(*made(120, [0.06] * 30), metric=metric)))) == 1


def test_rare_labels_do_not_cost_exact_matches() -> None:
    """Every text has one of thirty labels: a threshold for each gives too many of them."""
    chance = np.random.default_rng(0)
    prior = np.array([0.4, *[0.6 / 29] * 29])

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        truth = np.eye(30, dtype=bool)[chance.choice(30, size=count, p=prior)]
        odds = np.exp(1.5 * truth + chance.normal(size=truth.shape)) * prior
        return odds / (1 + odds), truth

    probabilities, truth = draw(500)
    later, real = draw(4000)
    exact = {"own": accuracy(real, later >= find_thresholds(probabilities, truth))}
    for metric in ("accuracy", "micro-f1"):
        found = choose_rule(probabilities, truth, metric=metric)
        exact[metric] = accuracy(real, predicted_labels(later, multilabel=True, rule=found.rule))
    assert exact["accuracy"] > exact["micro-f1"] > exact["own"]
    assert exact["accuracy"] > 1.5 * exact["own"]


@pytest.mark.parametrize("metric", ["accuracy", "macro-f1", "micro-f1"])
def test_too_few_documents_leave_one_half(metric: Metric) -> None:
    for count in (0, 1, 3):
        truth = np.eye(4, 2)[:count]
        assert thresholds_of(choose_rule(np.full((count, 2), 0.3), truth, metric=metric)) == [0.5, 0.5]


def one_of_many(count: int, seed: int = 0, classes: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities of labels of which every text has one, seldom two; hardly ever one is above a half."""
    chance = np.random.default_rng(seed)
    truth = np.eye(classes, dtype=bool)[chance.integers(classes, size=count)]
    truth |= chance.random(truth.shape) < 0.01
    odds = np.exp(2 * truth + chance.normal(size=truth.shape)) / 20
    return odds / (1 + odds), truth


@pytest.mark.parametrize("metric", ["accuracy", "micro-f1"])
def test_where_every_text_has_a_label_every_text_gets_one(metric: Metric) -> None:
    found = choose_rule(*one_of_many(600), metric=metric).rule
    assert found.at_least_one
    later, real = one_of_many(4000, seed=1)
    plain = choose_rule(*_with_an_empty_text(*one_of_many(600)), metric=metric).rule
    assert not plain.at_least_one  # a text may have none, so none is forced on it
    with_top, without = (predicted_labels(later, multilabel=True, rule=each) for each in (found, plain))
    assert with_top.any(1).all()
    assert not without.any(1).all()
    assert micro_f1(real, with_top) > micro_f1(real, without)
    assert accuracy(real, with_top) > accuracy(real, without) + 0.05


def _with_an_empty_text(probabilities: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    truth = truth.copy()
    truth[0] = False
    return probabilities, truth


def test_macro_f1_gets_thresholds_where_they_pay() -> None:
    shares, truth = imbalanced(2000)
    found = class_thresholds(shares, truth)
    assert found is not None
    assert sum(found) == pytest.approx(1)
    assert found[0] > found[1] > found[2]
    later, real = imbalanced(4000, seed=1)
    plain, tuned = (predicted_labels(later, multilabel=False, rule=DecisionRule(each)) for each in (None, found))
    assert macro_f1(real, tuned, 3) > macro_f1(real, plain, 3) + 0.03
    frequency = np.bincount(truth) + 1.0
    powers = [frequency**tau / (frequency**tau).sum() for tau in (0.25, 0.5, 0.75, 1.0)]
    best = max(powers, key=lambda each: macro_f1(truth, (shares / each).argmax(1), 3))
    assert found == pytest.approx(best.tolist())


def test_where_they_do_not_pay_the_most_probable_class_is_predicted() -> None:
    chance = np.random.default_rng(0)
    even = chance.integers(2, size=400)
    scores = np.eye(2)[even] + chance.normal(size=(400, 2))
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert class_thresholds(shares, even) is None
    assert class_thresholds(np.eye(3)[[0, 0, 0, 1, 2]], np.array([0, 0, 0, 1, 2])) is None  # all right already
    assert class_thresholds(np.array([[0.6, 0.4]]), np.array([1])) is None
    assert class_thresholds(np.zeros((0, 2)), np.zeros(0, np.int64)) is None


def test_few_examples_gain_on_average_and_never_lose_much() -> None:
    lost = []
    for seed in range(20):
        found = class_thresholds(*imbalanced(100, seed))
        later, real = imbalanced(1000, seed + 100)
        plain, tuned = (predicted_labels(later, multilabel=False, rule=DecisionRule(each)) for each in (None, found))
        lost.append(macro_f1(real, plain, 3) - macro_f1(real, tuned, 3))
    assert np.mean(lost) < 0
    assert max(lost) < 0.03


def test_what_is_tuned_depends_on_labels_and_metric() -> None:
    shares, truth = imbalanced(2000)
    assert tune_rule(shares, truth, "accuracy") == DecisionRule()
    assert tune_rule(shares, truth, "macro-f1").thresholds == class_thresholds(shares, truth)
    table = np.eye(3)[truth]
    for metric in ("accuracy", "macro-f1", "micro-f1"):
        expected = choose_rule(shares, table, metric=metric).rule
        assert tune_rule(shares, table, metric) == expected


def _f1(shares: np.ndarray, truth: np.ndarray, label: int, threshold: float) -> float:
    guess = shares >= threshold
    return per_class(truth, guess, ["a", "b"])[label].f1
