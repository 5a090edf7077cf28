"""How good the labels make a classifier, and whether more are worth it. Nothing here is seen by what is estimated.

Random texts are the first of a fixed permutation of all texts, however they came to be labelled, so they are an
unbiased sample; each is predicted by a head that was fitted without it. Accuracy has the interval of Wilson; macro-F1,
which is no mean, that of the bootstrap.

The learning curve asks of heads that were fitted to the first m labels what they make of the same random texts, so
their differences are paired. What more labels will bring is the slope of error = a + b/√m along it, resampled.

Shapes: R random texts, K classes, P points of the curve.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

Z = 1.959964
DRAWS = 400
MORE = 50  # labels ahead, and back
LEAST_RANDOM = 10  # random texts below which nothing is said
LEAST_CLASS = 3  # random texts of a class below which its F1 says nothing


@dataclass
class Interval:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float

    def rounded(self) -> dict[str, float]:
        """For JSON."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def wilson(right: float, count: int) -> Interval:
    """Give a proportion and its interval (Wilson 1927), which holds for few texts and near 0 and 1, too."""
    if not count:
        return Interval(0.0, 0.0, 1.0)
    share = right / count
    middle = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * np.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


def macro_f1(truth: NDArray[Any], predicted: NDArray[Any], seed: int = 0) -> Interval:
    """Give the mean F1 of the classes that occur among the truth: (R, K) of zeros and ones, and its interval."""
    hits = (truth * predicted).astype(np.float64)
    totals = (truth + predicted).astype(np.float64)
    known = truth.sum(0) > 0

    def score(weights: NDArray[Any]) -> NDArray[Any]:
        both, all_ = 2 * weights @ hits[:, known], weights @ totals[:, known]
        found: NDArray[Any] = np.divide(both, all_, out=np.zeros_like(both), where=all_ > 0).mean(-1)
        return found

    count = len(truth)
    value = float(score(np.ones((1, count)))[0])
    drawn = score(np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), DRAWS).astype(np.float64))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(value, float(min(low, value)), float(max(high, value)))


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
    """What the last labels changed, and what the next are expected to bring."""

    expected: float
    half: float
    "Half of its 95 % interval."


def gain(right: NDArray[Any], sizes: Ints, more: int = MORE, seed: int = 0) -> Gain | None:
    """Extrapolate: right (P, R) says which random texts a head of each size (P,) gets right. None: too few."""
    if len(sizes) < 3 or right.shape[1] < LEAST_RANDOM:
        return None
    count = right.shape[1]
    design = np.stack([np.ones(len(sizes)), 1 / np.sqrt(sizes)], 1) * np.sqrt(sizes)[:, None]
    ahead = 1 / np.sqrt(sizes[-1]) - 1 / np.sqrt(sizes[-1] + more)
    solve = np.linalg.pinv(design)[1] * np.sqrt(sizes)  # the slope, linear in the errors: (P,)
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), DRAWS) / count
    slopes = (1 - draws @ right.T.astype(np.float64)) @ solve
    value = float((1 - right.mean(1)) @ solve) * ahead
    return Gain(max(0.0, value), float(Z * slopes.std() * ahead))
