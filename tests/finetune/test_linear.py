"""Linear classifiers on the features of views, against scikit-learn on features that are written out."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge

from rehead.finetune import linear, ridge
from rehead.finetune.examples import Examples, read_examples
from rehead.finetune.linear import (
    RAREST,
    LinearClassifier,
    Settings,
    example_weights,
    fit,
    fit_targets,
    kernel,
    mean_classifier,
    regression_targets,
    used_views,
)
from rehead.finetune.ridge import BIAS
from rehead.finetune.targets import targets
from rehead.text.documents import LabelledData
from rehead.views import views_beside
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import neural_view
from rehead.views.view import DenseView, View
from tests.finetune.conftest import MakeBase
from tests.finetune.naive_bayes_reference import unevenness
from tests.finetune.sets import multilabel, reviews

ALL = {"bag": 0.5, "words": 1.0, "characters": 2.0, "lsa": 0.7}


def read(make_base: MakeBase, data: LabelledData, *, balanced: bool = False) -> Examples:
    """Read texts by the bag of a base, and by the views that learn from the texts."""
    base = make_base()
    views: list[View] = [neural_view(base.model), *views_beside(base.model)]
    for view in views:
        view.learn(EncodedTexts(data.texts))
    truth = targets(data, data.names, multilabel=data.multilabel)
    return read_examples(base, views, data.texts, truth, len(data.names), balanced=balanced)


def written_out(examples: Examples, settings: Settings) -> Any:
    """The table that a regression is fitted to: each view times the root of its share of all weights."""
    total, parts = sum(settings.get(view.name, 0.0) for view in examples.views), []
    for view in examples.views:
        features, share = examples.features[view.name], settings.get(view.name, 0.0) / total
        if not share:
            continue
        if isinstance(view, DenseView):
            scale = view.deviations ** (settings["power"] - 1)
            scale = scale * np.sqrt((view.deviations**2).sum() / (view.deviations**2 * scale**2).sum())
            parts.append(share**0.5 * (features @ view.components) * scale)
        else:
            parts.append(share**0.5 * features.toarray())
    return np.hstack([*parts, np.full((len(examples), 1), BIAS**0.5)])


def regressed(table: Any, wanted: Any, alpha: float, weights: Any = None) -> Any:
    """What scikit-learn's ridge regression gives for the documents that it was fitted to."""
    return Ridge(alpha, fit_intercept=False, solver="svd").fit(table, wanted, sample_weight=weights).predict(table)


@pytest.mark.parametrize("weights", [{"bag": 1.0}, {"words": 3.0}, {"bag": 1.0, "words": 1.0, "characters": 4.0}, ALL])
@pytest.mark.parametrize("power", [1.0, 3.0])
@pytest.mark.parametrize("balanced", [False, True])
def test_it_is_a_ridge_regression(make_base: MakeBase, power: float, weights: dict[str, float], balanced: bool) -> None:
    examples = read(make_base, reviews(45, names=("bad", "good", "so")), balanced=balanced)
    examples = examples.take(np.arange(9, 45)[np.arange(36) % 4 > 0])  # so that classes are not of one size
    examples = examples.take(np.flatnonzero((examples.truth != 1) | (np.arange(len(examples)) < 12)))
    counts = np.bincount(examples.truth)
    assert len(set(counts.tolist())) > 1
    settings = {"power": power, "alpha": 0.3, "temperature": 0.4, **weights}
    found = fit(examples, settings)
    one_hot, share = np.eye(3)[examples.truth], np.full(3, 1 / 3) if balanced else counts / len(examples)
    each = len(examples) / (3 * counts[examples.truth]) if balanced else None
    table = written_out(examples, settings)
    expected = regressed(table, one_hot - share, 0.3, each) / 0.4 + np.log(share)
    np.testing.assert_allclose(found.scores(examples), expected, atol=1e-6)
    by_view = sum(found.view_scores(examples, view.name) for view in examples.views)
    np.testing.assert_allclose(by_view + found.bias, expected, atol=1e-6)
    assert [view.name for view in used_views(examples, settings)] == [
        view.name for view in examples.views if view.name in weights
    ]
    for view in examples.views:
        assert found.weights[view.name].any() == (view.name in weights)
        assert view.sparse == (view.name in found.columns)
        if view.sparse and view.name in weights:  # columns that these documents have, and no others
            there = np.flatnonzero(examples.features[view.name].toarray().any(0))
            np.testing.assert_array_equal(found.columns[view.name], there)


@pytest.mark.parametrize("labels", ["single", "multilabel"])
@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_sparse_features_are_scaled_by_naive_bayes(make_base: MakeBase, labels: str, exponent: float) -> None:
    """Each view by its own log-count ratios; the vectors stay as they are, and so do the features of new texts."""
    data = multilabel(40) if labels == "multilabel" else reviews(40, names=("bad", "good", "so"))
    examples = read(make_base, data)
    settings = {"power": 2.0, "alpha": 0.3, **ALL}
    truth = examples.truth if examples.multilabel else np.eye(3)[examples.truth]
    features = dict(examples.features)
    for name in ("words", "characters"):
        table = features[name].toarray()
        scale = unevenness(table, truth, np.ones(len(table)))
        features[name] = sparse.csr_matrix(table * scale**exponent)
    scaled = dataclasses.replace(examples, features=features)
    found = fit(examples, {**settings, "naive_bayes": exponent}).scores(examples)
    np.testing.assert_allclose(found, fit(scaled, settings).scores(scaled), atol=1e-4)
    assert np.abs(found - fit(examples, settings).scores(examples)).max() > 0.01


def test_only_the_ratio_of_view_weights_counts(make_base: MakeBase) -> None:
    examples = read(make_base, reviews(20))
    settings = {"power": 2.0, "alpha": 1.0}
    one, two = (
        fit(examples, {**settings, **{name: factor * weight for name, weight in ALL.items()}}) for factor in (1, 7)
    )
    np.testing.assert_allclose(one.scores(examples), two.scores(examples), atol=1e-9)


@pytest.mark.parametrize("labels", ["single", "multilabel"])
@pytest.mark.parametrize("balanced", [False, True])
def test_kernel_and_features_give_the_same(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch, labels: str, balanced: bool
) -> None:
    """With as many examples as are solved by the kernel, and with one more."""
    monkeypatch.setattr(ridge, "TOLERANCE", 1e-7)
    data = multilabel(30) if labels == "multilabel" else reviews(30)
    examples = read(make_base, data, balanced=balanced)
    settings, found = {"power": 2.0, "alpha": 0.5, **ALL}, []
    wanted, prior = regression_targets(examples.truth, examples.classes, balanced=balanced)
    for most in (30, 29):
        monkeypatch.setattr(linear, "DUAL", most)
        found.append(fit_targets(examples, settings, wanted, prior, example_weights(examples)))
    for view in examples.views:
        np.testing.assert_allclose(found[0].weights[view.name], found[1].weights[view.name], atol=1e-3)
    np.testing.assert_allclose(found[0].scores(examples), found[1].scores(examples), atol=1e-3)


def test_documents_that_do_not_count(make_base: MakeBase) -> None:
    """A weight of zero is as leaving the document out."""
    examples = read(make_base, reviews(24))
    settings = {"power": 2.0, "alpha": 1.0, **ALL}
    wanted, prior = regression_targets(examples.truth, 2, balanced=False)
    weights = (np.arange(24) < 16).astype(np.float64)
    found = fit_targets(examples, settings, wanted, prior, weights)
    few = examples.take(np.arange(16))
    expected = fit_targets(few, settings, wanted[:16], prior, None)
    np.testing.assert_allclose(found.scores(examples), expected.scores(examples), atol=0.02)


@pytest.mark.parametrize("balanced", [False, True])
def test_each_of_several_labels_has_its_own(make_base: MakeBase, balanced: bool) -> None:
    """Balanced ones have the same weights, at even odds."""
    examples = read(make_base, multilabel(50), balanced=balanced)
    settings = {"power": 2.0, "alpha": 0.7, "temperature": 2.0, **ALL}
    found = fit(examples, settings).scores(examples)
    table = written_out(examples, settings)
    for label in range(3):
        yes = examples.truth[:, label]
        share = (yes.sum() + RAREST) / (50 + 2 * RAREST)
        expected = regressed(table, (yes - share) / (share * (1 - share)), 0.7) / 2
        expected = expected + (0.0 if balanced else np.log(share / (1 - share)))
        np.testing.assert_allclose(found[:, label], expected, atol=1e-6)


def test_without_evidence_probabilities_are_the_shares(make_base: MakeBase) -> None:
    """With so strong a regularisation that no feature counts; of balanced classes, all shares are equal."""
    settings = {"power": 2.0, "alpha": 1e6, "bag": 1.0, "words": 1.0}
    for balanced in (False, True):
        examples = read(make_base, reviews(45, names=("bad", "good", "so")), balanced=balanced)
        examples = examples.take(np.flatnonzero((examples.truth != 2) | (np.arange(45) < 12)))
        counts = np.bincount(examples.truth)
        scores = fit(examples, settings).scores(examples)
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        expected = np.full(3, 1 / 3) if balanced else counts / counts.sum()
        np.testing.assert_allclose(shares, np.tile(expected, (len(examples), 1)), atol=0.01)
        examples = read(make_base, multilabel(40), balanced=balanced)
        shares = 1 / (1 + np.exp(-fit(examples, settings).scores(examples)))
        expected = np.full(3, 0.5) if balanced else examples.truth.mean(0)
        np.testing.assert_allclose(shares, np.tile(expected, (40, 1)), atol=0.02)


@pytest.mark.parametrize("balanced", [False, True])
def test_targets_have_a_mean_of_zero(balanced: bool) -> None:
    """So that the bias stays near zero, and the prior alone says how frequent a class is."""
    truth = np.array([0] * 12 + [1] * 4 + [2] * 2)
    examples = Examples([], {}, truth, 3, balanced)
    weights = np.ones(18) if not balanced else example_weights(examples)
    assert weights is not None
    found, _ = regression_targets(truth, 3, balanced=balanced)
    np.testing.assert_allclose((weights[:, None] * found).mean(0), 0, atol=1e-12)
    table = (np.random.RandomState(0).rand(400, 3) < (0.1, 0.5, 0.8)).astype(np.float32)
    assert example_weights(Examples([], {}, table, 3, balanced)) is None
    found, _ = regression_targets(table, 3, balanced=balanced)
    np.testing.assert_allclose(found.mean(0), 0, atol=0.02)


@pytest.mark.parametrize("balanced", [False, True])
def test_a_class_without_examples_is_unlikely(make_base: MakeBase, balanced: bool) -> None:
    examples = read(make_base, reviews(20), balanced=balanced)

    def scores(truth: Any, classes: int) -> Any:
        changed = dataclasses.replace(examples, truth=truth, classes=classes)
        return fit(changed, {"power": 1.0, "alpha": 1.0, "bag": 1.0, "words": 1.0}).scores(examples)

    found = scores(examples.truth, 4)
    assert np.isfinite(found).all()
    assert set(found.argmax(1).tolist()) <= {0, 1}
    assert set(scores(np.full(20, 2), 4).argmax(1).tolist()) == {2}
    found = scores(np.array([[1, 0]] * 20, np.float32), 2)
    assert (np.sign(found) == [1, -1]).all()


def test_a_kernel_is_the_inner_product_of_documents(make_base: MakeBase) -> None:
    examples = read(make_base, reviews(20))
    for view in examples.views:
        table = written_out(examples, {"power": 3.0, view.name: 2.0})[:, :-1]
        found = kernel(view, examples.features[view.name], 3.0)
        np.testing.assert_allclose(found, table @ table.T, atol=1e-5)
        assert found.dtype == np.float64
        assert isinstance(found, np.ndarray)


def test_classifiers_are_averaged_or_added_up() -> None:
    columns = {"words": np.array([1, 4])}, {"words": np.array([0, 4])}
    first = LinearClassifier(
        {"bag": np.ones((2, 3)), "words": np.array([[1.0, 2], [3, 4]])}, columns[0], np.array([0.5, -0.5])
    )
    second = LinearClassifier(
        {"bag": np.zeros((2, 3)), "words": np.array([[10.0, 20], [30, 40]])}, columns[1], np.array([1.0, 0.0])
    )
    found = mean_classifier([first, second], [np.ones(2), np.array([0.1, 0.1])])
    assert found.columns["words"].tolist() == [0, 1, 4]
    np.testing.assert_allclose(found.weights["words"], [[1, 1, 4], [3, 3, 8]])
    np.testing.assert_allclose(found.bias, [0.6, -0.5])
    np.testing.assert_allclose(found.weights["bag"], np.ones((2, 3)))
    each = mean_classifier([first, second], [np.ones(2), np.array([0.1, 0.0])])
    np.testing.assert_allclose(each.weights["words"], [[1, 1, 4], [0, 3, 4]])
    mean = mean_classifier([first, second])
    np.testing.assert_allclose(mean.weights["words"], [[5, 0.5, 11], [15, 1.5, 22]])
    np.testing.assert_allclose(mean.bias, [0.75, -0.25])


def test_classifiers_of_different_views_are_averaged(make_base: MakeBase) -> None:
    examples = read(make_base, reviews(20))
    settings = [{"power": 2.0, "alpha": 1.0, name: 1.0} for name in ALL]
    found = [fit(examples, each) for each in settings]
    expected = np.mean([each.scores(examples) for each in found], axis=0)
    np.testing.assert_allclose(mean_classifier(found).scores(examples), expected, atol=1e-9)
