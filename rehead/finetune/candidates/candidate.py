"""A candidate: a way to a classifier, with what it scores on examples that it was not fitted to.

Shapes: N examples, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError
from rehead.finetune.examples import Examples
from rehead.finetune.linear import LinearClassifier, Settings
from rehead.finetune.logistic import log_losses
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import folds, max_folds, split
from rehead.finetune.targets import subset, targets
from rehead.runs.run import Run
from rehead.text.documents import LabelledData

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Folds = Sequence[tuple[Ints, Ints]]

FOLDS = 5
SEARCHED = 6_000  # examples: with more, settings are searched on so many of them
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
        count = max_folds(part, FOLDS)
        search_folds = folds(part, count, options.seed) if count >= 2 else []
        judged = search_folds
        if search_folds and len(searched) < len(train):
            judged = [split(train, HELD_OUT, options.seed)]
        truth = targets(train, train.names, multilabel=train.multilabel)
        return cls(train, base, options, unlabelled, truth, searched, search_folds, judged)

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
        """Mean out-of-fold log loss."""
        known = ~np.isnan(self.logits[:, 0])
        truth, balanced = self.examples.truth[known], self.examples.balanced
        return float(log_losses(self.logits[known], truth, balanced=balanced).mean())


Propose = Callable[[Task, Candidate | None], Candidate | str]
"Try a way, given the best candidate so far: the candidate, or the reason why it was not tried."


def describe_settings(settings: Settings) -> str:
    """Say what was chosen: `power 2, words 4, C 10`; a view that counts nothing is left out."""
    return ", ".join(f"{name} {value:g}" for name, value in settings.items() if value)
