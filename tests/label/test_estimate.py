"""Intervals hold, and say what more labels bring."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.label.estimate import gain, macro_f1, points, wilson


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


def test_macro_f1_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    random = np.random.default_rng(0)
    truth, guess = random.integers(0, 3, 200), random.integers(0, 3, 200)
    found = macro_f1(np.eye(3)[truth], np.eye(3)[guess])
    assert found.value == pytest.approx(f1_score(truth, guess, average="macro"))
    assert found.low < found.value < found.high


def test_the_curve_ends_now_and_has_the_last_fifty() -> None:
    assert points(200)[-1] == 200
    assert 150 in points(200)
    assert points(12)[-1] == 12
    assert all(each >= 10 for each in points(90))


def test_the_gain_is_that_of_the_curve() -> None:
    sizes = np.array([20, 40, 80, 160, 320])
    error = 0.1 + 1.2 / np.sqrt(sizes)
    ranks = np.random.default_rng(0).permutation(4000) / 4000
    right = ranks[None, :] >= error[:, None]
    found = gain(right, sizes)
    assert found is not None
    assert found.expected == pytest.approx(1.2 / np.sqrt(320) - 1.2 / np.sqrt(370), abs=0.001)
    assert 0 < found.half < 0.01
    assert gain(right[:, :5], sizes) is None, "too few random texts say nothing"
