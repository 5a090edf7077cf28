"""Starting from nothing: words that stand for a class, what belongs with them, and clusters that may be classes.

A word has a vector as if it were a text. Words near those that were given for a class, and not near those of others,
are suggested; texts near them come first. Seeds count for the beginning: the head gives them the weight that its
leave-one-out log loss says (`rehead.label.head`).

Shapes: W texts, V words, K classes, D features.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.label.features import FeatureReader

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]

WORD = re.compile(r"[^\W\d_]{2,}(?:['’-][^\W\d_]+)*|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]{2}")
WORDS = 6_000  # most frequent words that can be suggested
LEAST = 3  # texts that a suggested word is in
MOST = 0.25  # and the largest share of all
SUGGESTED = 12
CLUSTERS = 10
COMMON = 0.4  # words of a larger share of all texts tell nothing
TEXTS = 3  # shown of each cluster


class Seeds:
    """Words with vectors, of a sample of the texts."""

    def __init__(self, reader: FeatureReader, sample: Sequence[str]) -> None:
        self.reader = reader
        self.width = reader.view.columns
        self.frequency: Counter[str] = Counter()
        for text in sample:
            self.frequency.update(set(WORD.findall(text.casefold())))
        self.count = len(sample)
        common = self.frequency.most_common()
        self.words = [word for word, texts in common if texts >= LEAST and texts <= max(LEAST, MOST * self.count)][
            :WORDS
        ]
        self.vectors = _unit(reader.read(self.words)) if self.words else np.zeros((0, self.width), np.float32)

    def class_vectors(self, seeds: dict[int, list[str]]) -> dict[int, Floats]:
        """Give the mean direction of each class's words."""
        found = {}
        for number, words in seeds.items():
            if given := [word.casefold().strip() for word in words if word.strip()]:
                found[number] = _unit(_unit(self.reader.read(given)).mean(0, keepdims=True))[0]
        return found

    def scores(self, features: Floats, seeds: dict[int, list[str]], classes: int) -> Floats:
        """Score texts by their cosine with each class, less the mean of all classes: (W, K)."""
        vectors = self.class_vectors(seeds)
        found = np.zeros((len(features), classes), np.float32)
        if not vectors:
            return found
        plain = _unit(features)
        for number, vector in vectors.items():
            found[:, number] = plain @ vector
        given = list(vectors)
        middle = found[:, given].mean(1, keepdims=True) if len(given) > 1 else 0.0
        found[:, given] -= middle
        return found

    def further(self, seeds: dict[int, list[str]]) -> dict[int, list[str]]:
        """Suggest words for each class: near its own, and nearer than to the others."""
        vectors = self.class_vectors(seeds)
        used = {word.casefold().strip() for words in seeds.values() for word in words}
        numbers = list(vectors)
        if not numbers or not self.words:
            return {}
        near = np.stack([self.vectors @ vectors[number] for number in numbers], 1)  # (V, classes)
        found: dict[int, list[str]] = {}
        for place, number in enumerate(numbers):
            others = np.delete(near, place, 1).max(1) if len(numbers) > 1 else np.zeros(len(near))
            score = near[:, place] - np.maximum(others, 0)
            order = np.argsort(-score, kind="stable")
            words = [self.words[each] for each in order[: SUGGESTED * 3] if score[each] > 0.05]
            found[number] = [word for word in words if word not in used][:SUGGESTED]
        return found


def clusters(features: Floats, texts: Sequence[str], seed: int = 0) -> list[dict[str, object]]:
    """Find groups of texts: for each the share of texts, the words that tell it from the others, and typical texts."""
    from sklearn.cluster import KMeans

    count = min(CLUSTERS, max(1, len(texts) // 5))
    plain = _unit(features)
    found = KMeans(count, n_init=2, max_iter=30, random_state=seed).fit(plain)
    words = [set(WORD.findall(text.casefold())) for text in texts]
    everywhere: Counter[str] = Counter(word for some in words for word in some)
    result: list[dict[str, object]] = []
    for number in np.argsort(-np.bincount(found.labels_, minlength=count)):
        inside = np.flatnonzero(found.labels_ == number)
        if not len(inside):
            continue
        here = Counter(word for each in inside for word in words[each])
        size, total = len(inside), len(texts)

        def telling(word: str, here: Counter[str] = here, size: int = size, total: int = total) -> float:
            share = here[word] / size
            other = (everywhere[word] - here[word]) / max(1, total - size)
            return float(share * np.log((share + 0.01) / (other + 0.01)))

        some = (word for word, times in here.items() if times >= 2 and everywhere[word] <= COMMON * total)
        kept = sorted(some, key=telling, reverse=True)[:8]
        nearest = inside[np.argsort(-(plain[inside] @ found.cluster_centers_[number]))[:TEXTS]]
        result.append(
            {"share": round(size / total, 4), "words": kept, "texts": [texts[each][:200] for each in nearest.tolist()]}
        )
    return result


def _unit(vectors: Floats) -> Floats:
    """Bring vectors to unit length."""
    found: Floats = (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    return found
