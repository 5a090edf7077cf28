"""How good the labels make a classifier, and whether more are worth it. Nothing here is seen by what is estimated.

Random texts are the first of a fixed permutation of all texts, however they came to be labelled, so they are an
unbiased sample; each is predicted by a head that was fitted without it. Accuracy has the interval of Wilson; macro-F1
that of a Bayesian estimate, class by class.

Both are as wide as fewer texts would make them, because the predictions are not independent: each text teaches the head
that predicts the others. Two questions of the same rare class are both right, because each has the other, or both
wrong. `design_effect` says how much that matters, by leaving out pairs: twice the variance with 50 labels of 77
classes, nothing to speak of with many labels.

The learning curve asks of heads that were fitted to the first m labels what they make of the same random texts, so
their differences are paired. What more labels will bring is judged by all texts that the last ones changed: of random
texts there are too few for that.

Shapes: W texts, R random texts, K classes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.label.head import Head, without_two

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

Z = 1.959964
DRAWS = 400
MORE = 50  # labels ahead, and back
FLATTERED, SPREAD, LEAST_HALF = 0.8, 0.06, 0.001  # of the expected gain
LEAST_LABELS = 150  # below which nothing is said about it
TEXTS_BEFORE, LEAST_BEFORE = 3.0, 0.2  # of the prior of macro-F1: texts as the classifier expects them, and any others
PAIRED = 300  # random texts of which pairs are left out: a second for 77 classes
LEAST_RANDOM = 10  # random texts below which nothing is said
LEAST_CLASS = 3  # random texts of a class below which its F1 says little
PER_CLASS, PER_LABEL = 10, 20  # random texts per class from which on there is a macro-F1; with several labels per text


@dataclass
class Interval:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float

    def rounded(self) -> dict[str, float]:
        """For JSON."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def wilson(right: float, count: float, design: float = 1.0) -> Interval:
    """Give a proportion and its interval (Wilson 1927), which holds for few texts and near 0 and 1, too.

    `design`: by how much its variance exceeds that of independent texts; see `design_effect`.
    """
    if not count:
        return Interval(0.0, 0.0, 1.0)
    share = right / count
    count = count / design
    middle = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * np.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


def design_effect(head: Head, truth: NDArray[Any], rows: Ints) -> float:
    """By how much the variance of the estimated accuracy exceeds that of as many independent texts.

    `truth` (N, K) is of all texts that the head was fitted to, `rows` (R,) are the random ones. Let a be whether a text
    is predicted right without its own label, and b the same without that of another text as well. The expected square
    of the difference between this accuracy and that on new texts is p (1 - p) / R, and the mean over pairs i, j of
    (a_i - b_ij) (a_j - b_ji): what two texts do for each other, which they do for no new text.
    """
    some = rows[:PAIRED]
    if len(some) < 2:
        return 1.0
    given = truth[some]
    right = np.stack(
        [(head.decide(each) == given[row]).all(1) for row, each in enumerate(without_two(head, some))]
    ).astype(np.float64)  # (R, R): text by the other one that is left out; itself on the diagonal
    swayed = np.diagonal(right)[:, None] - right
    mutual = float((swayed * swayed.T).sum()) / (len(some) * (len(some) - 1))
    share = (float(np.trace(right)) + 1) / (len(some) + 2)
    return max(1.0, 1 + len(rows) * mutual / (share * (1 - share)))


def macro_f1(
    truth: NDArray[Any],
    predicted: NDArray[Any],
    everywhere: NDArray[Any],
    expected: NDArray[Any],
    *,
    multilabel: bool = False,
    design: float = 1.0,
    seed: int = 0,
) -> Interval:
    """Estimate the mean F1 of all classes on all texts, and its interval.

    Truth and predicted: of random texts, (R, K) of zeros and ones. A handful of them says little about a class that a
    hundredth of all texts has. So what is known of all texts is used: how often each class is predicted (`everywhere`,
    (K,)). What the random texts tell is which class texts are of that are predicted as some class. The prior of that
    are a few texts as the classifier expects them: `expected`, see `expected_shares`. `design`: see `design_effect`.
    """
    chance = np.random.default_rng(seed)
    classes = truth.shape[1]
    if multilabel:  # each class by itself: among texts that are predicted to have it, and among the others
        hits, found = (truth * predicted).sum(0), predicted.sum(0)
        missed, others = truth.sum(0) - hits, len(truth) - found
        hits, found, missed, others = hits / design, found / design, missed / design, others / design
        prior = TEXTS_BEFORE * expected + LEAST_BEFORE
        rest = TEXTS_BEFORE * (1 - expected) + LEAST_BEFORE
        right = chance.beta(hits + prior[0], found - hits + rest[0], (DRAWS, classes))
        left = chance.beta(missed + prior[1], others - missed + rest[1], (DRAWS, classes))
        both = everywhere * right
        of_class = both + (1 - everywhere) * left
    else:
        # (K predicted, K true)
        counts = predicted.T @ truth / design + TEXTS_BEFORE * expected + LEAST_BEFORE / classes
        drawn = chance.standard_gamma(np.broadcast_to(counts, (DRAWS, classes, classes)))
        joint = everywhere[:, None] * drawn / drawn.sum(2, keepdims=True)
        both = joint[:, np.arange(classes), np.arange(classes)]
        of_class = joint.sum(1)
    score = (2 * both / np.maximum(everywhere + of_class, 1e-12)).mean(1)
    low, high = np.quantile(score, [0.025, 0.975])
    return Interval(float(score.mean()), float(low), float(high))


def expected_shares(probabilities: NDArray[Any], predicted: NDArray[Any], *, multilabel: bool = False) -> NDArray[Any]:
    """Average the probabilities of all texts by what is predicted of them.

    For each predicted class those of all classes, (K, K); with several labels, the probability of each class where it
    is predicted and where it is not, (2, K).
    """
    middle = probabilities.mean(0)
    if multilabel:
        groups = np.stack([(probabilities * predicted).sum(0), (probabilities * (1 - predicted)).sum(0)])
        counts = np.stack([predicted.sum(0), (1 - predicted).sum(0)])
    else:
        groups, counts = predicted.T @ probabilities, predicted.sum(0)[:, None]
    found: NDArray[Any] = np.where(counts > 0, groups / np.maximum(counts, 1), middle)
    return found


def points(count: int) -> list[int]:
    """Choose the numbers of labels at which the curve is drawn, the last being now."""
    found = {count, max(1, count - MORE)}
    size = float(count)
    while size >= 10 and len(found) < 9:
        found.add(round(size))
        size /= 1.5
    return sorted(each for each in found if each >= min(10, count))


@dataclass
class Gain:
    """What the next labels are expected to bring."""

    expected: float
    half: float
    "Half of its 95 % interval."


def gain(probabilities: NDArray[Any], now: NDArray[Any], before: NDArray[Any], labels: int) -> Gain | None:
    """Say what `MORE` labels will bring to the accuracy, by what the last ones brought to all texts.

    `probabilities` (W, K) are those of the present head, `now` and `before` (W, K) what it decides, and what the head
    of `MORE` labels ago did. Texts that changed their label went from one probability to another: the mean of that is
    what the last labels brought, as the present head sees it, which flatters itself a little (`FLATTERED`). The next
    ones bring less, as an error of a + b/√n does. Gains and losses nearly cancel, as in a random walk, so the spread is
    the root of how many labels change, times `SPREAD`. Both numbers were chosen by simulation, and checked on other
    texts: docs/experiments/labelling.md. Of few labels this says nothing: None.
    """
    if labels < LEAST_LABELS or not len(now):
        return None
    brought = float((probabilities * (now - before)).sum(1).mean())
    changed = float((now != before).any(1).mean())
    law = 1 / np.sqrt([labels - MORE, labels, labels + MORE])
    ahead = float((law[1] - law[2]) / (law[0] - law[1]))
    return Gain(max(0.0, FLATTERED * brought * ahead), max(LEAST_HALF, SPREAD * float(np.sqrt(changed))))
