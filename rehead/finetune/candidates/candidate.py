"""A candidate: a way to a classifier, with what it scores on examples that it was not fitted to.

Shapes: N examples, K classes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.bases.brought import Engine
from rehead.errors import UserError
from rehead.finetune.examples import Examples
from rehead.finetune.linear import LinearClassifier, Settings
from rehead.finetune.losses import selection_losses
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import class_sizes, folds, max_folds, split
from rehead.finetune.targets import targets
from rehead.runs.run import Run
from rehead.text.documents import LabelledData
from rehead.text.order import shuffled
from rehead.text.random_streams import Stream
from rehead.views import brought_views
from rehead.views.brought import BroughtView
from rehead.views.cache import read_cached
from rehead.views.encoded import EncodedTexts
from rehead.views.learnt import learnt_views
from rehead.views.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Folds = Sequence[tuple[Ints, Ints]]

MOST_FOLDS = 10
SEARCHED = 1_600  # examples: with more, fewer settings are tried, on a held-out tenth
ENOUGH = 2_000  # unlabelled texts, from which on views learn from these alone: the same for every set of examples
HELD_OUT = 0.1  # share that judges the candidates then
LOSSES = {"hinge": "squared hinge loss", "softmax": "log loss"}
STATISTICS = 2_000  # texts that the mean and covariance of a base that others pretrained are of, if there are as many
MAX_WORK = 2e13  # multiply-adds of an encoder that reads unlabelled text: five to ten minutes on two cores
COUNTED, BEGINNING = 200, 200  # texts, and characters of each, by which the tokens of texts are estimated


@dataclass
class Task:
    """What a classifier is to be made of, and the folds by which candidates are compared."""

    train: LabelledData
    base: Run
    options: FitOptions
    unlabelled: Sequence[str] | None
    truth: NDArray[Any]
    "(N,) of classes, or (N, K) of yes and no if multilabel."
    folds: Folds
    """For each fold, the examples outside and those in it: what candidates are judged by. One held-out tenth, if there
    are many examples; empty if nothing can be cross-validated."""
    tried: list[Candidate] = field(default_factory=list)
    "Linear classifiers that were judged on the way, for what each view is worth alone."
    quiet: bool = True
    "Whether no progress is shown where reading the texts takes long."

    @classmethod
    def make(
        cls,
        train: LabelledData,
        base: Run,
        options: FitOptions,
        unlabelled: Sequence[str] | None,
        *,
        quiet: bool = True,
    ) -> Task:
        """Choose the folds."""
        if base.tokenizer is None and not base.model.config.empty:
            raise UserError("fine-tuning needs a run with a tokenizer to start from.")
        judged = []
        if (count := fold_count(train)) >= 2:
            many = len(train) > SEARCHED
            judged = [split(train, HELD_OUT, options.seed)] if many else folds(train, count, options.seed)
        truth = targets(train, train.names, multilabel=train.multilabel)
        return cls(train, base, options, unlabelled, truth, judged, quiet=quiet)

    @functools.cached_property
    def text_views(self) -> list[View]:
        """The views of the text itself, learnt from all text at hand, or from the unlabelled text if that is enough."""
        unlabelled = list(dict.fromkeys(self.unlabelled or ()))
        enough = len(unlabelled) >= max(ENOUGH, 5 * len(self.train))
        texts = unlabelled if enough else list(dict.fromkeys([*self.train.texts, *unlabelled]))
        return learnt_views(self.base.model, texts)

    @functools.cached_property
    def brought_views(self) -> Sequence[View]:
        """The views of bases that others pretrained, with the statistics of labelled and some unlabelled text."""
        views = brought_views(self.base.model, long=self.options.long)
        unlabelled = list(self.unlabelled or ())
        count = min(max(0, STATISTICS - len(self.train)), affordable(unlabelled, views))
        more = sample(unlabelled, count, self.options.seed)
        texts = list(dict.fromkeys([*self.train.texts, *more]))
        for view in views:
            view.learn_statistics(read_cached(view, EncodedTexts(texts), None, quiet=self.quiet))
        return views

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
    margin: float = 0.5
    """Standard errors by which it has to be better than the best before it. Half of one is a low bar: a candidate that
    changes nothing passes it about four times in ten. But that costs little, while refusing one that helps, which few
    examples can seldom prove, costs more."""
    frozen: bool = True
    "Whether the base stays as it was."
    balanced_loss: bool = False
    "Whether it is compared by class-balanced loss: that of its task."

    @property
    def loss(self) -> float:
        """Mean out-of-fold loss, as settings are compared by it."""
        known = ~np.isnan(self.logits[:, 0])
        return float(
            selection_losses(self.logits[known], self.examples.truth[known], balanced=self.balanced_loss).mean()
        )


def sample(texts: Sequence[str], count: int, seed: int) -> Sequence[str]:
    """Draw at most so many texts; they stay in their order."""
    if len(texts) <= count:
        return texts
    chosen = np.sort(shuffled(np.arange(count), len(texts), seed, Stream.UNLABELLED))
    return [texts[int(each)] for each in chosen]


def affordable(texts: Sequence[str], views: Sequence[View]) -> int:
    """Say how many of these texts encoders can read without taking too long: all, if there are no encoders.

    The bound is one of work, not of time, so that the same data gives the same classifier everywhere.
    """
    count = len(texts)
    for view in views:
        if isinstance(view, BroughtView) and (engine := view.brought.engine).work:
            count = min(count, int(MAX_WORK / text_work(engine, texts, view.max_tokens)))
    return count


def text_work(engine: Engine, texts: Sequence[str], most: int | None) -> float:
    """Estimate the multiply-adds of reading one of these texts, of which `most` tokens are read.

    Tokens are counted in the beginnings of some: one has four characters in English, and one in Chinese.
    """
    some = [text[:BEGINNING] for text in texts[:: max(1, len(texts) // COUNTED)]]
    by_character = sum(map(len, engine.token_ids(some))) / max(1, sum(map(len, some)))
    tokens = by_character * sum(map(len, texts)) / max(1, len(texts))
    return engine.work * max(1.0, min(tokens, most or tokens))


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
    said = [(name, value) for name, value in settings.items() if value and name not in ("temperature", *LOSSES)]
    loss = next((f", {LOSSES[name]}" for name in LOSSES if settings.get(name)), "")
    return ", ".join(f"{name} {value:.2g}" for name, value in said) + loss
