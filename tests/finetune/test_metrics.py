"""Measures against scikit-learn, and against sums done by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.finetune import metrics

sk_metrics = pytest.importorskip("sklearn.metrics")


def predictions(count: int = 200, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.RandomState(0)
    truth = chance.randint(0, classes, count)
    scores = chance.randn(count, classes) + 1.5 * np.eye(classes)[truth]
    shares = np.exp(scores)
    return shares / shares.sum(1, keepdims=True), truth


def test_one_label_each_as_scikit_learn_has_it() -> None:
    probabilities, truth = predictions()
    found = metrics.compute_metrics(probabilities, truth, ["a", "b", "c", "d"])
    assert found.micro_f1 is None  # it would be the accuracy
    guess = probabilities.argmax(1)
    assert found.count == 200
    assert found.accuracy == pytest.approx(sk_metrics.accuracy_score(truth, guess))
    assert found.macro_f1 == pytest.approx(sk_metrics.f1_score(truth, guess, average="macro"))
    assert found.loss == pytest.approx(sk_metrics.log_loss(truth, probabilities))
    assert found.confusion == sk_metrics.confusion_matrix(truth, guess).tolist()
    precision, recall, f1, support = sk_metrics.precision_recall_fscore_support(truth, guess)
    for place, each in enumerate(found.classes):
        assert each.name == "abcd"[place]
        assert (each.precision, each.recall, each.f1) == pytest.approx((precision[place], recall[place], f1[place]))
        assert (each.count, each.guessed) == (support[place], (guess == place).sum())


def test_several_labels_as_scikit_learn_has_it() -> None:
    chance = np.random.RandomState(1)
    truth = (chance.rand(150, 3) < 0.4).astype(np.float32)
    probabilities = np.clip(0.5 * truth + 0.6 * chance.rand(150, 3), 0, 0.999)
    thresholds = np.array([0.4, 0.5, 0.7])
    found = metrics.compute_metrics(probabilities, truth, ["a", "b", "c"], metrics.DecisionRule(thresholds.tolist()))
    assert found.micro_f1 == pytest.approx(sk_metrics.f1_score(truth, probabilities >= thresholds, average="micro"))
    guess = probabilities >= thresholds
    assert found.accuracy == pytest.approx(sk_metrics.accuracy_score(truth, guess))
    assert found.macro_f1 == pytest.approx(sk_metrics.f1_score(truth, guess, average="macro"))
    assert found.loss == pytest.approx(
        np.mean([sk_metrics.log_loss(*each) for each in zip(truth.T, probabilities.T, strict=True)])
    )
    assert found.confusion is None
    plain = metrics.compute_metrics(probabilities, truth, ["a", "b", "c"])
    assert plain.macro_f1 == pytest.approx(sk_metrics.f1_score(truth, probabilities >= 0.5, average="macro"))


def test_a_class_that_is_neither_there_nor_guessed_does_not_count() -> None:
    truth, guess = np.array([0, 0, 1]), np.array([0, 1, 1])
    assert metrics.macro_f1(truth, guess, 3) == pytest.approx(2 / 3)
    assert metrics.per_class(truth, guess, ["a", "b", "c"])[2].f1 == 0


def test_calibration_error_by_hand() -> None:
    sure = np.array([0.9, 0.9, 0.9, 0.9, 0.6, 0.6])
    probabilities = np.stack((sure, 1 - sure), 1)
    truth = np.array([0, 0, 0, 1, 0, 1])  # three of four right at 0.9, one of two at 0.6
    assert metrics.calibration_error(probabilities, truth) == pytest.approx((4 * 0.15 + 2 * 0.1) / 6)
    assert metrics.calibration_error(np.eye(2)[[0, 1]], np.array([0, 1])) == 0
    labels = np.array([[1, 0], [1, 1]])
    assert metrics.calibration_error(np.array([[1.0, 0.0], [1.0, 0.5]]), labels) == pytest.approx(0.5 / 4)


def test_extremes() -> None:
    nothing = metrics.compute_metrics(np.zeros((0, 2)), np.zeros(0, np.int64), ["a", "b"])
    assert nothing.count == 0
    assert np.isnan(nothing.accuracy)
    assert np.isnan(nothing.loss)
    wrong = metrics.log_loss(np.array([[0.0, 1.0]]), np.array([0]))
    assert 80 < wrong < 100


def test_a_single_column_of_labels_is_measured_by_its_presence() -> None:
    truth, guess = np.array([[1], [1], [0], [0]]), np.array([[True], [False], [True], [False]])
    (only,) = metrics.per_class(truth, guess, ["a"])
    assert (only.count, only.guessed, only.precision, only.recall, only.f1) == (2, 2, 0.5, 0.5, 0.5)
    assert metrics.accuracy(truth, guess) == 0.5


def test_without_documents_nothing_is_counted() -> None:
    nothing = np.zeros(0, np.int64)
    assert metrics.confusion(nothing, nothing, 2).tolist() == [[0, 0], [0, 0]]
    assert [(each.count, each.f1) for each in metrics.per_class(nothing, nothing, ["a", "b"])] == [(0, 0), (0, 0)]
    assert np.isnan(metrics.macro_f1(nothing, nothing, 2))


def test_micro_f1_counts_pairs() -> None:
    truth, guess = np.array([[1, 1, 0], [0, 1, 0]]), np.array([[True, False, True], [False, True, False]])
    assert metrics.micro_f1(truth, guess) == pytest.approx(2 * 2 / (3 + 3))
    assert metrics.macro_f1(truth, guess, 3) == pytest.approx((1 + 2 / 3 + 0) / 3)
    nothing = np.zeros((2, 3), bool)
    assert metrics.micro_f1(truth, nothing) == 0
    assert np.isnan(metrics.micro_f1(nothing, nothing))
    counts = np.array([[1, 0], [2, 2]]), np.array([[2, 0], [4, 8]])  # of two resamples
    assert metrics.average_f1(*counts, "macro") == pytest.approx([1.0, (1 + 0.5) / 2])
    assert metrics.average_f1(*counts, "micro") == pytest.approx([1.0, 8 / 12])


def test_with_thresholds_the_class_with_the_highest_ratio_is_predicted() -> None:
    shares = np.array([[0.6, 0.4], [0.8, 0.2], [0.7, 0.3]])
    assert metrics.predicted_labels(shares, multilabel=False).tolist() == [0, 0, 0]
    given = metrics.predicted_labels(shares, multilabel=False, rule=metrics.DecisionRule([0.65, 0.35]))
    assert given.tolist() == [1, 0, 0]  # those of which the second class reaches 0.35
    assert metrics.predicted_labels(shares, multilabel=False, rule=metrics.DecisionRule([0.5, 0.5])).tolist() == [
        0,
        0,
        0,
    ]
    found = metrics.compute_metrics(shares, np.array([1, 0, 0]), ["a", "b"], metrics.DecisionRule([0.65, 0.35]))
    assert (found.accuracy, found.macro_f1, found.confusion) == (1.0, 1.0, [[2, 0], [0, 1]])


def test_the_most_probable_label_is_given_below_its_threshold_too() -> None:
    shares = np.array([[0.3, 0.2, 0.1], [0.1, 0.7, 0.6], [0.4, 0.2, 0.6]])
    rule = metrics.DecisionRule([0.5, 0.5, 0.7], at_least_one=True)
    given = metrics.predicted_labels(shares, multilabel=True, rule=rule)
    assert given.tolist() == [[True, False, False], [False, True, False], [False, False, True]]
    assert not metrics.predicted_labels(shares, multilabel=True, rule=metrics.DecisionRule([0.5, 0.5, 0.7]))[0].any()
    assert shares[0, 0] == 0.3  # nothing was changed in place
    assert metrics.predicted_labels(shares[:0], multilabel=True, rule=rule).shape == (0, 3)
    assert metrics.DecisionRule.of(rule.details()) == rule
    assert metrics.DecisionRule.of({}).details() == {}
