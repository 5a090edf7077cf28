"""Linear classifiers on the features of views: logistic regression with one weight per feature and class.

Before the solver sees them, features are rescaled, which is a prior on the weights:

    dense views    rotated onto the principal axes of the unlabelled documents, each scaled by its deviation^(power−1):
                   the higher the power, the more a few labels follow what the unlabelled text says matters
    sparse views   each column by how unevenly it occurs in the classes, as naive Bayes measures it (NB-SVM), times the
                   weight of the view. That is computed from the labels that are trained on, so anew in every fold

What comes out applies to the features as they are: the rescaling is folded into the weights.

Shapes: N documents, W columns of a view, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.examples import Examples
from rehead.finetune.logistic import fit_logistic
from rehead.views.view import DenseView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Settings = Mapping[str, float]
"Hyperparameters: power (of the dense views), C, and the weight of each sparse view by its name (0: not used)."

MIN_DOCUMENTS = 2  # in which a sparse feature must occur to get a weight


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
        found: Floats = features[:, self.columns[view]] @ weight.T
        return found

    def sparse_scores(self, examples: Examples) -> Floats:
        """Score documents by the sparse views alone, without the bias: (N, K)."""
        total = np.zeros((len(examples), len(self.bias)))
        for view in self.columns:
            total = total + self.view_scores(examples, view)
        return total


def fit_path(examples: Examples, settings: Settings, Cs: Sequence[float]) -> Iterator[LinearClassifier]:  # noqa: N803
    """Fit a classifier for each C, from strong to weak regularisation, each starting where the one before ended."""
    from scipy import sparse

    blocks, undo, columns = [], {}, {}
    for view in examples.views:
        features = examples.features[view.name]
        if isinstance(view, DenseView):
            matrix = view.rescaling(settings["power"])
            blocks.append(features @ matrix)
            undo[view.name] = matrix
        elif settings.get(view.name):
            kept, scale = naive_bayes_scale(features, examples.truth, examples.classes, MIN_DOCUMENTS)
            scale = settings[view.name] * scale
            blocks.append(features[:, kept].multiply(scale[None]))
            undo[view.name], columns[view.name] = scale, kept
        else:
            undo[view.name], columns[view.name] = np.zeros(0), np.zeros(0, np.int64)
    used = [block for block in blocks if block.shape[1]]
    inputs: Any = used[0] if len(used) == 1 else sparse.hstack([sparse.csr_matrix(each) for each in used]).tocsr()
    for weight, bias in fit_logistic(inputs, examples.truth, examples.classes, Cs, balanced=examples.balanced):
        parts, begin = {}, 0
        for name, scale in undo.items():
            own = weight[:, begin : begin + scale.shape[-1]]
            parts[name] = own @ scale.T if scale.ndim == 2 else own * scale
            begin += scale.shape[-1]
        yield LinearClassifier(parts, columns, bias)


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


def naive_bayes_scale(
    features: Any,  # noqa: ANN401 (a sparse matrix of scipy's)
    truth: NDArray[Any],
    classes: int,
    min_documents: int,
) -> tuple[Ints, Floats]:
    """Measure how unevenly each feature occurs in the classes: the columns worth a weight, and their scale.

    For two classes it is |log of the ratio of the shares in them|, with add-one smoothing; for more, the root mean
    square over the classes of the same, each against all others. Features that occur in fewer than `min_documents`
    documents, or equally often everywhere, are left out.
    """
    there = (features > 0).astype(np.float64)
    total = np.asarray(there.sum(0)).ravel()
    squares, count = np.zeros(len(total)), 0
    for label in range(classes):
        members = truth[:, label] > 0 if truth.ndim == 2 else truth == label
        if not members.any() or members.all():
            continue
        inside = np.asarray(there[np.flatnonzero(members)].sum(0)).ravel()
        p, q = inside + 1, total - inside + 1
        squares += np.log(p / p.sum() / (q / q.sum())) ** 2
        count += 1
    scale: Floats = np.sqrt(squares / max(1, count)) * (total > 0)
    kept = np.flatnonzero((scale > 0) & (total >= min(min_documents, features.shape[0])))
    return kept, scale[kept]
