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
import torch

from rehead.finetune.build import build_linear
from rehead.finetune.calibration import calibrated_losses, probabilities
from rehead.finetune.candidates.candidate import Candidate, Task, affordable, sample
from rehead.finetune.examples import Examples, read_unlabelled
from rehead.finetune.linear import LinearClassifier, mean_classifier, regression_targets
from rehead.finetune.naive_bayes import uneven_scale
from rehead.finetune.ridge import Features, solve
from rehead.runs.run import Run
from rehead.views.view import View

if TYPE_CHECKING:
    from rehead.finetune.candidates.candidate import Floats, Ints

MAX_DOCUMENTS = 100_000  # unlabelled ones that are read
MAX_CHARACTERS = 100_000_000  # of them together
MAX_COLUMNS = 100_000  # n-grams of a view that a student reads: guesses say too little about rarer ones
LABELLED_WEIGHT = 3.0  # of a labelled document, against an unlabelled one
SHARPNESS = 2.0  # that the teacher's log-odds are multiplied by
MATCHING = 0.5  # how far the shares of classes are moved towards those of the labels: 0 not, 1 all the way
ALPHAS = (10.0, 3.0, 1.0)  # of the student: what suits questions is too little for reviews, so three are averaged
STEPS = (8, 4)  # of conjugate gradients, from nothing and from a similar student: guesses are not worth more
ROUNDS = 2
SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the student's scores beside the teacher's
USUAL = 2.0  # taken unless another share is better by a standard error: folds of few examples can seldom tell
MARGIN = -0.5  # standard errors by which it may seem worse: it helped on every kind of text
MANY, FOLDS = 400, (5, 2)  # folds to judge by, with few examples and with many; if multilabel, as with few


def propose(task: Task, best: Candidate | None) -> Candidate | str:
    """Fit a student to what the best classifier says of unlabelled text: out-of-fold scores, and a way to build it."""
    if not task.unlabelled:
        return "no unlabelled text was given"
    if best is None or not task.folds:
        return "nothing could be held out to judge it by"
    # What the teacher gives no weight is not read: an encoder would take minutes, and bound how much text there is.
    examples = best.examples.only(
        [view for view in best.examples.views if view.sparse or any(each.get(view.name) for each in best.settings)]
    )
    if not any(view.sparse for view in examples.views):
        return "it teaches words and characters, which are not read"
    known = set(task.train.texts)
    new = [text for text in dict.fromkeys(task.unlabelled) if text not in known]
    if len(new) < len(task.train):
        return f"{len(new):,} unlabelled texts are fewer than the {len(task.train):,} examples"
    mean = sum(map(len, new)) / len(new)
    count = min(MAX_DOCUMENTS, int(MAX_CHARACTERS / max(1.0, mean)), affordable(new, examples.views))
    if count < len(task.train):
        return f"it would take too long to read as many unlabelled texts as there are examples, {len(task.train):,}"
    some = sample(new, count, task.options.seed)
    unlabelled = read_unlabelled(task.base, examples, some, quiet=task.quiet)
    folds = task.folds[: FOLDS[len(examples) >= MANY and not examples.multilabel]]
    trainer = StudentTrainer(examples, unlabelled, [view for view in examples.views if view.sparse])
    taught = {share: np.full((len(examples), examples.classes), np.nan) for share in SHARES}
    for inside, outside in folds:
        teacher, held_out = best.fit(examples.take(inside)), examples.take(outside)
        student = trainer.teach(teacher, inside)
        for share, logits in taught.items():
            logits[outside] = teacher.scores(held_out) + share * student.scores(held_out)
    share = choose_share(
        {each: calibrated_losses(taught[each], task.truth, balanced=task.balanced_loss) for each in SHARES}
    )

    def build() -> Run:
        teacher = best.fit(examples)
        student = trainer.teach(teacher, np.arange(len(examples)))
        factors = [np.ones(examples.classes), np.full(examples.classes, share)]
        return build_linear(task.base, examples, mean_classifier([teacher, student], factors), task.train)

    return dataclasses.replace(best, name="self-training", logits=taught[share], build=build, margin=MARGIN)


def choose_share(losses: dict[float, Floats]) -> float:
    """Choose the student's share by the losses of held-out examples, (N,) each."""
    best = min(losses, key=lambda share: losses[share].mean())
    usual = USUAL if USUAL in losses else best
    gain = losses[usual] - losses[best]
    return best if gain.mean() > gain.std() / len(gain) ** 0.5 else usual


class StudentTrainer:
    """Labelled and unlabelled documents together, as a student reads them."""

    def __init__(self, examples: Examples, unlabelled: Examples, views: Sequence[View]) -> None:
        from scipy import sparse

        self.examples, self.unlabelled, self.views = examples, unlabelled, views
        share = len(views) ** -0.5  # views count the same
        self.columns: dict[str, Ints] = {}
        blocks = []
        for view in views:
            both = sparse.vstack((examples.features[view.name], unlabelled.features[view.name])).tocsr()
            self.columns[view.name] = commonest(both, MAX_COLUMNS)
            blocks.append(share * (both if both.shape[1] <= MAX_COLUMNS else both[:, self.columns[view.name]]))
        self.features = Features(blocks)
        [self.block] = self.features.parts
        self.widths = [each.shape[1] for each in blocks]

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
        scores, student = said, torch.zeros(0)
        size = score_size(said, multilabel=multilabel)
        solved: list[torch.Tensor] = []
        for _ in range(ROUNDS):
            soft = regression_of(sharpened(scores, prior, multilabel=multilabel), prior, multilabel=multilabel)
            goal = np.concatenate((labels, soft))
            uneven = uneven_scale(self.block, self.widths, goal, weights)
            scale = torch.from_numpy(np.append(uneven, 1.0)).float()[:, None]  # the constant stays as it is
            solved = self._solve(scale, goal, weights, solved)
            made = [scale * each for each in solved]  # weights of the features as they are: (W + 1, K)
            for each in made:
                each[-1] = 0.0  # no bias
                whole = score_size(self._scores(each), multilabel=multilabel)
                factor = np.where(whole > 1e-6, size / np.maximum(whole, 1e-6), 0.0)  # 0: it knows no n-gram of these
                each *= torch.as_tensor(factor / len(made), dtype=torch.float32)
            student = torch.stack(made).sum(0)
            scores = (said + self._scores(student) + bias) / 2
        return self._classifier(student)

    def _scores(self, weights: torch.Tensor) -> Floats:
        """Score the unlabelled documents by weights (W + 1, K)."""
        found: Floats = self.features.down(weights)[len(self.examples) :].double().numpy()
        return found

    def _solve(
        self, scale: torch.Tensor, targets: Floats, weights: Floats, before: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Fit a student with each alpha, the features scaled: (W + 1, K).

        Each starts from that of the round before, or else from the one with the alpha before.
        """
        features = self.features.scaled(scale)
        y, d = torch.from_numpy(targets).float(), torch.from_numpy(weights).float()[:, None]
        solved: list[torch.Tensor] = []
        for place, alpha in enumerate(ALPHAS):
            start = [*before[place : place + 1], *solved[-1:], None][0]
            solved.append(solve(features, y, d, alpha, STEPS[start is not None], start))
        return solved

    def _classifier(self, weights: torch.Tensor) -> LinearClassifier:
        """Make a classifier of weights (W + 1, K); views that a student does not read have none."""
        parts = torch.split(weights[:-1], self.widths)
        share = len(self.views) ** -0.5
        own = {view.name: share * part.double().numpy().T for view, part in zip(self.views, parts, strict=True)}
        for view in self.examples.views:
            if view.name not in own:
                own[view.name] = np.zeros((self.examples.classes, view.columns))
        ordered = {view.name: own[view.name] for view in self.examples.views}
        return LinearClassifier(ordered, dict(self.columns), np.zeros(self.examples.classes))


def commonest(matrix: Any, most: int) -> Ints:  # noqa: ANN401 (a sparse matrix of scipy's)
    """Find the columns (C,), ascending, that the most documents have; all of them, if there are not more."""
    if matrix.shape[1] <= most:
        return np.arange(matrix.shape[1])
    frequency = np.bincount(matrix.indices, minlength=matrix.shape[1])
    return np.sort(np.argsort(-frequency, kind="stable")[:most])


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


def score_size(scores: Floats, *, multilabel: bool = False) -> Floats:
    """Root mean square of how far scores (N, K) differ between the classes of a document: ().

    If multilabel, between documents, for each label: (K,).
    """
    apart = scores - scores.mean(0 if multilabel else 1, keepdims=True)
    size: Floats = np.sqrt((apart**2).mean(0 if multilabel else None))
    return size
