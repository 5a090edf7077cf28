"""A candidate: a way to a classifier, with what it scores on examples that it was not fitted to.

Shapes: N examples, K classes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError
from rehead.finetune.examples import Examples
from rehead.finetune.linear import LinearClassifier, Settings
from rehead.finetune.losses import selection_losses
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import class_sizes, folds, max_folds, split
from rehead.finetune.targets import subset, targets
from rehead.runs.run import Run
from rehead.text.documents import LabelledData
from rehead.views import views_beside
from rehead.views.encoded import EncodedTexts
from rehead.views.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Folds = Sequence[tuple[Ints, Ints]]

MOST_FOLDS = 10
SEARCHED = 1_500  # examples: with more, settings are searched on so many of them
HELD_OUT = 0.1  # share that judges the candidates then


@dataclass
class Task:
    """What a classifier is to be made of, and the folds by which candidates are compared."""

    train: LabelledData
    base: Run
    options: FitOptions
    unlabelled: Sequence[str] | None
    truth: NDArray[Any]
    "(N,) of classes, or (N, K) of yes and no if multilabel."
    searched: Ints
    "The examples on which settings are searched: all, unless there are very many."
    search_folds: Folds
    "Of these examples: for each fold, those outside and those in it. Empty if nothing can be cross-validated."
    folds: Folds
    "The same of all examples: what candidates are judged by."

    @classmethod
    def make(cls, train: LabelledData, base: Run, options: FitOptions, unlabelled: Sequence[str] | None) -> Task:
        """Choose the folds."""
        if base.tokenizer is None:
            raise UserError("fine-tuning needs a run with a tokenizer to start from.")
        searched = np.arange(len(train))
        if len(train) > SEARCHED:
            searched = split(train, 1 - SEARCHED / len(train), options.seed)[0]
        part = subset(train, searched)
        count = fold_count(part)
        search_folds = folds(part, count, options.seed) if count >= 2 else []
        judged = search_folds
        if search_folds and len(searched) < len(train):
            judged = [split(train, HELD_OUT, options.seed)]
        truth = targets(train, train.names, multilabel=train.multilabel)
        return cls(train, base, options, unlabelled, truth, searched, search_folds, judged)

    @functools.cached_property
    def text_views(self) -> list[View]:
        """The views that learn from the text itself, which all text at hand has taught."""
        views = views_beside(self.base.model)
        texts = EncodedTexts([*self.train.texts, *(self.unlabelled or ())])
        for view in views:
            view.learn(texts)
        return [view for view in views if view.columns]

    @property
    def balanced(self) -> bool:
        """Whether all classes count the same."""
        return self.options.class_weight == "balanced"


@dataclass
class Candidate:
    """A way to a classifier."""

    name: str
    logits: Floats
    "Out-of-fold scores of the task's examples: (N, K). NaN for those that were never held out."
    examples: Examples
    "All examples, as the views of this candidate see them."
    settings: list[Settings]
    "Hyperparameters of its linear part; where there are several, classifiers with each are averaged, the best first."
    fit: Callable[[Examples], LinearClassifier]
    "Fit the linear part to some examples."
    build: Callable[[], Run]
    "Make the classifier of all examples, not yet calibrated."
    notes: list[str] = field(default_factory=list)
    "What the user should know about how it was found."
    frozen: bool = True
    "Whether the base stays as it was."

    @property
    def loss(self) -> float:
        """Mean out-of-fold loss, as settings are compared by it."""
        known = ~np.isnan(self.logits[:, 0])
        truth, balanced = self.examples.truth[known], self.examples.balanced
        return float(selection_losses(self.logits[known], truth, balanced=balanced).mean())


def fold_count(data: LabelledData) -> int:
    """Choose the number of folds: at most the size of the median class; 0 if no two classes have two examples.

    With more folds than a class has examples, its held-out examples meet a classifier that has seen fewer of their
    class than of others, and every setting that trusts the labels less looks bad. A rare class may not decide that for
    all others, though: of one example, none is left to train on, and that counts against all settings alike. Copies
    stay in one fold, and count once.
    """
    if max_folds(data, 2) < 2:
        return 0
    sizes = class_sizes(data)
    return max(2, min(MOST_FOLDS, int(np.median(sizes)), sum(sizes) // 2))


Propose = Callable[[Task, Candidate | None], Candidate | str]
"Try a way, given the best candidate so far: the candidate, or the reason why it was not tried."


def describe_settings(settings: Settings) -> str:
    """Say what was chosen: `bag 0.3, words 0.7, power 2, alpha 1`; a view that counts nothing is left out."""
    return ", ".join(f"{name} {value:.2g}" for name, value in settings.items() if value and name != "temperature")
