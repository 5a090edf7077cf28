"""Stratified splits of labelled data: validation split, cross-validation folds, nested subsets. Seeded.

A split depends on the seed and the order of the examples alone (`rehead.text.order`). Documents with the same words
stay together (a group split): a copy of a training document is not a held-out one. Multilabel data is stratified by the
rarest label of each document.
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
    """Hold out a fraction of the examples, stratified: indices of the training and of the held-out examples, sorted.

    A class with two or more different documents has one on either side; a single document stays in training.
    """
    if not 0 < share < 1:
        raise ValueError(f"share={share}: must be between 0 and 1")
    held_out: list[int] = []
    for groups in _groups(data, seed, Stream.SPLIT):
        if len(groups) < 2:
            continue
        wanted = max(1, round(share * sum(map(len, groups))))
        taken: list[int] = []
        # One group stays in training; those larger than wanted are considered last.
        for group in sorted(groups, key=lambda group: len(group) > wanted)[:-1]:
            if not taken or len(taken) + len(group) <= wanted:
                taken += group
        held_out += taken
    valid = np.array(sorted(held_out), np.int64)
    return np.setdiff1d(np.arange(len(data)), valid), valid


def folds(data: LabelledData, count: int, seed: int = 0) -> list[tuple[Ints, Ints]]:
    """Make `count` stratified folds: for each, the indices of the training and of the held-out examples, sorted."""
    if not 2 <= count <= len(data):
        raise UserError(f"{len(data):,} examples are too few for {count} folds. Give more examples.")
    fold_of = np.zeros(len(data), np.int64)
    totals = np.zeros(count, np.int64)
    for groups in _groups(data, seed, Stream.FOLD):
        in_class = np.zeros(count, np.int64)  # documents of this class in each fold
        for group in groups:
            fold = int(np.lexsort((np.arange(count), totals, in_class))[0])
            fold_of[group] = fold
            in_class[fold] += len(group)
            totals[fold] += len(group)
    if not totals.all():
        raise UserError(f"too few different texts for {count} folds: the others are duplicates. Give more examples.")
    return [(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)) for fold in range(count)]


def nested_subsets(data: LabelledData, sizes: list[int], seed: int = 0) -> dict[int, Ints]:
    """Draw stratified subsets of these sizes; each contains the smaller ones.

    The smallest has two examples of every class, if it is large enough.
    """
    for size in sizes:
        if not 1 <= size <= len(data):
            raise UserError(f"a subset of {size:,} exceeds the {len(data):,} examples. Give a smaller size.")
    order: list[tuple[float, int, int]] = []
    for stratum, members in enumerate(strata(data)):
        mixed = members[shuffled(np.arange(len(members)), len(members), seed, Stream.FEW_LABELS, stratum)]
        for rank, each in enumerate(mixed.tolist()):
            # Two of every class first; then the classes interleaved in proportion.
            pace = rank - 2.0 if rank < 2 else (rank + 0.5) / len(mixed)
            order.append((pace, stratum, each))
    ranked = np.array([each for _, _, each in sorted(order)], np.int64)
    return {size: np.sort(ranked[:size]) for size in sizes}


def max_folds(data: LabelledData, most: int) -> int:
    """Find the largest number of folds, up to `most`, that leaves every class a training example in each fold.

    Duplicates count once. A class with a single document is ignored if two others remain: they can be evaluated
    without it.
    """
    sizes = class_sizes(data)
    larger = [each for each in sizes if each > 1]
    return min(most, min(larger if len(larger) > 1 else sizes, default=0))


def class_sizes(data: LabelledData) -> list[int]:
    """Count the different documents of each class (by the rarest label, if multilabel), the classes that have any."""
    return [len(groups) for groups in _groups(data, 0, Stream.FOLD)]


def strata(data: LabelledData) -> list[Ints]:
    """Group the examples by class (multilabel: by the rarest label), rarest class first."""
    counts = Counter(itertools.chain.from_iterable(data.labels))
    rarest = [min(labels, key=lambda name: (counts[name], name), default="") for labels in data.labels]
    names = sorted(set(rarest), key=lambda name: (counts[name], name))
    where = {name: place for place, name in enumerate(names)}
    numbers = np.array([where[name] for name in rarest], np.int64)
    return [np.flatnonzero(numbers == place) for place in range(len(names))]


def first_copies(texts: list[str]) -> Ints:
    """Find, for each text, the index of the first text with the same words; texts without words are unique."""
    seen: dict[bytes, int] = {}
    first = []
    for number, text in enumerate(texts):
        words = "\n".join(split_words(text)).encode("utf-8", "surrogatepass")
        first.append(seen.setdefault(hashlib.blake2b(words, digest_size=16).digest(), number) if words else number)
    return np.array(first, np.int64)


def _groups(data: LabelledData, seed: int, stream: int) -> list[list[list[int]]]:
    """List, for each class, its groups of duplicates in random order; a group belongs to the class of its first."""
    first = first_copies(data.texts)
    members: dict[int, list[int]] = {}
    for number, original in enumerate(first.tolist()):
        members.setdefault(original, []).append(number)
    classes = []
    for stratum, examples in enumerate(strata(data)):
        originals = examples[first[examples] == examples]
        mixed = originals[shuffled(np.arange(len(originals)), len(originals), seed, stream, stratum)]
        if len(mixed):
            classes.append([members[each] for each in mixed.tolist()])
    return classes
