"""Where a head starts: at what scikit-learn finds, put into a head's shape."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.finetune.linear_start import CS, solve_head

linear_model = pytest.importorskip("sklearn.linear_model")


def vectors(count: int, classes: int, seed: int = 0, wide: int = 32) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.RandomState(seed)
    truth = chance.randint(0, classes, count)
    return chance.randn(count, wide) + 1.2 * np.eye(classes, wide)[truth], truth


def shares(given: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    scores = np.exp(given @ weight.T + bias)
    return scores / scores.sum(1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 4])
def test_it_is_the_best_of_the_penalties(classes: int) -> None:
    x, y = vectors(300, classes)
    given, truth = vectors(2000, classes, 1)
    weight, bias = solve_head(x, y, classes)
    assert weight.shape == (classes, 32)
    tried = []
    scaled = 8**0.5  # penalties are for vectors 256 wide
    for C in CS:  # noqa: N806
        model = linear_model.LogisticRegression(C=C, tol=1e-6, max_iter=1000).fit(scaled * x, y)
        tried.append(model.predict_proba(scaled * given))
    losses = [-np.log(each[np.arange(2000), truth]).mean() for each in tried]
    found = shares(given, weight, bias)
    assert -np.log(found[np.arange(2000), truth]).mean() < min(losses) + 0.03
    assert min(np.abs(found - each).max() for each in tried) < 0.01


def test_several_labels_are_questions_of_their_own() -> None:
    x, _ = vectors(300, 2)
    truth = np.stack([x[:, 0] + x[:, 1] > 0.5, x[:, 2] > 1], 1).astype(np.float32)
    weight, bias = solve_head(x, truth, 2)
    guess = x @ weight.T + bias > 0
    assert (guess == (truth > 0)).mean() > 0.9
    alone, at = solve_head(x, truth[:, 1].astype(np.int64), 2)
    np.testing.assert_allclose(weight[1], alone[1] - alone[0])
    np.testing.assert_allclose(bias[1], at[1] - at[0])


def test_a_rare_class_may_count_as_much() -> None:
    x, y = vectors(400, 2)
    rare = np.flatnonzero((y == 0) | (np.arange(400) < 40))
    given, truth = vectors(1000, 2, 1)
    found = {}
    for balanced in (False, True):
        weight, bias = solve_head(x[rare], y[rare], 2, balanced=balanced)
        found[balanced] = ((given @ weight.T + bias).argmax(1) == 1)[truth == 1].mean()
    assert found[True] > found[False] + 0.1


def test_too_little_to_choose_by() -> None:
    """One example of a class, a class without any, and nothing to tell apart."""
    x, _ = vectors(6, 2)
    weight, bias = solve_head(x, np.array([0, 0, 0, 0, 0, 2]), 3)
    assert np.isfinite(weight).all()
    assert not weight[1].any()
    assert not any(each.any() for each in solve_head(x, np.zeros(6, np.int64), 2))
    assert np.isfinite(bias).all()
