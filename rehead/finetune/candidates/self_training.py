"""Self-training on unlabelled text: the classifier of the labels teaches views that saw too few of them.

A classifier of a few hundred labels knows the vectors well and exact words and characters hardly: most of these occur
in no labelled document. It is right about most unlabelled ones, though, so a student is fitted to its probabilities for
these, and added to it. Views err on different documents, and together are better than either: co-training (Blum and
Mitchell 1998), in one direction. A second round fits the student to what both say.

The student reads words and characters, whatever its teacher read; one that reads all views learns the teacher's
mistakes with the rest. What it learns from is sharpened, and moved half-way towards the shares that the classes have
among the labels: a teacher of few labels neglects some classes, and would pass that on. Its features are scaled by how
unevenly they occur in the classes, as in NB-SVM: 1.5 points on film reviews (docs/experiments/any-text.md). What comes
out is a linear classifier again.

Shapes: N documents, K classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.build import build_linear
from rehead.finetune.calibration import calibrated_losses, probabilities
from rehead.finetune.candidates.candidate import Candidate, Task, affordable, sample
from rehead.finetune.examples import Examples, read_unlabelled
from rehead.finetune.linear import LinearClassifier, Settings, fit_targets, mean_classifier, regression_targets
from rehead.runs.run import Run
from rehead.views.view import View

if TYPE_CHECKING:
    from rehead.finetune.candidates.candidate import Floats, Ints

MAX_DOCUMENTS = 30_000  # unlabelled ones that are read
LABELLED_WEIGHT = 3.0  # of a labelled document, against an unlabelled one
SHARPNESS = 2.0  # that the teacher's log-odds are multiplied by
MATCHING = 0.5  # how far the shares of classes are moved towards those of the labels: 0 not, 1 all the way
ALPHAS = (1.0, 3.0, 10.0)  # of the student: what suits questions is too little for reviews, so three are averaged
STEPS = 15  # of conjugate gradients: pseudo-labels are not worth fitting to the last digit
ROUNDS = 2
SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the student's scores beside the teacher's
MARGIN = -0.5  # standard errors by which it may seem worse: it helped on every kind of text
MANY, FOLDS = 400, (10, 2)  # folds to judge by, with few examples and with many


def propose(task: Task, best: Candidate | None) -> Candidate | str:
    """Fit a student to what the best classifier says of unlabelled text: out-of-fold scores, and a way to build it."""
    if not task.unlabelled:
        return "no unlabelled text was given"
    if best is None or not task.folds:
        return "nothing could be held out to judge it by"
    examples = best.examples
    if not any(view.sparse for view in examples.views):
        return "it teaches words and characters, which are not read"
    known = set(task.train.texts)
    new = [text for text in dict.fromkeys(task.unlabelled) if text not in known]
    if len(new) < len(task.train):
        return f"{len(new):,} unlabelled texts are fewer than the {len(task.train):,} examples"
    count = min(MAX_DOCUMENTS, affordable(new, examples.views))
    if count < len(task.train):
        return f"an encoder would take too long to read {len(task.train):,} unlabelled texts or more"
    some = sample(new, count, task.options.seed)
    unlabelled = read_unlabelled(task.base, examples, some, quiet=task.quiet)
    folds = task.folds[: FOLDS[len(examples) >= MANY]]
    trainer = StudentTrainer(examples, unlabelled, [view for view in examples.views if view.sparse])
    taught = {share: np.full((len(examples), examples.classes), np.nan) for share in SHARES}
    for inside, outside in folds:
        teacher, held_out = best.fit(examples.take(inside)), examples.take(outside)
        student = trainer.teach(teacher, inside)
        for share, logits in taught.items():
            logits[outside] = teacher.scores(held_out) + share * student.scores(held_out)
    share = min(
        SHARES, key=lambda each: calibrated_losses(taught[each], task.truth, balanced=task.balanced_loss).mean()
    )

    def build() -> Run:
        teacher = best.fit(examples)
        student = trainer.teach(teacher, np.arange(len(examples)))
        factors = [np.ones(examples.classes), np.full(examples.classes, share)]
        return build_linear(task.base, examples, mean_classifier([teacher, student], factors), task.train)

    return dataclasses.replace(best, name="self-training", logits=taught[share], build=build, margin=MARGIN)


class StudentTrainer:
    """Labelled and unlabelled documents together, as a student reads them."""

    def __init__(self, examples: Examples, unlabelled: Examples, views: Sequence[View]) -> None:
        self.examples, self.unlabelled = examples, unlabelled
        features = {view.name: _stacked(examples.features[view.name], unlabelled.features[view.name]) for view in views}
        self.together = dataclasses.replace(examples, features=features, views=views)
        self.present = {name: (each > 0).astype(np.float64).T.tocsr() for name, each in features.items()}
        self.settings: Settings = {"power": 1.0, **{view.name: 1.0 for view in views}}

    def teach(self, teacher: LinearClassifier, known: Ints) -> LinearClassifier:
        """Fit a student to what a teacher, fitted to the examples `known`, says of unlabelled text.

        Its scores have no bias, and are as large as the teacher's, on average.
        """
        examples, multilabel = self.examples, self.examples.multilabel
        truth, bias = examples.truth[known], teacher.bias
        targets, prior = regression_targets(truth, examples.classes, balanced=examples.balanced and not multilabel)
        labels = np.zeros((len(examples), examples.classes))
        labels[known] = targets
        weights = np.zeros(len(examples) + len(self.unlabelled))
        weights[known], weights[len(examples) :] = LABELLED_WEIGHT, 1.0
        said = teacher.scores(self.unlabelled)
        if multilabel and examples.balanced:  # as it would say it of labels at their own shares
            said, bias = said + prior, bias + prior
        scores = said
        size = score_size(said, multilabel=multilabel)
        for _ in range(ROUNDS):
            soft = regression_of(sharpened(scores, prior, multilabel=multilabel), prior, multilabel=multilabel)
            fitted = [widened(each, examples) for each in self._fit(np.concatenate((labels, soft)), prior, weights)]
            factors = []
            for each in fitted:
                whole = score_size(each.scores(self.unlabelled), multilabel=multilabel)
                factor = np.where(whole > 1e-6, size / np.maximum(whole, 1e-6), 0.0)  # 0: it knows no n-gram of these
                factors.append(np.broadcast_to(factor / len(fitted), len(prior)))
            student = mean_classifier(fitted, factors)
            scores = (said + student.scores(self.unlabelled) + bias) / 2
        return student

    def _fit(self, targets: Floats, prior: Floats, weights: Floats) -> list[LinearClassifier]:
        """Fit students, their features scaled by how unevenly they occur in the classes that they are told."""
        scales = {
            name: uneven_scale(self.present[name], each, targets, weights)
            for name, each in self.together.features.items()
        }
        scaled = {name: each @ sparse_diagonal(scales[name]) for name, each in self.together.features.items()}
        together = dataclasses.replace(self.together, features=scaled)
        found = []
        for alpha in ALPHAS:
            fitted = fit_targets(together, {**self.settings, "alpha": alpha}, targets, prior, weights, STEPS)
            for name, columns in fitted.columns.items():
                fitted.weights[name] = fitted.weights[name] * scales[name][columns]
            found.append(fitted)
        return found


def uneven_scale(present: Any, features: Any, targets: Floats, weights: Floats) -> Floats:  # noqa: ANN401 (sparse)
    """Measure how unevenly each feature occurs in the classes: (W,), its mean square over all occurrences 1.

    As naive Bayes does, by the logarithm of the ratio of a feature's shares in a class and in all others, in root mean
    square over the classes; documents belong to classes by as much as the targets say.
    """
    low, high = targets[weights > 0].min(0), targets[weights > 0].max(0)
    inside = weights[:, None] * (targets - low) / np.maximum(high - low, 1e-12)  # (N, K)
    found = present @ inside + 1  # (W, K)
    others = np.maximum((present @ weights)[:, None] + 2 - found, 1e-6)
    ratio = np.log(found / found.sum(0)) - np.log(others / others.sum(0))
    scale: Floats = np.sqrt((ratio**2).mean(1))
    occurring = np.bincount(features.indices, features.data**2, features.shape[1])
    mean = float((occurring * scale**2).sum() / max(occurring.sum(), 1e-12))
    normalised: Floats = scale / max(mean**0.5, 1e-12)
    return normalised


def sparse_diagonal(values: Floats) -> Any:  # noqa: ANN401 (a sparse matrix of scipy's)
    """A diagonal matrix."""
    from scipy import sparse

    return sparse.diags(values).tocsr()


def sharpened(scores: Floats, prior: Floats, *, multilabel: bool) -> Floats:
    """Probabilities of what a teacher says, sharpened; the shares of classes are moved towards the prior's: (N, K)."""
    if multilabel:
        return probabilities(SHARPNESS * (scores - prior) + prior, multilabel=True)
    given = probabilities(SHARPNESS * scores, multilabel=False)
    share = np.exp(prior) / np.exp(prior).sum()
    given = given * (share / np.maximum(given.mean(0), 1e-9)) ** MATCHING
    matched: Floats = given / given.sum(1, keepdims=True)
    return matched


def regression_of(guess: Floats, prior: Floats, *, multilabel: bool) -> Floats:
    """Turn probabilities (N, K) into what is regressed on, as `regression_targets` does with labels."""
    if multilabel:
        share = 1 / (1 + np.exp(-prior))
        found: Floats = (guess - share) / (share * (1 - share))
        return found
    return guess - np.exp(prior)


def widened(linear: LinearClassifier, examples: Examples) -> LinearClassifier:
    """Give a classifier of some views weights of zero for the others."""
    weights, columns = dict(linear.weights), dict(linear.columns)
    for view in examples.views:
        if view.name not in weights:
            weights[view.name] = np.zeros((examples.classes, 0 if view.sparse else view.columns))
            if view.sparse:
                columns[view.name] = np.zeros(0, np.int64)
    ordered = {view.name: weights[view.name] for view in examples.views}
    return LinearClassifier(ordered, columns, np.zeros_like(linear.bias))


def _stacked(above: Any, below: Any) -> Any:  # noqa: ANN401 (arrays or sparse matrices)
    from scipy import sparse

    return np.concatenate((above, below)) if isinstance(above, np.ndarray) else sparse.vstack((above, below)).tocsr()


def score_size(scores: Floats, *, multilabel: bool = False) -> Floats:
    """Root mean square of how far scores (N, K) differ between the classes of a document: ().

    If multilabel, between documents, for each label: (K,).
    """
    apart = scores - scores.mean(0 if multilabel else 1, keepdims=True)
    size: Floats = np.sqrt((apart**2).mean(0 if multilabel else None))
    return size
