"""Logistic regression in the shape of a head; what it is fitted by is scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rehead.finetune.logistic import fit_logistic, one_thread


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("balanced", [False, True])
def test_probabilities_are_those_of_scikit_learn(classes: int, balanced: bool) -> None:
    chance = np.random.RandomState(0)
    inputs, truth = chance.randn(60, 4), np.minimum(chance.randint(0, 5, 60), classes - 1)
    found = fit_logistic(inputs, truth, classes, (0.3, 3.0), balanced=balanced)
    for C, (weight, bias) in zip((0.3, 3.0), found, strict=True):  # noqa: N806
        model = LogisticRegression(C=C, tol=1e-8, max_iter=5000, class_weight="balanced" if balanced else None)
        scores = inputs @ weight.T + bias
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        np.testing.assert_allclose(shares, model.fit(inputs, truth).predict_proba(inputs), atol=0.01)


def test_each_of_several_labels_has_its_own() -> None:
    chance = np.random.RandomState(0)
    inputs, table = chance.randn(60, 4), (chance.rand(60, 3) < 0.4).astype(np.float32)
    ((weight, bias),) = fit_logistic(inputs, table, 3, [1.0])
    for label in range(3):
        expected = LogisticRegression(tol=1e-8).fit(inputs, table[:, label]).decision_function(inputs)
        np.testing.assert_allclose(inputs @ weight[label] + bias[label], expected, atol=0.02)


def test_a_class_without_examples_is_unlikely() -> None:
    inputs = np.eye(4)
    ((weight, bias),) = fit_logistic(inputs, np.array([0, 0, 2, 2]), 4, [1.0])
    assert not weight[[1, 3]].any()
    assert bias[[1, 3]].max() < (inputs @ weight.T + bias)[:, [0, 2]].min()
    ((weight, bias),) = fit_logistic(inputs, np.ones(4, np.int64), 2, [1.0])
    assert not weight.any()
    assert bias[1] > 0 > bias[0]


def test_solvers_have_one_thread_and_leave_the_others_theirs() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_thread():
            assert threads() <= {1}
        assert threads() == before
