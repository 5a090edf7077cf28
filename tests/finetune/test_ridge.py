"""Ridge regression by kernels and by conjugate gradients, against scikit-learn's on features that are written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.svm import LinearSVC

from rehead.finetune import ridge
from rehead.finetune.ridge import BIAS, fit_dual, fit_hinge, fit_hinge_dual, fit_primal, out_of_fold

WEIGHTED = pytest.mark.parametrize("weighted", [False, True])
SHAPES = pytest.mark.parametrize(("documents", "columns"), [(30, 8), (12, 40)], ids=str)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have conjugate gradients go on until float32 has no more digits."""
    monkeypatch.setattr(ridge, "TOLERANCE", 1e-7)


def problem(documents: int, columns: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, targets, and weights of the documents."""
    chance = np.random.RandomState(0)
    return chance.randn(documents, columns), chance.randn(documents, classes), 0.2 + 3 * chance.rand(documents)


def reference(features: np.ndarray, targets: np.ndarray, alpha: float, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weights (W, K) and bias (K,) by scikit-learn; the bias is that of an explicit constant column."""
    constant = np.full((len(features), 1), BIAS**0.5)
    model = Ridge(alpha, fit_intercept=False, solver="svd")
    found = np.atleast_2d(model.fit(np.hstack([features, constant]), targets, sample_weight=weights).coef_)
    return found[:, :-1].T, BIAS**0.5 * found[:, -1]


def few(chance: np.random.RandomState, documents: int, columns: int) -> Any:
    """A sparse block, of which the first and the last column are empty."""
    found = chance.rand(documents, columns) * (chance.rand(documents, columns) < 0.3)
    found[:, [0, -1]] = 0
    return sparse.csr_matrix(found)


def written(blocks: list[Any]) -> np.ndarray:
    return np.hstack([block if isinstance(block, np.ndarray) else block.toarray() for block in blocks])


@WEIGHTED
@SHAPES
@pytest.mark.parametrize("alpha", [0.03, 1.0])
def test_the_kernel_gives_the_weights_of_ridge(documents: int, columns: int, alpha: float, weighted: bool) -> None:
    features, targets, some = problem(documents, columns)
    weights = some if weighted else None
    expected, bias = reference(features, targets, alpha, weights)
    kernel = features @ features.T
    before = kernel.copy()
    coefficients = fit_dual(kernel, targets, alpha, weights)
    np.testing.assert_allclose(features.T @ coefficients, expected, atol=1e-7)
    np.testing.assert_allclose(BIAS * coefficients.sum(0), bias, atol=1e-7)
    np.testing.assert_array_equal(kernel, before)  # it is used again, with another alpha


@WEIGHTED
@SHAPES
@pytest.mark.usefixtures("exact")
def test_conjugate_gradients_give_the_weights_of_ridge(documents: int, columns: int, weighted: bool) -> None:
    features, targets, some = problem(documents, columns)
    weights = some if weighted else None
    expected, bias = reference(features, targets, 1.0, weights)
    (found,), given = fit_primal([features], targets, 1.0, weights, 300)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(given, bias, atol=1e-4)


def hinge_reference(features: np.ndarray, yes: np.ndarray, alpha: float, weights: Any) -> tuple[np.ndarray, float]:
    """Weights (W,) and bias of one class against the rest, by liblinear."""
    model = LinearSVC(C=1 / (2 * alpha), intercept_scaling=BIAS**0.5, tol=1e-10, max_iter=1_000_000)
    model.fit(features, yes, sample_weight=weights)
    return model.coef_[0], float(model.intercept_[0])


@WEIGHTED
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("way", ["kernel", "conjugate gradients"])
def test_hinge_loss_gives_the_weights_of_liblinear(
    way: str, classes: int, weighted: bool, exact: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ridge, "NEWTON_ITERATIONS", 100)
    features, scores, some = problem(40, 12, classes)
    truth = np.eye(classes)[(scores + features[:, :classes]).argmax(1)]
    weights, alpha = some if weighted else None, 0.5
    if way == "kernel":
        coefficients = fit_hinge_dual(features @ features.T, truth, alpha, weights)
        found, bias = features.T @ coefficients, BIAS * coefficients.sum(0)
    else:
        [found], bias = fit_hinge([features], truth, alpha, weights)
    for each in range(classes):
        expected, constant = hinge_reference(features, truth[:, each] > 0, alpha, weights)
        np.testing.assert_allclose(found[:, each], expected, atol=2e-4)
        np.testing.assert_allclose(bias[each], constant, atol=2e-4)


def test_a_class_that_every_document_has_or_none_is_fitted_by_hinge_loss() -> None:
    features, _, _ = problem(20, 5)
    truth = np.column_stack((np.ones(20), np.zeros(20), np.arange(20) % 2))
    scores = features @ features.T @ (coefficients := fit_hinge_dual(features @ features.T, truth, 1.0))
    scores += BIAS * coefficients.sum(0)
    assert (scores[:, 0] > 0.5).all()
    assert (scores[:, 1] < -0.5).all()


@pytest.mark.usefixtures("exact")
def test_weights_may_differ_by_class() -> None:
    features, targets, _ = problem(30, 8)
    weights = 0.2 + 3 * np.random.RandomState(1).rand(30, 3)
    weights[:4, 1] = 0.0
    (found,), given = fit_primal([features], targets, 1.0, weights, 300)
    for label in range(3):
        expected, bias = reference(features, targets[:, [label]], 1.0, weights[:, label])
        np.testing.assert_allclose(found[:, [label]], expected, atol=1e-4)
        np.testing.assert_allclose(given[label], bias.item(), atol=1e-4)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("order", ["dsds", "sdds", "ssdd", "s", "ss", "dd"])
def test_blocks_of_any_kind_and_order(order: str) -> None:
    """Each block gets its own weights back; blocks of one width, too, and columns that no document has."""
    chance = np.random.RandomState(0)
    blocks = [chance.randn(30, 5) if kind == "d" else few(chance, 30, 9) for kind in order]
    targets, weights = chance.randn(30, 2), 0.2 + chance.rand(30)
    expected, bias = reference(written(blocks), targets, 0.5, weights)
    found, given = fit_primal(blocks, targets, 0.5, weights, 300)
    assert [each.shape for each in found] == [(block.shape[1], 2) for block in blocks]
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-4)
    np.testing.assert_allclose(given, bias, atol=1e-4)
    for block, weight in zip(blocks, found, strict=True):
        if not isinstance(block, np.ndarray):
            assert not weight[[0, -1]].any()


@pytest.mark.usefixtures("exact")
def test_a_block_without_any_column_or_entry() -> None:
    features, targets, _ = problem(20, 4)
    blocks = [sparse.csr_matrix((20, 0)), features, sparse.csr_matrix((20, 3))]
    found, given = fit_primal(blocks, targets, 1.0, None, 300)
    expected, bias = reference(features, targets, 1.0, None)
    assert found[0].shape == (0, 3)
    assert not found[2].any()
    np.testing.assert_allclose(found[1], expected, atol=1e-4)
    np.testing.assert_allclose(given, bias, atol=1e-4)


def test_the_default_tolerance_is_near_enough_for_predictions() -> None:
    chance = np.random.RandomState(0)
    blocks = [chance.randn(200, 10), few(chance, 200, 60)]
    targets = np.eye(3)[chance.randint(0, 3, 200)] - 1 / 3
    weight, bias = reference(written(blocks), targets, 1.0, None)
    expected = written(blocks) @ weight + bias
    found, given = fit_primal(blocks, targets, 1.0)
    np.testing.assert_allclose(written(blocks) @ np.concatenate(found) + given, expected, atol=0.02)


def test_iterations_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step goes along the preconditioned gradient, as far as the loss falls."""
    features, targets, weights = problem(20, 30, 1)
    monkeypatch.setattr(ridge, "TOLERANCE", 0.0)
    (nothing,), bias = fit_primal([features], targets, 1.0, weights, 0)
    assert not nothing.any()
    assert not bias.any()
    (one,), bias = fit_primal([features], targets, 1.0, weights, 1)
    table = np.hstack([features, np.full((20, 1), BIAS**0.5)])
    gradient = table.T @ (weights[:, None] * targets)
    step = gradient / ((weights[:, None] * table**2).sum(0) + 1.0)[:, None]
    along = (weights[:, None] * (table @ step) ** 2).sum() + (step**2).sum()
    expected = step * (gradient * step).sum() / along
    np.testing.assert_allclose(one, expected[:-1], rtol=1e-4)
    np.testing.assert_allclose(bias, BIAS**0.5 * expected[-1], rtol=1e-4)


def test_targets_without_any_signal_give_no_weights() -> None:
    features, targets, _ = problem(20, 5)
    targets[:, 1] = 0
    (found,), bias = fit_primal([features], targets, 1.0)
    assert np.isfinite(found).all()
    assert not found[:, 1].any()
    assert bias[1] == 0


@WEIGHTED
@SHAPES
def test_out_of_fold_is_as_fitting_without_each_fold(documents: int, columns: int, weighted: bool) -> None:
    features, targets, some = problem(documents, columns)
    weights = some if weighted else None
    number = np.random.RandomState(2).randint(0, 4, documents)
    folds = [(np.flatnonzero(number != fold), np.flatnonzero(number == fold)) for fold in range(4)]
    found = out_of_fold(features @ features.T, targets, folds, 0.3, weights)
    for inside, outside in folds:
        weight, bias = reference(features[inside], targets[inside], 0.3, None if weights is None else weights[inside])
        np.testing.assert_allclose(found[outside], features[outside] @ weight + bias, atol=1e-7)


def test_what_was_never_held_out_has_no_score() -> None:
    """The documents of a single fold are scored, and their own targets do not count."""
    features, targets, _ = problem(20, 6)
    inside, outside = np.arange(5, 20), np.arange(5)
    kernel = features @ features.T
    found = out_of_fold(kernel, targets, [(inside, outside)], 1.0)
    assert np.isnan(found[inside]).all()
    assert np.isfinite(found[outside]).all()
    other = targets.copy()
    other[outside] = 100.0
    np.testing.assert_allclose(out_of_fold(kernel, other, [(inside, outside)], 1.0)[outside], found[outside], atol=1e-9)
    assert np.isnan(out_of_fold(kernel, targets, [], 1.0)).all()


@pytest.mark.parametrize("alpha", [1e-3, 1.0])
def test_equal_documents_do_no_harm(alpha: float) -> None:
    """Nor documents without any feature: the kernel is singular, but alpha is on its diagonal."""
    features, targets, _ = problem(12, 20)
    features[1], features[5:8] = features[0], 0.0
    kernel = features @ features.T
    expected, bias = reference(features, targets, alpha, None)
    coefficients = fit_dual(kernel, targets, alpha)
    np.testing.assert_allclose(features.T @ coefficients, expected, atol=1e-6)
    found = out_of_fold(kernel, targets, [(np.arange(2, 12), np.arange(2)), (np.arange(2), np.arange(2, 12))], alpha)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    np.testing.assert_allclose(BIAS * coefficients.sum(0), bias, atol=1e-6)
    (weight,), given = fit_primal([features], targets, alpha)
    assert np.isfinite(weight).all()
    assert np.isfinite(given).all()


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        out_of_fold(-100 * np.eye(4), np.ones((4, 1)), [(np.arange(2), np.arange(2, 4))], 1.0)
