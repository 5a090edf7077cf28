"""Cutting a labelled set into parts: validation, folds, and draws of few labels. Classes in proportion, seeded.

Who goes where is a function of the seed and the order of the examples alone (`rehead.text.order`). Documents with the
same words stay on one side: a copy of a training document says nothing about others. Of a multi-label set, a document
stands for the rarest of its labels.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from rehead.errors import UserError
from rehead.text.documents import LabelledData
from rehead.text.order import shuffled
from rehead.text.random_streams import Stream
from rehead.text.word_hashes import split_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def split(data: LabelledData, share: float, seed: int = 0) -> tuple[Ints, Ints]:
    """Set a share of the examples aside for validation: which stay, and which go, both in order.

    A class with two different documents or more has one on either side; the only one of a class stays.
    """
    if not 0 < share < 1:
        raise ValueError(f"a share of {share}: must lie between 0 and 1")
    aside: list[int] = []
    for units in _units(data, seed, Stream.SPLIT):
        if len(units) < 2:
            continue
        wanted = max(1, round(share * sum(map(len, units))))
        taken: list[int] = []
        for unit in sorted(units, key=lambda unit: len(unit) > wanted)[:-1]:  # one stays; many copies go last
            if not taken or len(taken) + len(unit) <= wanted:
                taken += unit
        aside += taken
    gone = np.array(sorted(aside), np.int64)
    return np.setdiff1d(np.arange(len(data)), gone), gone


def folds(data: LabelledData, count: int, seed: int = 0) -> list[tuple[Ints, Ints]]:
    """Cut the examples into `count` folds: for each, the examples outside it and those in it, in order."""
    if not 2 <= count <= len(data):
        raise UserError(f"{len(data):,} examples cannot be cut into {count} folds. Give more examples.")
    of = np.zeros(len(data), np.int64)
    totals = np.zeros(count, np.int64)
    for units in _units(data, seed, Stream.FOLD):
        here = np.zeros(count, np.int64)  # documents of this class in each fold
        for unit in units:
            fold = int(np.lexsort((np.arange(count), totals, here))[0])
            of[unit] = fold
            here[fold] += len(unit)
            totals[fold] += len(unit)
    if not totals.all():
        raise UserError(
            f"there are too few different texts for {count} folds: the rest are copies. Give more examples."
        )
    return [(np.flatnonzero(of != fold), np.flatnonzero(of == fold)) for fold in range(count)]


def draws(data: LabelledData, sizes: list[int], seed: int = 0) -> dict[int, Ints]:
    """Draw so many examples, classes in proportion, each size within the next: the 100 are among the 500.

    Every class has two examples in the smallest draw, where there is room for that.
    """
    for size in sizes:
        if not 1 <= size <= len(data):
            raise UserError(f"{size:,} labels cannot be drawn from {len(data):,} examples. Ask for fewer.")
    order: list[tuple[float, int, int]] = []
    for stratum, members in enumerate(strata(data)):
        mixed = members[shuffled(np.arange(len(members)), len(members), seed, Stream.FEW_LABELS, stratum)]
        for rank, each in enumerate(mixed.tolist()):
            # Two of every class come first; then each class at its own even pace.
            pace = rank - 2.0 if rank < 2 else (rank + 0.5) / len(mixed)
            order.append((pace, stratum, each))
    ranked = np.array([each for _, _, each in sorted(order)], np.int64)
    return {size: np.sort(ranked[:size]) for size in sizes}


def most_folds(data: LabelledData, most: int) -> int:
    """How many folds, at most so many, leave every class with an example outside each: its documents but for copies.

    A class with one document does not count where two others remain: what is learnt without it can still be judged.
    """
    sizes = [len(units) for units in _units(data, 0, Stream.FOLD)]
    larger = [each for each in sizes if each > 1]
    return min(most, min(larger if len(larger) > 1 else sizes, default=0))


def strata(data: LabelledData) -> list[Ints]:
    """Group the examples by class, by the rarest of several: the examples of each class, rarest class first."""
    counts = Counter(itertools.chain.from_iterable(data.labels))
    rarest = [min(labels, key=lambda name: (counts[name], name), default="") for labels in data.labels]
    names = sorted(set(rarest), key=lambda name: (counts[name], name))
    where = {name: place for place, name in enumerate(names)}
    numbers = np.array([where[name] for name in rarest], np.int64)
    return [np.flatnonzero(numbers == place) for place in range(len(names))]


def copies(texts: list[str]) -> Ints:
    """Find, for each text, the first one with the same words; itself for most. Texts without words have no copy."""
    seen: dict[bytes, int] = {}
    first = []
    for number, text in enumerate(texts):
        words = "\n".join(split_words(text)).encode("utf-8", "surrogatepass")
        first.append(seen.setdefault(hashlib.blake2b(words, digest_size=16).digest(), number) if words else number)
    return np.array(first, np.int64)


def _units(data: LabelledData, seed: int, purpose: int) -> list[list[list[int]]]:
    """Group the examples by class, and copies within it, in an order drawn by the seed: classes of units of examples.

    Copies belong to the class of the first of them.
    """
    first = copies(data.texts)
    members: dict[int, list[int]] = {}
    for number, original in enumerate(first.tolist()):
        members.setdefault(original, []).append(number)
    classes = []
    for stratum, examples in enumerate(strata(data)):
        originals = examples[first[examples] == examples]
        mixed = originals[shuffled(np.arange(len(originals)), len(originals), seed, purpose, stratum)]
        if len(mixed):
            classes.append([members[each] for each in mixed.tolist()])
    return classes
