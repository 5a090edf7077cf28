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
from rehead.finetune.losses import log_losses
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import folds, max_folds, split
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

FOLDS, MORE_FOLDS = 5, 10  # folds, and folds of at most `FEW` examples, which should be trained on as many as possible
FEW = 500
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
        """Whether all classes count the same in training."""
        return self.options.class_weight == "balanced"

    @property
    def balanced_loss(self) -> bool:
        """Whether all classes count the same where candidates and settings are compared.

        Not for the macro-F1 of multilabel data: its log loss is a mean over the labels anyway, and balancing the few
        texts that have a rare label against all others would leave them to decide.
        """
        return self.balanced or (self.options.metric == "macro-f1" and not self.train.multilabel)


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
    balanced_loss: bool = False
    "Whether it is compared by class-balanced loss: that of its task."

    @property
    def loss(self) -> float:
        """Mean out-of-fold log loss."""
        known = ~np.isnan(self.logits[:, 0])
        return float(log_losses(self.logits[known], self.examples.truth[known], balanced=self.balanced_loss).mean())


def fold_count(data: LabelledData) -> int:
    """Choose the number of folds: 0 if no two classes have an example to train on and one to judge by.

    A class may have fewer examples than there are folds: it is then missing from the training part of none, or of some,
    and its examples count against all settings alike.
    """
    most = MORE_FOLDS if len(data) <= FEW else FOLDS
    return min(most, len(data)) if max_folds(data, 2) >= 2 else 0


Propose = Callable[[Task, Candidate | None], Candidate | str]
"Try a way, given the best candidate so far: the candidate, or the reason why it was not tried."


def describe_settings(settings: Settings) -> str:
    """Say what was chosen: `bag 0.3, words 0.7, power 2, alpha 1`; a view that counts nothing is left out."""
    return ", ".join(f"{name} {value:.2g}" for name, value in settings.items() if value and name != "temperature")
