"""The n-grams that a view counts, named by their hashes: which there are, how common each is, which a text has.

A vocabulary is learnt from all text at hand, labelled or not, by document frequency: n-grams of a single document tell
nothing about another, and beyond a limit the rarest go. It is kept sorted, and an n-gram is looked up by bisection.

Shapes: N texts, V n-grams of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rehead.text.text_ngrams import HASH_BITS, TextNgrams

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

MIN_DOCUMENTS = 2
HALF = HASH_BITS // 2  # bits that a float32 holds exactly
MOST_TEXTS = 1 << (63 - HASH_BITS)  # whose n-grams are looked at at once
MERGED = 1 << 22  # keys that are counted at once


class Vocabulary(NamedTuple):
    """N-grams and how common they are."""

    keys: Ints
    "Hashes, ascending: (V,)."
    frequency: Ints
    "Documents in which each occurs: (V,)."
    documents: int
    "How many documents it was learnt from."

    def idf(self) -> Floats:
        """Inverse document frequency, smoothed as scikit-learn does: (V,)."""
        found: Floats = np.log((1 + self.documents) / (1 + self.frequency)) + 1
        return found


def learn_vocabulary(groups: Iterable[tuple[TextNgrams, int]], limit: int) -> Vocabulary:
    """Count in how many texts each n-gram occurs, given groups of texts and their sizes; keep the most common."""
    keys, frequency = np.zeros(0, np.int64), np.zeros(0, np.int64)
    waiting: list[Ints] = []
    documents = 0

    def merge() -> None:
        nonlocal keys, frequency
        new, counts = np.unique(np.concatenate(waiting), return_counts=True)
        waiting.clear()
        together, place = np.unique(np.concatenate((keys, new)), return_inverse=True)
        frequency = np.bincount(place, np.concatenate((frequency, counts)), len(together)).astype(np.int64)
        keys = together

    for ngrams, size in groups:
        documents += size
        waiting.append(_distinct(ngrams)[0])
        if sum(map(len, waiting)) > MERGED:
            merge()
    if waiting:
        merge()
    common = np.flatnonzero(frequency >= min(MIN_DOCUMENTS, documents))
    if len(common) > limit:
        common = np.sort(common[np.argsort(-frequency[common], kind="stable")[:limit]])
    return Vocabulary(keys[common], frequency[common], documents)


def count_ngrams(keys: Ints, ngrams: TextNgrams, texts: int) -> Any:  # noqa: ANN401 (a sparse matrix of scipy's)
    """Count the n-grams of a vocabulary in each text, damped: 1 + log of the count, as a sparse matrix (N, V)."""
    from scipy import sparse

    key, document, count = _distinct(ngrams)
    column, there = find_keys(keys, key)
    ends = np.searchsorted(document[there], np.arange(texts + 1))
    data = (1 + np.log(count[there])).astype(np.float32)
    return sparse.csr_matrix((data, column[there].astype(np.int32), ends), shape=(texts, len(keys)))


def find_keys(keys: Ints, wanted: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Look hashes up in a sorted vocabulary: the place of each, and whether it is there."""
    if not len(keys):
        return np.zeros_like(wanted), np.zeros(len(wanted), bool)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return place, keys[place] == wanted


def to_floats(keys: Ints) -> NDArray[np.float32]:
    """Write hashes as pairs of numbers that float32, the one type of a run's tensors, holds exactly: (V, 2)."""
    return np.stack((keys >> HALF, keys & ((1 << HALF) - 1)), 1).astype(np.float32)


def from_floats(pairs: NDArray[np.float32]) -> Ints:
    """Read hashes back: (V, 2) → (V,)."""
    whole = pairs.astype(np.int64)
    found: Ints = (whole[:, 0] << HALF) | whole[:, 1]
    return found


def damaged_keys(pairs: NDArray[np.float32]) -> str | None:
    """Say what is wrong with hashes as a run holds them (V, 2); None if nothing is."""
    if not ((pairs >= 0) & (pairs < 1 << HALF) & (pairs == np.floor(pairs))).all():
        return f"holds numbers that are no halves of hashes: whole numbers from 0 to {(1 << HALF) - 1:,}"
    if (np.diff(from_floats(pairs)) <= 0).any():
        return "is not in ascending order"
    return None


def _distinct(ngrams: TextNgrams) -> tuple[Ints, Ints, Ints]:
    """Give each n-gram of a text once, text by text and ascending: its key, its text, and how often it occurs there.

    By one sort of numbers that hold text and key; sorting by two keys would take five times as long.
    """
    if len(ngrams.document) and ngrams.document[-1] >= MOST_TEXTS:
        raise ValueError(f"{ngrams.document[-1] + 1:,} texts at once exceed the limit of {MOST_TEXTS:,}")
    whole = np.sort((ngrams.document << HASH_BITS) | ngrams.key)
    first = np.flatnonzero(np.concatenate(([True], whole[1:] != whole[:-1]))[: len(whole)])
    return whole[first] & ((1 << HASH_BITS) - 1), whole[first] >> HASH_BITS, np.diff(np.append(first, len(whole)))
