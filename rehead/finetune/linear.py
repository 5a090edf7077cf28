"""Linear classifiers on the features of views, with what is known before any label: how views and directions count.

    view weights   how much each view counts: its share of the inner product of two documents
    power          dense views are rotated onto the principal axes of the unlabelled documents, each scaled by its
                   deviation^(power−1): the higher, the more a few labels follow what the unlabelled text says matters
    alpha          strength of the regularisation, as scikit-learn's `Ridge` names it
    naive_bayes    sparse features are scaled by how unevenly they occur in the classes, to this power

What comes out applies to the features as they are: the scaling is folded into the weights.

Few examples are fitted by squared error, which has a solution in closed form, or by log loss if there are many classes;
many by squared hinge loss, which does not count documents that are right by a margin: with 9,000 questions in 77
classes 92.1 % instead of 88.1.

Scores are log-odds: the regression is on labels from which the class's share was subtracted, and its scores, divided by
a temperature, move away from the logarithm of that share. Without any evidence, probabilities are the shares.

Shapes: N documents, W columns of a view, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.examples import Examples
from rehead.finetune.naive_bayes import uneven_scale
from rehead.finetune.ridge import BIAS, Block, fit_dual, fit_hinge, fit_hinge_dual, fit_primal
from rehead.finetune.softmax import fit_softmax
from rehead.finetune.targets import balanced_weights
from rehead.views.view import DenseView, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Settings = Mapping[str, float]
"""Hyperparameters: power, alpha, naive_bayes, temperature, the loss (squared error, unless `hinge` or `softmax` is 1:
squared hinge loss, log loss), and the weight of each view by its name (none: not used)."""

DUAL = 3_000  # examples up to which the kernel is used
HINGE_DUAL = (
    300  # the same for hinge loss, of which each class has a kernel of its own: a third of the time up to there
)
RAREST = 0.5  # documents that a class without examples is thought to have


@dataclass
class LinearClassifier:
    """Weights for the features of each view."""

    weights: dict[str, Floats]
    "By view: (K, W), or, of a sparse view, (K, columns that have weights)."
    columns: dict[str, Ints]
    "Of sparse views: the columns that have weights, ascending."
    bias: Floats
    "(K,)"

    def scores(self, examples: Examples) -> Floats:
        """Score documents: (N, K)."""
        total = np.tile(self.bias, (len(examples), 1))
        for view in self.weights:
            total = total + self.view_scores(examples, view)
        return total

    def view_scores(self, examples: Examples, view: str) -> Floats:
        """Score documents by one view alone, without the bias: (N, K)."""
        features, weight = examples.features[view], self.weights[view]
        if view not in self.columns:
            dense: Floats = features @ weight.T
            return dense
        if not len(self.columns[view]):
            return np.zeros((len(examples), len(self.bias)))
        whole = np.zeros((features.shape[1], len(self.bias)))  # cheaper than to select columns of the features
        whole[self.columns[view]] = weight.T
        found: Floats = features @ whole
        return found


def used_views(examples: Examples, settings: Settings) -> list[View]:
    """The views that have a weight."""
    return [view for view in examples.views if settings.get(view.name)]


def regression_targets(truth: NDArray[Any], classes: int, *, balanced: bool) -> tuple[Floats, Floats]:
    """What is regressed on, and the score of a class without any evidence: (N, K), (K,).

    Labels as 0 and 1, minus the share of the class; if multilabel, divided by its variance, as log-odds are steeper for
    rare labels. Several labels are balanced by their prior alone: weights would differ by label, and with them kernels.
    """
    if truth.ndim == 2:
        share = (truth.sum(0) + RAREST) / (len(truth) + 2 * RAREST)
        spread = share * (1 - share)
        prior = np.zeros_like(share) if balanced else np.log(share / (1 - share))
        return (truth - share) / spread, prior
    one_hot = np.eye(classes)[truth]
    present = one_hot.any(0)
    share = np.maximum(one_hot.sum(0), RAREST) / len(truth)
    if balanced:
        share = np.where(present, 1 / max(1, present.sum()), RAREST / len(truth))
    return one_hot - share, np.log(share)


def kernel(view: View, features: Any, power: float) -> Floats:  # noqa: ANN401 (an array or a sparse matrix)
    """Inner products of documents, as one view sees them: (N, N)."""
    if isinstance(view, DenseView):
        vectors = features @ view.rescaling(power)
        dense: Floats = vectors @ vectors.T
        return dense
    sparse: Floats = (features @ features.T).toarray().astype(np.float64)
    return sparse


def fit(examples: Examples, settings: Settings) -> LinearClassifier:
    """Fit a classifier with these settings: by squared error, by log loss, or by squared hinge loss."""
    alpha, weights, no_prior = settings["alpha"], example_weights(examples), np.zeros(examples.classes)
    if settings.get("softmax"):
        scaled = _Scaled(examples, settings)
        coefficients = fit_softmax(scaled.kernel(), examples.truth, examples.classes, alpha, weights)
        return scaled.from_dual(coefficients, no_prior)
    if not settings.get("hinge"):
        targets, prior = regression_targets(examples.truth, examples.classes, balanced=examples.balanced)
        return fit_targets(examples, settings, targets, prior, weights)
    scaled = _Scaled(examples, settings)
    if len(examples) <= HINGE_DUAL:
        coefficients = fit_hinge_dual(scaled.kernel(), class_table(examples), alpha, weights)
        return scaled.from_dual(coefficients, no_prior)
    solved, bias = fit_hinge(scaled.blocks, class_table(examples), alpha, weights)
    return scaled.classifier(solved, bias, no_prior)


def fit_targets(
    examples: Examples,
    settings: Settings,
    targets: Floats,
    prior: Floats,
    weights: Floats | None,
) -> LinearClassifier:
    """Fit a classifier to targets (N, K), which need not be the labels of the examples."""
    scaled = _Scaled(examples, settings)
    blocks, alpha = scaled.blocks, settings["alpha"]
    if len(targets) <= DUAL and (weights is None or (weights.ndim == 1 and weights.all())):
        coefficients = fit_dual(scaled.kernel(), targets, alpha, weights)
        return scaled.from_dual(coefficients, prior)
    return scaled.classifier(*fit_primal(blocks, targets, alpha, weights), prior)


class _Scaled:
    """The features of the views that count, scaled as the settings say, and the way back."""

    def __init__(self, examples: Examples, settings: Settings) -> None:
        self.examples, self.heat = examples, settings.get("temperature", 1.0)
        self.views = used_views(examples, settings)
        self.columns: dict[str, Ints] = {}
        self.blocks: list[Any] = []
        self.undo: list[Floats] = []
        total = sum(settings[view.name] for view in self.views)
        truth = class_table(examples)
        for view in self.views:
            features, share = examples.features[view.name], (settings[view.name] / total) ** 0.5
            if isinstance(view, DenseView):
                self.undo.append(share * view.rescaling(settings["power"]))
                self.blocks.append(features @ self.undo[-1])
            else:
                columns = np.flatnonzero(np.bincount(features.indices, minlength=features.shape[1]))
                some, scale = features[:, columns], np.full(len(columns), share)
                if exponent := settings.get("naive_bayes"):
                    scale *= uneven_scale(Block(some), [len(columns)], truth, np.ones(len(truth))) ** exponent
                self.columns[view.name] = columns
                self.undo.append(scale)
                self.blocks.append(some.multiply(scale).tocsr())

    def kernel(self) -> Floats:
        """Inner products of the examples: (N, N)."""
        found: Floats = np.sum([_products(each) for each in self.blocks], axis=0).astype(np.float64)
        return found

    def from_dual(self, coefficients: Floats, prior: Floats) -> LinearClassifier:
        """Make a classifier of the coefficient of every document, (N, K)."""
        return self.classifier([each.T @ coefficients for each in self.blocks], BIAS * coefficients.sum(0), prior)

    def classifier(self, weights: Sequence[NDArray[Any]], bias: NDArray[Any], prior: Floats) -> LinearClassifier:
        """Make a classifier of what was solved for the scaled features; a view that is not used has no weights."""
        parts, columns = {}, dict(self.columns)
        for view, own, undo in zip(self.views, weights, self.undo, strict=True):
            weight = np.asarray(own, np.float64)  # (W, K)
            parts[view.name] = (undo @ weight if undo.ndim == 2 else undo[:, None] * weight).T / self.heat
        for view in self.examples.views:
            if view.name not in parts:
                parts[view.name] = np.zeros((self.examples.classes, 0 if view.sparse else view.columns))
                if view.sparse:
                    columns[view.name] = np.zeros(0, np.int64)
        return LinearClassifier(parts, columns, np.asarray(bias, np.float64) / self.heat + prior)


def class_table(examples: Examples) -> NDArray[Any]:
    """Which classes each example has, as a table of 0 and 1: (N, K)."""
    return examples.truth if examples.multilabel else np.eye(examples.classes)[examples.truth]


def example_weights(examples: Examples) -> Floats | None:
    """Weights of the examples, (N,): None, if all count the same; with several labels they do."""
    return balanced_weights(examples.truth) if examples.balanced and not examples.multilabel else None


def _products(matrix: Any) -> Floats:  # noqa: ANN401 (an array or a sparse matrix)
    found = matrix @ matrix.T
    given: Floats = found if isinstance(found, np.ndarray) else found.toarray()
    return given


def mean_classifier(made: Sequence[LinearClassifier], shares: Sequence[Floats] | None = None) -> LinearClassifier:
    """Average classifiers, which gives a linear classifier again; or add them up, each times its share (K,)."""
    classes = len(made[0].bias)
    factors = [np.full(classes, 1 / len(made))] * len(made) if shares is None else shares
    weights: dict[str, Floats] = {}
    columns: dict[str, Ints] = {}
    for view in made[0].weights:
        if view not in made[0].columns:
            parts = [factor[:, None] * each.weights[view] for each, factor in zip(made, factors, strict=True)]
            weights[view] = np.sum(parts, axis=0)
            continue
        columns[view] = np.unique(np.concatenate([each.columns[view] for each in made]))
        weights[view] = np.zeros((classes, len(columns[view])))
        for each, factor in zip(made, factors, strict=True):
            places = np.searchsorted(columns[view], each.columns[view])
            weights[view][:, places] += factor[:, None] * each.weights[view]
    bias = np.sum([factor * each.bias for each, factor in zip(made, factors, strict=True)], axis=0)
    return LinearClassifier(weights, columns, bias)
