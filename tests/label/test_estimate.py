"""Intervals hold, and say what more labels bring."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.label.estimate import design_effect, expected_shares, gain, macro_f1, points, wilson
from rehead.label.head import fit_head


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("count", [12, 40, 200])
def test_the_interval_covers_the_truth(share: float, count: int) -> None:
    right = np.random.default_rng(0).binomial(count, share, 4000)
    covered = np.mean([found.low <= share <= found.high for each in right for found in [wilson(each, count)]])
    assert 0.90 <= covered <= 0.985  # a dozen texts have few possible values


def test_wilson_is_what_the_formula_says() -> None:
    found = wilson(8, 10)
    assert (round(found.low, 4), round(found.high, 4)) == (0.4902, 0.9433)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0, 1)


def test_the_interval_covers_the_accuracy_of_a_head_with_few_labels_of_many_classes() -> None:
    """Two texts of a class are both right, because each has the other: Wilson's interval alone is too narrow."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 30, 3_000)
    features = random.standard_normal((30, 60))[truth] + 0.9 * random.standard_normal((3_000, 60))
    features = (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32)
    labels = np.eye(30, dtype=np.float32)[truth]
    plain, wider = [], []
    for seed in range(150):
        order = np.random.default_rng(seed).permutation(3_000)
        rows, rest = order[:50], order[50:]
        head = fit_head(features[rows], labels[rows], multilabel=False)
        right = (head.decide(head.out_of_fold) == labels[rows]).all(1).sum()
        real = (head.decide(head.probabilities(features[rest])) == labels[rest]).all(1).mean()
        design = design_effect(head, labels[rows], np.arange(50))
        for found, each in ((plain, wilson(right, 50)), (wider, wilson(right, 50, design))):
            found.append(each.low <= real <= each.high)
    assert np.mean(plain) < 0.9
    assert 0.9 <= np.mean(wider) <= 0.985


def test_independent_texts_have_no_design_effect() -> None:
    random = np.random.default_rng(0)
    truth = np.eye(2, dtype=np.float32)[random.integers(0, 2, 400)]
    features = (truth @ np.array([[1, 0, 0], [0, 1, 0]]) + random.normal(0, 0.6, (400, 3))).astype(np.float32)
    head = fit_head(features, truth, multilabel=False)
    assert 1 <= design_effect(head, truth, np.arange(400)) < 1.1
    assert design_effect(head, truth, np.arange(1)) == 1


def confused(count: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Truth and predictions of uneven classes, of which a fifth is wrong."""
    random = np.random.default_rng(seed)
    truth = random.choice(classes, count, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    guess = np.where(random.random(count) < 0.8, truth, random.integers(0, classes, count))
    return np.eye(classes)[truth], np.eye(classes)[guess]


def test_macro_f1_of_many_texts_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    truth, guess = confused(4000, 3, 0)
    found = macro_f1(truth, guess, guess.mean(0), np.full((3, 3), 1 / 3))
    assert found.value == pytest.approx(f1_score(truth.argmax(1), guess.argmax(1), average="macro"), abs=0.005)
    assert found.low < found.value < found.high < found.low + 0.06


def test_the_interval_of_macro_f1_covers_it() -> None:
    truth, guess = confused(20_000, 4, 1)
    hits, total = (truth * guess).sum(0), (truth + guess).sum(0)
    real = (2 * hits / total).mean()
    prior = expected_shares(0.75 * guess + 0.0625, guess)
    covered = []
    for seed in range(300):
        some = np.random.default_rng(seed).choice(len(truth), 60, replace=False)
        found = macro_f1(truth[some], guess[some], guess.mean(0), prior)
        covered.append(found.low <= real <= found.high)
    assert 0.9 <= np.mean(covered) <= 0.985


def test_the_curve_ends_now_and_has_the_last_fifty() -> None:
    assert points(200)[-1] == 200
    assert 150 in points(200)
    assert points(12)[-1] == 12
    assert all(each >= 10 for each in points(90))


def test_the_gain_is_what_the_last_labels_brought_and_falls_like_the_root() -> None:
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4], [0.2, 0.8]])
    now = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)
    before = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    found = gain(probabilities, now, before, 200)
    assert found is not None
    brought = (0.7 - 0.3 + 0.6 - 0.4) / 4
    ahead = (200**-0.5 - 250**-0.5) / (150**-0.5 - 200**-0.5)
    assert found.expected == pytest.approx(0.8 * brought * ahead)
    assert found.half == pytest.approx(0.06 * 0.5**0.5)
    same = gain(probabilities, now, now, 200)
    assert same is not None
    assert (same.expected, same.half) == (0, 0.001), "never quite sure"
    assert gain(probabilities, now, before, 149) is None, "of so few labels it says nothing"
