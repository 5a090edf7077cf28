"""Linear classifiers on directions and words, and the search for the best of them by cross-validation.

Three numbers are chosen: how much an axis counts for its spread (`power`), how much words count beside directions
(`words`), and how little the weights are held back (`strength`). Directions alone are cheap, so `power` is chosen on
them; then words are added, if the left-out documents gain. What is compared is the probability that the left-out truth
is given: with few labels accuracy is too coarse to choose by. Where all classes are to count the same, they do so
there, too: otherwise the settings that undo the balancing would win.

Shapes: N documents, H hidden width, R rows, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.features import Features, Space, unevenness
from rehead.finetune.logistic import losses_of, solutions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Folds = Sequence[tuple[Ints, Ints]]

POWERS = (1.0, 2.0, 3.0)
WORDS = (1.0, 4.0, 12.0)
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
FOUND = 2  # documents a row must be found in to be trusted with a weight


@dataclass
class Examples:
    """Labelled documents, as a linear classifier takes them."""

    features: Features
    truth: NDArray[Any]
    "The class of each, (N,), or yes and no for each label, (N, K)."
    space: Space
    classes: int
    balanced: bool = False
    "Whether all classes count the same, however many documents they have."
    weights: Floats | None = None
    "How much each document counts: (N,)."

    def some(self, which: Ints) -> Examples:
        """Take some documents."""
        weights = None if self.weights is None else self.weights[which]
        return replace(self, features=self.features.some(which), truth=self.truth[which], weights=weights)

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class Setting:
    """What is chosen by cross-validation."""

    power: float
    words: float
    "0: directions alone."
    strength: float

    def __str__(self) -> str:
        beside = f", words {self.words:g}" if self.words else ""
        return f"power {self.power:g}{beside}, strength {self.strength:g}"


@dataclass
class Linear:
    """A linear classifier."""

    directions: Floats
    "Weights of directions as they are, not turned: (K, H)."
    rows: Ints
    "The rows that have weights, (C,), and these: (K, C)."
    words: Floats
    bias: Floats
    "(K,)"

    def scores(self, features: Features) -> Floats:
        """Score documents: (N, K)."""
        found: Floats = features.directions @ self.directions.T + self.bias
        return found + self.word_scores(features)

    def word_scores(self, features: Features) -> Floats:
        """Score documents by their words alone: (N, K)."""
        if not len(self.rows):
            return np.zeros((len(features), len(self.bias)))
        found: Floats = features.words[:, self.rows] @ self.words.T
        return found


@dataclass
class Tried:
    """A setting that cross-validation has tried."""

    setting: Setting
    logits: Floats
    "Scores of every document by classifiers that have not seen it: (N, K). NaN for those that were left out nowhere."
    loss: float
    "The mean −log of the probability that these give the truth."


@dataclass
class Found:
    """What the search has found."""

    settings: list[Setting]
    "The best, and those that could as well be it: what they score is averaged. The best comes first."
    logits: Floats
    "What they give left-out documents: (N, K), as in `Tried`."


def fit_path(examples: Examples, power: float, words: float, strengths: Sequence[float]) -> Iterator[Linear]:
    """Fit a classifier for each strength, from weak to strong."""
    features, truth = examples.features, examples.truth
    turn = examples.space.turn(power)
    dense = features.directions @ turn
    rows, scale = np.zeros(0, np.int64), np.zeros(0)
    inputs: Any = dense
    if words:
        from scipy import sparse

        uneven = unevenness(features.words, truth, examples.classes)
        often = np.bincount(features.words.indices, minlength=features.words.shape[1]) >= min(FOUND, len(features))
        rows = np.flatnonzero((uneven > 0) & often)
        scale = words * uneven[rows]
        inputs = sparse.hstack([sparse.csr_matrix(dense), features.words[:, rows].multiply(scale[None])]).tocsr()
    wide = dense.shape[1]
    for weight, bias in solutions(
        inputs, truth, examples.classes, strengths, balanced=examples.balanced, weights=examples.weights
    ):
        yield Linear(weight[:, :wide] @ turn.T, rows, weight[:, wide:] * scale, bias)


def search(examples: Examples, folds: Folds, words: Sequence[float] = WORDS) -> Found:
    """Choose power, words and strength by what they do for left-out documents."""
    tried = [best_strength(examples, folds, power, 0.0, STRENGTHS) for power in POWERS]
    best = min(tried, key=lambda each: each.loss).setting.power
    for alone in [each for each in reversed(tried) if each.setting.power in (best, POWERS[0])]:
        # With words to lean on, directions need less of what the unlabelled text says.
        power, strength, loss = alone.setting.power, alone.setting.strength, alone.loss
        nearby = [each for each in STRENGTHS if strength / 10 <= each <= strength * 3]
        for weight in words:
            tried.append(best_strength(examples, folds, power, weight, nearby))
            if tried[-1].loss > loss:  # more of it will not help
                break
            loss = tried[-1].loss
    return average(tried, examples.truth, balanced=examples.balanced)


def best_strength(examples: Examples, folds: Folds, power: float, words: float, strengths: Sequence[float]) -> Tried:
    """Find the strength that does most for left-out documents."""
    tried = [
        Tried(Setting(power, words, strength), logits, mean_loss(logits, examples.truth, balanced=examples.balanced))
        for strength, logits in left_out(examples, folds, power, words, strengths).items()
    ]
    return min(tried, key=lambda each: each.loss)


def left_out(
    examples: Examples, folds: Folds, power: float, words: float, strengths: Sequence[float]
) -> dict[float, Floats]:
    """Score every document by a classifier that has not seen it, for each strength: (N, K)."""
    logits = {strength: np.full((len(examples), examples.classes), np.nan) for strength in strengths}
    for inside, outside in folds:
        path = fit_path(examples.some(inside), power, words, strengths)
        others = examples.features.some(outside)
        for strength, linear in zip(strengths, path, strict=True):
            logits[strength][outside] = linear.scores(others)
    return logits


def average(tried: Sequence[Tried], truth: NDArray[Any], *, balanced: bool = False) -> Found:
    """Keep the best setting and those that are worse by less than chance explains: a standard error of the difference.

    With few labels cross-validation cannot tell settings apart, and whichever it picks is luck. Their scores are
    averaged instead, which is a linear classifier again.
    """
    ranked = sorted(tried, key=lambda each: each.loss)
    known = ~np.isnan(ranked[0].logits[:, 0])
    best = losses_of(ranked[0].logits[known], truth[known], balanced=balanced)
    kept = []
    for each in ranked:
        worse = losses_of(each.logits[known], truth[known], balanced=balanced) - best
        if worse.mean() <= worse.std() / max(1, len(worse)) ** 0.5:
            kept.append(each)
    return Found([each.setting for each in kept], np.mean([each.logits for each in kept], axis=0))


def fit_average(examples: Examples, settings: Sequence[Setting]) -> Linear:
    """Fit a classifier with each setting, and average them into one."""
    made = [linear for each in settings for linear in fit_path(examples, each.power, each.words, [each.strength])]
    rows = np.unique(np.concatenate([each.rows for each in made]))
    words = np.zeros((examples.classes, len(rows)))
    for each in made:
        words[:, np.searchsorted(rows, each.rows)] += each.words / len(made)
    directions = np.mean([each.directions for each in made], axis=0)
    return Linear(directions, rows, words, np.mean([each.bias for each in made], axis=0))


def mean_loss(logits: Floats, truth: NDArray[Any], *, balanced: bool = False) -> float:
    """Give the mean −log of the probability of the truth (over the labels too), of the documents that have scores.

    `balanced`: the mean over the classes of their means.
    """
    known = ~np.isnan(logits[:, 0])
    return float(losses_of(logits[known], truth[known], balanced=balanced).mean())
