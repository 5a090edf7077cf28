"""Multinomial logistic regression from the kernel, against scikit-learn's on the features themselves."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rehead.finetune.ridge import BIAS
from rehead.finetune.softmax import fit_softmax


def problem(documents: int, columns: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.RandomState(0)
    truth = np.arange(documents) % classes
    return chance.randn(documents, columns) + 0.7 * chance.randn(classes, columns)[truth], truth


@pytest.mark.parametrize(("documents", "columns", "classes"), [(30, 5, 3), (12, 40, 6), (40, 8, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_logistic_regression(documents: int, columns: int, classes: int, weighted: bool) -> None:
    """With a constant feature that is regularised as ours is."""
    features, truth = problem(documents, columns, classes)
    weights = 0.5 + np.random.RandomState(1).rand(documents) if weighted else None
    solved = fit_softmax(features @ features.T, truth, classes, 0.3, weights)
    found = features @ (features.T @ solved) + BIAS * solved.sum(0)
    whole = np.hstack([features, np.full((documents, 1), BIAS**0.5)])
    model = LogisticRegression(C=1 / 0.3, fit_intercept=False, max_iter=5_000, tol=1e-8)
    model.fit(whole, truth, sample_weight=weights)
    expected = model.decision_function(whole)
    if classes == 2:  # scikit-learn gives the difference, from one weight vector of half the penalty
        assert (np.sign(found[:, 1] - found[:, 0]) == np.sign(expected)).mean() > 0.95
        return
    np.testing.assert_allclose(found - found.mean(1, keepdims=True), expected, atol=0.02)


def test_equal_documents_and_absent_classes_do_no_harm() -> None:
    features, truth = problem(12, 4, 3)
    features[1] = features[0] = 0
    truth[truth == 2] = 1
    solved = fit_softmax(features @ features.T, truth, 4, 0.1)
    scores = features @ (features.T @ solved) + BIAS * solved.sum(0)
    assert np.isfinite(scores).all()
    assert (scores[:, 2:].max(1) < scores[:, :2].max(1)).all()
