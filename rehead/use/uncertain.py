"""What to label next: texts of which the classifier knows least, and no two alike.

Labels teach most where the classifier is in doubt. But the most doubtful texts are often of one kind, and a hundred
labels for it teach little more than ten. So of ten times as many doubtful texts as are wanted, those are taken that lie
apart: again and again the one that has the most doubt times distance from all that were taken, by the direction of the
vector that the base gives them. Texts that are the same but for white space are taken once.

How much doubt there is, from 0 to 1: of one label each, how close the two likeliest are; of several labels, how close
the closest is to its threshold. Whether labels so chosen are worth more than random ones is measured in
docs/experiments/active-learning.md.

Shapes: N texts, K labels, H width of a vector.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.runs.scoring import document_vectors
from rehead.use.labeller import Labeller

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.text.records import Record

    Floats = NDArray[np.float64]

CANDIDATES = 10  # for each that is wanted


def doubt(probabilities: NDArray[Any], labeller: Labeller) -> Floats:
    """Tell how little the classifier knows of each text, by its probabilities (N, K): from 0 to 1, (N,)."""
    given = probabilities.astype(np.float64)
    if labeller.multilabel:
        least = np.full(given.shape[1], 0.5) if labeller.thresholds is None else labeller.thresholds
        least = np.clip(least, 1e-9, 1 - 1e-9)
        closest: Floats = np.where(given < least, given / least, (1 - given) / (1 - least)).max(1, initial=0.0)
        return closest
    if given.shape[1] < 2:
        return np.zeros(len(given))
    highest = np.sort(given, axis=1)[:, -2:]
    margin: Floats = 1 - (highest[:, 1] - highest[:, 0])
    return margin


@dataclass(order=True)
class Candidate:
    """A text that may be worth a label; those with more doubt are larger, and of two the one that came first."""

    doubt: float
    place: int
    "Minus its number among all, so that the first is the largest."
    record: Record = field(compare=False)
    probabilities: Sequence[float] = field(compare=False)
    text: str = field(compare=False)
    "Without the white space in which it may differ from another."


class Doubtful:
    """The most doubtful of all texts that go by, each once, and never more than so many in memory."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.heap: list[Candidate] = []
        self.texts: set[str] = set()
        self.seen = 0

    def add(self, records: Sequence[Record], probabilities: NDArray[Any], doubts: Floats) -> None:
        """Look at some texts more."""
        for record, row, each in zip(records, probabilities, doubts.tolist(), strict=True):
            self.seen += 1
            if len(self.heap) == self.most and each <= self.heap[0].doubt:
                continue
            text = " ".join(record.text.split())
            if text in self.texts:
                continue
            self.texts.add(text)
            heapq.heappush(self.heap, Candidate(each, -self.seen, record, row.tolist(), text))
            if len(self.heap) > self.most:
                self.texts.remove(heapq.heappop(self.heap).text)

    def found(self) -> list[Candidate]:
        """Give them, the most doubtful first."""
        return sorted(self.heap, reverse=True)


def choose(candidates: list[Candidate], labeller: Labeller, wanted: int) -> list[Candidate]:
    """Choose texts that are doubtful and lie apart, in the order in which they are worth a label."""
    vectors = document_vectors(labeller.run, [each.record.text for each in candidates]).astype(np.float64)
    doubts = np.array([each.doubt for each in candidates], np.float64)
    return [candidates[place] for place in apart(vectors, doubts, wanted)]


def apart(vectors: Floats, doubts: Floats, wanted: int) -> list[int]:
    """Choose places, the most doubtful first, then by doubt times distance from the nearest that is chosen: (N, H)."""
    wanted = min(wanted, len(vectors))
    directions = vectors - vectors.mean(0, keepdims=True) if len(vectors) else vectors
    directions = directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-12)
    distance = np.full(len(vectors), 2.0)  # the farthest that two directions can be
    left = np.ones(len(vectors), bool)
    chosen: list[int] = []
    for _ in range(wanted):
        place = int(np.argmax(np.where(left, doubts * distance, -1.0)))
        chosen.append(place)
        left[place] = False
        distance = np.minimum(distance, np.maximum(1 - directions @ directions[place], 0.0))
    return chosen
