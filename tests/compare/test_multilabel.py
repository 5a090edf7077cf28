"""Calibration against scikit-learn's logistic regression."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from rehead.compare.baselines import fit_baseline
from rehead.compare.multilabel import calibrate, log_loss, sigmoid
from rehead.finetune.metrics import micro_f1, predicted_labels
from rehead.finetune.targets import targets
from rehead.text.documents import LabelledData
from tests.compare.conftest import tagged

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def made(count: int, frequencies: list[float], seed: int = 0) -> tuple[Floats, Flags]:
    """Scores that tell something about labels of these frequencies."""
    chance = np.random.default_rng(seed)
    truth = chance.random((count, len(frequencies))) < frequencies
    return truth * 1.5 + chance.normal(size=truth.shape), truth


def test_intercepts_match_the_frequency_of_each_label() -> None:
    scores, truth = made(2000, [0.5, 0.1, 0.02])
    found = calibrate(scores, truth, multilabel=True)
    assert sigmoid(found.log_odds(scores)).mean(0) == pytest.approx(truth.mean(0), abs=1e-3)
    assert found.loss == pytest.approx(log_loss(found.log_odds(scores), truth))


def test_an_intercept_is_that_of_logistic_regression() -> None:
    """With the slope that calibration chose, the intercept maximises the likelihood."""
    scores, truth = made(4000, [0.2])
    found = calibrate(scores, truth, multilabel=True)
    assert found.intercepts is not None
    shifts = np.linspace(-6, 2, 4001)
    losses = [log_loss(found.slope * scores + shift, truth) for shift in shifts]
    assert found.intercepts[0] == pytest.approx(shifts[int(np.argmin(losses))], abs=0.01)


def test_shifted_scores_give_the_same_probabilities() -> None:
    """What balanced class weights add to the scores of a label is undone."""
    scores, truth = made(500, [0.3, 0.05])
    one, two = (calibrate(each, truth, multilabel=True) for each in (scores, scores + np.array([0.7, 3.0])))
    assert two.log_odds(scores + np.array([0.7, 3.0])) == pytest.approx(one.log_odds(scores), abs=1e-6)


def test_one_label_per_text_has_no_intercepts() -> None:
    scores, truth = made(100, [0.5])
    assert calibrate(scores, truth, multilabel=False).intercepts is None


def test_a_label_without_examples_or_with_all_of_them() -> None:
    scores, truth = made(60, [0.5, 0.5, 0.5])
    truth[:, 1], truth[:, 2] = False, True
    scores[:, 1], scores[:, 2] = -5.0, 5.0
    found = sigmoid(calibrate(scores, truth, multilabel=True).log_odds(scores))
    assert found[:, 1].max() < 0.02
    assert found[:, 2].min() > 0.98


def rare(count: int, seed: int = 0) -> LabelledData:
    """Texts of which one in twelve has the label odd."""
    data = tagged(count, seed)
    chance = np.random.default_rng(seed)
    kept = [number for number, labels in enumerate(data.labels) if "odd" not in labels or chance.random() < 0.09]
    return LabelledData(
        [data.texts[each] for each in kept], [data.labels[each] for each in kept], data.names, True,
        [data.sources[each] for each in kept],
    )  # fmt: skip


@pytest.mark.parametrize("name", ["tfidf", "tfidf_chars", "nbsvm"])
def test_a_rare_label_is_predicted(name: str) -> None:
    train, test = rare(400), rare(1200, seed=1)
    truth = targets(test, test.names, multilabel=True) > 0
    assert truth[:, 1].mean() < 0.12
    baseline = fit_baseline(name, train, train.names)  # type: ignore[arg-type]
    assert baseline.rule.thresholds is not None
    assert len(baseline.rule.thresholds) == 2
    predicted = predicted_labels(baseline.predict(test.texts), multilabel=True, rule=baseline.rule)
    assert (predicted & truth)[:, 1].sum() / truth[:, 1].sum() > 0.5
    assert micro_f1(truth, predicted) > 0.8
    assert "macro-F1" in baseline.notes[0]


def test_a_label_of_one_text_does_not_stop_cross_validation() -> None:
    train = tagged(60)
    train.names = [*train.names, "single"]
    train.labels[0] = (*train.labels[0], "single")
    baseline = fit_baseline("tfidf_chars", train, train.names)
    assert baseline.rule.thresholds is not None
    assert "5-fold" in baseline.notes[0]
    assert np.isfinite(baseline.predict(train.texts)).all()
