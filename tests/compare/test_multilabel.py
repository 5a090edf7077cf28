"""Calibration against scikit-learn's logistic regression; thresholds against an exhaustive search."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from rehead.compare import multilabel
from rehead.compare.baselines import fit_baseline
from rehead.compare.multilabel import calibrate, choose_thresholds, log_loss, sigmoid
from rehead.compare.statistics import micro_f1
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


def parts(count: int, folds: int = 5) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    fold = np.arange(count) % folds
    return [(np.flatnonzero(fold != each), np.flatnonzero(fold == each)) for each in range(folds)]


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


def test_a_shared_threshold_is_the_best_for_micro_f1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilabel, "OWN_FROM", (None,))
    scores, truth = made(300, [0.3, 0.1, 0.05])
    probabilities = sigmoid(scores - 1.5)
    found = choose_thresholds(probabilities, truth, parts(300))
    assert len(set(found.thresholds)) == 1
    best = max(micro_f1(truth, probabilities >= each) for each in np.unique(probabilities))
    assert micro_f1(truth, probabilities >= found.thresholds[0]) == pytest.approx(best)
    assert found.micro_f1 <= best  # tuned on other folds


def test_labels_share_a_threshold_unless_their_own_pays() -> None:
    """Many examples of miscalibrated labels: each gets its own. Few examples of calibrated ones: they share."""
    scores, truth = made(4000, [0.5, 0.2, 0.2])
    own = choose_thresholds(sigmoid(scores + np.array([-3.0, 0.0, 3.0])), truth, parts(4000)).thresholds
    assert len(set(own)) == 3
    scores, truth = made(120, [0.06] * 30)
    found = calibrate(scores, truth, multilabel=True)
    shared = choose_thresholds(sigmoid(found.log_odds(scores)), truth, parts(120)).thresholds
    assert len(set(shared)) == 1


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
    assert baseline.thresholds is not None
    assert len(baseline.thresholds) == 2
    predicted = baseline.predict(test.texts) >= np.array(baseline.thresholds)
    assert (predicted & truth)[:, 1].sum() / truth[:, 1].sum() > 0.5
    assert micro_f1(truth, predicted) > 0.8
    assert "macro-F1" in baseline.notes[0]


def test_a_label_of_one_text_does_not_stop_cross_validation() -> None:
    train = tagged(60)
    train.names = [*train.names, "single"]
    train.labels[0] = (*train.labels[0], "single")
    baseline = fit_baseline("tfidf_chars", train, train.names)
    assert baseline.thresholds is not None
    assert "5-fold" in baseline.notes[0]
    assert np.isfinite(baseline.predict(train.texts)).all()
