"""What is asked next: a stated mixture, so that labels teach the classifier and still say how good it is.

    random      the next of a permutation of all texts: these alone estimate accuracy
    uncertain   where the classifier's two best classes are closest, and unlike what was just chosen
    rare        the most probable texts of the class with the fewest labels
    doubted     already labelled, and the classifier, fitted without this label, is sure of another one
    varied      far from all that was asked, while there is no classifier yet

Each kind has a list that is ranked after every label, in the background; a text is taken from it when its turn comes in
`PATTERN`. docs/experiments/labelling.md compares this mixture with others.

Shapes: W texts, K classes, D features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rehead.use.uncertain import closeness, select_diverse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float32]

Kind = Literal["random", "uncertain", "rare", "doubted", "varied"]
# One turn of the mixture: of 40 texts 8 random, 25 uncertain, 6 of rare classes, 1 doubted.
TURN: tuple[Kind, ...] = (
    "random", "uncertain", "rare", "uncertain", "uncertain",
    "random", "uncertain", "uncertain", "rare", "uncertain",
    "random", "uncertain", "uncertain", "rare", "uncertain",
    "random", "uncertain", "uncertain", "uncertain", "uncertain",
)  # fmt: skip
PATTERN: tuple[Kind, ...] = (*TURN, *TURN[:-1], "doubted")
# With several labels per text, nothing that was tried was better than random texts.
SEVERAL: tuple[Kind, ...] = (*("random",) * 39, "doubted")
FIRST: tuple[Kind, ...] = ("varied", "random")  # until two classes have a label, and there are so many labels:
START = 20
SPREAD = 10  # uncertain texts looked at per text chosen, so that they can differ
LISTED = 40  # texts in each list
SURE = 0.8  # out-of-fold probability of another class, from which on a label is doubted
ENOUGH = 0.5  # a class with fewer labels than this share of an even one is rare
FEWEST = 5  # and so is one with fewer than this


def turn(number: int, *, started: bool, multilabel: bool = False, seeded: bool = False) -> Kind:
    """Say which kind of text the next one is; `seeded`: there are words for classes, which choose the first texts."""
    kinds = SEVERAL if multilabel and (started or not seeded) else PATTERN if started else FIRST
    return kinds[number % len(kinds)]


def varied(vectors: Floats, asked: Ints, wanted: int, seed: int = 0) -> Ints:
    """Choose texts far from all that were asked, and from one another: k-means++ on directions. Places: (wanted,)."""
    if not len(vectors):
        return np.zeros(0, np.int64)
    chance = np.random.default_rng(seed)
    distance = np.ones(len(vectors), np.float64)
    for place in asked.tolist():
        distance = np.minimum(distance, np.maximum(1 - vectors @ vectors[place], 0))
    distance[asked] = 0
    chosen: list[int] = []
    for _ in range(min(wanted, len(vectors) - len(asked))):
        total = distance.sum()
        if total <= 1e-12:
            break
        place = int(np.searchsorted(np.cumsum(distance), chance.random() * total, side="right"))
        chosen.append(min(place, len(vectors) - 1))
        distance = np.minimum(distance, np.maximum(1 - vectors @ vectors[chosen[-1]], 0))
        distance[chosen] = 0
    return np.array(chosen, np.int64)


def uncertain(probabilities: Floats, vectors: Floats, free: NDArray[np.bool_], multilabel: bool, wanted: int) -> Ints:
    """Choose uncertain texts that differ: places, the most useful first."""
    how = closeness(probabilities, multilabel=multilabel)
    how[~free] = -1
    top = best(how, SPREAD * wanted)
    top = top[how[top] >= 0]
    picked = select_diverse(vectors[top].astype(np.float64), how[top], wanted)
    return top[picked]


def rare_classes(counts: Ints) -> list[int]:
    """Name the classes with few labels, the fewest first."""
    even = counts.sum() / max(1, len(counts))
    return [int(each) for each in np.argsort(counts, kind="stable") if counts[each] < max(FEWEST, ENOUGH * even)]


def rare(probabilities: Floats, counts: Ints, free: NDArray[np.bool_], wanted: int) -> Ints:
    """Choose the most probable texts of classes with few labels, in turns: places."""
    classes = [each for each in rare_classes(counts) if counts[each]]  # of a class without labels nothing is known
    lists = []
    for each in classes:
        share = np.where(free, probabilities[:, each], -1)
        lists.append(best(share, wanted))
    found: list[int] = []
    for place in range(wanted):
        found += [int(each[place]) for each in lists if place < len(each)]
    return np.array(list(dict.fromkeys(found))[:wanted], np.int64)


def doubted(out_of_fold: Floats, truth: NDArray[Any], multilabel: bool) -> Ints:
    """Choose labelled texts whose label the others contradict: rows, the strongest contradiction first."""
    doubt = contradiction(out_of_fold, truth, multilabel)
    order = np.argsort(-doubt, kind="stable")
    found: Ints = order[doubt[order] >= SURE]
    return found


def contradiction(out_of_fold: Floats, truth: NDArray[Any], multilabel: bool) -> NDArray[np.float64]:
    """How sure the classifier, fitted to the others, is that a label is wrong: (N,)."""
    if not len(truth):
        return np.zeros(0)
    if multilabel:
        wrong: NDArray[np.float64] = np.abs(out_of_fold - truth).max(1).astype(np.float64)
        return wrong
    others = np.where(truth > 0, 0.0, out_of_fold)
    own = (out_of_fold * truth).sum(1)
    found: NDArray[np.float64] = np.where(others.max(1) > own, others.max(1), 0.0)
    return found


def best(values: NDArray[Any], wanted: int) -> Ints:
    """Give the places of the largest values, in order; none that is below zero."""
    wanted = min(wanted, len(values))
    if not wanted:
        return np.zeros(0, np.int64)
    top = np.argpartition(-values, wanted - 1)[:wanted]
    top = top[np.lexsort((top, -values[top]))]
    found: Ints = top[values[top] >= 0]
    return found


Lists = dict[Kind, list[int]]


def rank(
    features: Floats,
    probabilities: Floats,
    counts: Ints,
    free: NDArray[np.bool_],
    *,
    multilabel: bool,
    wanted: int = LISTED,
) -> Lists:
    """Rank what could be asked, of the texts that are `free`: places by kind; random and doubted ones are known."""
    return {
        "uncertain": uncertain(probabilities, features, free, multilabel, wanted).tolist(),
        "rare": rare(probabilities, counts, free, wanted).tolist(),
    }


# What takes the place of a kind that has no text left.
INSTEAD: dict[Kind, tuple[Kind, ...]] = {
    "random": ("uncertain", "varied"),
    "uncertain": ("varied", "random"),
    "rare": ("uncertain", "varied", "random"),
    "doubted": ("uncertain", "varied", "random"),
    "varied": ("random",),
}


def take(kind: Kind, lists: Lists, usable: Callable[[int, Kind], bool]) -> tuple[int, Kind] | None:
    """Take the first usable text of a kind, or of what takes its place; None: all texts are asked."""
    for each in (kind, *INSTEAD[kind]):
        queue = lists.get(each, [])
        while queue:
            place = queue.pop(0)
            if usable(place, each):
                return place, each
    return None
