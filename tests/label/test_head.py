"""The quick head: leave-one-out scores are those of fits without the text."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.label import head as module
from rehead.label.head import fit_head, without_two


def problem(count: int, width: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    truth = random.integers(0, classes, count)
    centres = random.standard_normal((classes, width))
    features = (centres[truth] + random.standard_normal((count, width))).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return features, np.eye(classes, dtype=np.float32)[truth]


@pytest.mark.parametrize(("count", "width"), [(30, 50), (60, 12)], ids=["fewer texts", "fewer features"])
@pytest.mark.parametrize("classes", [2, 4])
def test_out_of_fold_is_a_fit_without_the_text(
    count: int, width: int, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ALPHAS", (0.3,))
    monkeypatch.setattr(module, "TEMPERATURES", (2.0,))
    features, truth = problem(count, width, classes)
    whole = fit_head(features, truth, multilabel=False)
    for row in (0, 7, count - 1):
        rest = np.arange(count) != row
        other = fit_head(features[rest], truth[rest], multilabel=False)
        np.testing.assert_allclose(whole.out_of_fold[row], other.probabilities(features[row : row + 1])[0], atol=2e-4)


@pytest.mark.parametrize(("count", "width"), [(30, 50), (60, 12)], ids=["fewer texts", "fewer features"])
def test_leaving_two_out_is_a_fit_without_them(count: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALPHAS", (0.3,))
    monkeypatch.setattr(module, "TEMPERATURES", (2.0,))
    features, truth = problem(count, width, 4)
    whole = fit_head(features, truth, multilabel=False)
    rows = np.arange(1, count, 5)
    found = list(without_two(whole, rows))
    for place, row in enumerate(rows[:3].tolist()):
        np.testing.assert_allclose(found[place][place], whole.out_of_fold[row], atol=1e-5)
        for line, other in enumerate(rows.tolist()):
            rest = ~np.isin(np.arange(count), [row, other])
            without = fit_head(features[rest], truth[rest], multilabel=False)
            expected = without.probabilities(features[row : row + 1])[0]
            np.testing.assert_allclose(found[place][line], expected, atol=2e-4)


def test_both_solvers_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    features, truth = problem(40, 40, 3)
    targets, x = 2.0 * truth - 1, features.astype(np.float64)
    dual, primal = module._Dual(x, targets), module._Primal(x, targets)
    np.testing.assert_allclose(dual.weights(0.5), primal.weights(0.5), atol=1e-8)
    np.testing.assert_allclose(dual.left_out(0.5), primal.left_out(0.5), atol=1e-8)


def test_probabilities_are_of_use() -> None:
    features, truth = problem(400, 30, 3, seed=1)
    fitted = fit_head(features[:200], truth[:200], multilabel=False)
    shares = fitted.probabilities(features[200:])
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)
    right = shares.argmax(1) == truth[200:].argmax(1)
    assert right.mean() > 0.8
    assert abs(right.mean() - shares.max(1).mean()) < 0.1, "how sure it is, it is right"


def test_several_labels() -> None:
    features, truth = problem(300, 20, 3)
    truth[:, 2] = (features[:, 0] > 0).astype(np.float32)
    fitted = fit_head(features[:200], truth[:200], multilabel=True)
    guess = fitted.probabilities(features[200:]) >= 0.5
    assert (guess == (truth[200:] > 0)).mean() > 0.8


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_labels_are_no_error(count: int) -> None:
    features, truth = problem(5, 8, 2)
    fitted = fit_head(features[:count], truth[:count], multilabel=False)
    shares = fitted.probabilities(features)
    assert np.isfinite(shares).all()
    assert fitted.out_of_fold.shape == (count, 2)


def test_a_prior_decides_at_first_and_is_outweighed_by_labels() -> None:
    features, truth = problem(300, 20, 2)
    wrong = np.where(truth > 0, -0.5, 0.5).astype(np.float32)
    none = fit_head(features[:0], truth[:0], multilabel=False)
    assert (none.probabilities(features, wrong).argmax(1) != truth.argmax(1)).all(), "without labels it is all there is"
    fitted = fit_head(features[:100], truth[:100], multilabel=False, prior=wrong[:100])
    assert fitted.prior == 0.0
    good = fit_head(features[:100], truth[:100], multilabel=False, prior=-wrong[:100])
    assert good.prior > 0


def test_rare_labels_of_several_are_given_below_a_half() -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((400, 20)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    truth = (features[:, :4] + 0.2 * random.standard_normal((400, 4)) > 0.35).astype(np.float32)
    fitted = fit_head(features[:200], truth[:200], multilabel=True)
    assert fitted.threshold < 0.5
    shares, rest = fitted.probabilities(features[200:]), truth[200:]
    tuned, half = fitted.decide(shares), (shares >= 0.5).astype(np.float32)
    assert (tuned * rest).sum() / (tuned + rest).sum() > (half * rest).sum() / (half + rest).sum()
