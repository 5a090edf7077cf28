"""Active learning: choose texts to label next, by uncertainty sampling with diversity.

Labels of uncertain texts are the most informative. But the most uncertain texts are often similar, and a hundred labels
for one kind of text add little over ten. So from ten times as many uncertain texts as requested, a diverse subset is
selected greedily: each time the text with the largest product of uncertainty and cosine distance to the nearest
selected one, by the base's document vectors. Texts that differ only in white space are selected once.

Uncertainty is from 0 to 1: single-label, 1 − margin of the two most probable classes; multilabel, how close the closest
probability is to its threshold. docs/experiments/active-learning.md compares this with random sampling.

Shapes: N texts, K labels, H size of a vector.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.text.records import Record
    from rehead.use.labeller import Labeller

    Floats = NDArray[np.float64]

CANDIDATES = 10  # per text requested


def uncertainty(probabilities: NDArray[Any], labeller: Labeller) -> Floats:
    """Compute the uncertainty of each text, from 0 to 1, by its probabilities (N, K): (N,)."""
    given = labeller.rule.thresholds
    thresholds = None if given is None else np.array(given, np.float64)
    return closeness(probabilities, multilabel=labeller.multilabel, thresholds=thresholds)


def closeness(probabilities: NDArray[Any], *, multilabel: bool, thresholds: Floats | None = None) -> Floats:
    """Compute how close each text is to another decision, from 0 to 1, by its probabilities (N, K): (N,)."""
    given = probabilities.astype(np.float64)
    if multilabel:
        limits = np.full(given.shape[1], 0.5) if thresholds is None else thresholds
        limits = np.clip(limits, 1e-9, 1 - 1e-9)
        near = np.where(given < limits, given / limits, (1 - given) / (1 - limits))
        closest: Floats = near.max(1, initial=0.0)
        return closest
    if given.shape[1] < 2:
        return np.zeros(len(given))
    if thresholds is not None:
        given = given / thresholds
        given /= given.sum(1, keepdims=True)
    highest = np.partition(given, -2, axis=1)[:, -2:]
    margin: Floats = 1 - (highest[:, 1] - highest[:, 0])
    return margin


@dataclass(order=True)
class Candidate:
    """A text to label; ordered by uncertainty, ties by first occurrence."""

    uncertainty: float
    place: int
    "Minus its number among all texts, so that the first is the largest."
    record: Record = field(compare=False)
    probabilities: Sequence[float] = field(compare=False)
    text: str = field(compare=False)
    "With normalised white space."


class MostUncertain:
    """The most uncertain of a stream of texts, without duplicates and with bounded memory."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.heap: list[Candidate] = []
        self.texts: set[str] = set()
        self.seen = 0

    def add(self, records: Sequence[Record], probabilities: NDArray[Any], uncertainties: Floats) -> None:
        """Add further texts."""
        for record, row, each in zip(records, probabilities, uncertainties.tolist(), strict=True):
            self.seen += 1
            if len(self.heap) == self.most and each <= self.heap[0].uncertainty:
                continue
            text = " ".join(record.text.split())
            if text in self.texts:
                continue
            self.texts.add(text)
            heapq.heappush(self.heap, Candidate(each, -self.seen, record, row.tolist(), text))
            if len(self.heap) > self.most:
                self.texts.remove(heapq.heappop(self.heap).text)

    def found(self) -> list[Candidate]:
        """Return the texts kept, most uncertain first."""
        return sorted(self.heap, reverse=True)


def choose(candidates: list[Candidate], labeller: Labeller, wanted: int) -> list[Candidate]:
    """Choose uncertain and diverse texts, the most useful first."""
    from rehead.runs.scoring import document_vectors

    vectors = document_vectors(labeller.run, [each.record.text for each in candidates]).astype(np.float64)
    uncertainties = np.array([each.uncertainty for each in candidates], np.float64)
    return [candidates[place] for place in select_diverse(vectors, uncertainties, wanted)]


def select_diverse(vectors: Floats, uncertainties: Floats, wanted: int) -> list[int]:
    """Select greedily by uncertainty times cosine distance to the nearest selected; vectors: (N, H) → indices."""
    wanted = min(wanted, len(vectors))
    directions = vectors - vectors.mean(0, keepdims=True) if len(vectors) else vectors
    directions = directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-12)
    distance = np.full(len(vectors), 2.0)  # the maximum cosine distance
    left = np.ones(len(vectors), bool)
    chosen: list[int] = []
    for _ in range(wanted):
        place = int(np.argmax(np.where(left, uncertainties * distance, -1.0)))
        chosen.append(place)
        left[place] = False
        distance = np.minimum(distance, np.maximum(1 - directions @ directions[place], 0.0))
    return chosen
