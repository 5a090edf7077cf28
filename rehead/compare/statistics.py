"""How sure a measured difference is.

Two things make a figure uncertain, and each has an interval of its own:

    over seeds       the same recipe with other labels drawn and other chance: Student's t over the seeds' figures
    over documents   the same models asked about other texts: a bootstrap over the test documents, the mean over the
                     seeds taken for each

Two methods that answered the same documents are compared in pairs, which is much sharper than laying two intervals side
by side: the mean difference over all seeds, with a bootstrap interval, and a permutation test that says whether it may
be chance. That test is what McNemar's is for one seed, and more seeds make it sharper. A bootstrap would serve as well
for many documents; where two methods differ on few of 60 or 200, it called up to 12 % of no differences real, the
permutation test 6 % at most. Both are about these models and other documents; how much a method hangs on its labels is
what the interval over seeds says. A p-value is never below 1 / (draws + 1).

Shapes: S seeds, N documents, K classes. Answers are 0/1 tables (N, K), so that one label and several are one case.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000
BLOCK = 1 << 22  # numbers held at once by a bootstrap

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """Where a figure lies, with 95 % confidence."""

    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """A figure over several seeds."""

    mean: float
    spread: float | None
    "Standard deviation over the seeds; None with one seed."
    over_seeds: Interval | None
    over_documents: Interval | None


@dataclass(frozen=True)
class Mcnemar:
    """McNemar's exact test on two methods' answers to the same documents."""

    only_first: int
    "Documents that the first got right and the second wrong."
    only_second: int
    p: float


@dataclass(frozen=True)
class Difference:
    """How much more the second method gets right than the first, by a paired bootstrap over documents."""

    mean: float
    interval: Interval


def over_seeds(values: Sequence[float], share: float = 0.95) -> Interval | None:
    """Student's t interval of a mean over seeds; None if there is one seed only."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    mean = float(np.mean(values))
    reach = float(t.ppf((1 + share) / 2, len(values) - 1)) * spread_of(values) / math.sqrt(len(values))
    return Interval(mean - reach, mean + reach)


def spread_of(values: Sequence[float]) -> float:
    """Standard deviation of a sample."""
    return float(np.std(values, ddof=1))


def accuracy_over_documents(right: Flags, seed: int = 0, draws: int = DRAWS) -> Interval:
    """Bootstrap interval of the mean accuracy. right: (S, N)."""
    share = right.mean(0)  # (N,) how many of the seeds got each document right
    found = np.concatenate([counts @ share / len(share) for counts in _resampled(len(share), seed, draws)])
    return _middle(found)


def macro_f1_over_documents(truth: Flags, answers: Flags, seed: int = 0, draws: int = DRAWS) -> Interval:
    """Bootstrap interval of the mean macro-F1. truth: (N, K), answers: (S, N, K)."""
    found = []
    for counts in _resampled(len(truth), seed, draws):  # (draws, N)
        over_seeds = np.zeros(len(counts))
        for each in answers:
            hits = counts @ (truth & each).astype(np.float64)  # (draws, K)
            named = counts @ truth.astype(np.float64) + counts @ each.astype(np.float64)
            over_seeds += _macro_f1(hits, named) / len(answers)
        found.append(over_seeds)
    return _middle(np.concatenate(found))


def macro_f1(truth: Flags, answer: Flags) -> float:
    """Mean F1 of the classes that are there or were named. truth, answer: (N, K)."""
    hits, named = (truth & answer).sum(0).astype(np.float64), truth.sum(0) + answer.sum(0).astype(np.float64)
    return float(_macro_f1(hits[None], named[None])[0])


def _macro_f1(hits: Floats, named: Floats) -> Floats:
    """Mean over the classes of F1, out of how often each was rightly named, and was named or there. (D, K) → (D,)."""
    there = named > 0
    scores = 2 * hits / np.maximum(named, 1)
    return np.asarray((scores * there).sum(1) / np.maximum(there.sum(1), 1))


def mcnemar(first: Flags, second: Flags) -> Mcnemar:
    """Test whether two methods get equally much right, exactly (two-sided binomial). first, second: (N,) right or not.

    With no document on which they differ, p is 1.
    """
    one, two = int((first & ~second).sum()), int((second & ~first).sum())
    return Mcnemar(one, two, _binomial(min(one, two), one + two))


def _binomial(fewer: int, of: int) -> float:
    """Probability of a split of fair coins at least as uneven as this one: 2 · P(X ≤ fewer), at most 1."""
    if of == 0:
        return 1.0
    logs = [math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1) for k in range(fewer + 1)]
    return min(1.0, 2 * sum(math.exp(log - of * math.log(2)) for log in logs))


def paired_bootstrap(first: Flags, second: Flags, seed: int = 0, draws: int = DRAWS) -> Difference:
    """Compare two methods over all seeds. first, second: (S, N) right or not; how many seeds each has may differ."""
    gain = second.mean(0) - first.mean(0)  # (N,)
    found = np.concatenate([counts @ gain / len(gain) for counts in _resampled(len(gain), seed, draws)])
    return Difference(float(gain.mean()), _middle(found))


def permutation_test(first: Flags, second: Flags, seed: int = 0, draws: int = DRAWS) -> float:
    """Test whether two methods get equally much right: then they could swap their answers to any document.

    Gives how often such swaps lead to a difference over all seeds as large as the one that was found. Shapes as above.
    """
    gain = second.mean(0) - first.mean(0)
    gain = gain[gain != 0]  # the others change nothing
    chance = np.random.default_rng(seed)
    step = max(1, BLOCK // max(1, len(gain)))
    large = 0
    for start in range(0, draws, step):
        swapped = chance.integers(2, size=(min(step, draws - start), len(gain))) == 1
        large += int((np.abs(gain.sum() - 2 * (swapped @ gain)) >= abs(gain.sum()) - 1e-9).sum())
    return (large + 1) / (draws + 1)


def _resampled(documents: int, seed: int, draws: int) -> Iterable[Floats]:
    """Give how often each document is drawn, in blocks of draws; those of a small part are kept. (draws, N)."""
    return _kept(documents, seed, draws) if documents * draws <= BLOCK else _drawn(documents, seed, draws)


@functools.lru_cache(maxsize=2)
def _kept(documents: int, seed: int, draws: int) -> list[Floats]:
    return list(_drawn(documents, seed, draws))


def _drawn(documents: int, seed: int, draws: int) -> Iterator[Floats]:
    chance = np.random.default_rng(seed)
    step = max(1, BLOCK // documents)
    for start in range(0, draws, step):
        size = min(step, draws - start)
        drawn = chance.integers(documents, size=(size, documents))
        rows = drawn + documents * np.arange(size)[:, None]
        yield np.bincount(rows.ravel(), minlength=size * documents).reshape(size, documents).astype(np.float64)


def _middle(found: Floats) -> Interval:
    low, high = np.quantile(found, (0.025, 0.975))
    return Interval(float(low), float(high))
