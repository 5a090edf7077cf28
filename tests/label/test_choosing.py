"""The stated mixture: what each kind takes, and that nothing is taken twice."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rehead.label.choosing import PATTERN, Lists, doubted, rank, rare, rare_classes, take, turn, uncertain, varied


def directions(count: int, width: int = 8, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def test_the_mixture_is_as_stated() -> None:
    assert Counter(turn(number, started=True) for number in range(200)) == Counter(PATTERN * (200 // len(PATTERN)))
    assert Counter(PATTERN)["random"] * 5 == len(PATTERN), "a fifth is random"
    assert {turn(number, started=False) for number in range(10)} == {"varied", "random"}


def test_uncertain_texts_are_the_closest_and_differ() -> None:
    vectors = directions(100)
    vectors[:20] = vectors[0]  # twenty times the same text
    shares = np.full((100, 2), [0.95, 0.05], np.float32)
    shares[:20] = 0.5
    shares[20:25] = [0.55, 0.45]
    found = uncertain(shares, vectors, np.ones(100, bool), False, 6).tolist()
    assert sum(place < 20 for place in found) == 1, "one of those that are the same"
    assert set(found[1:]) >= {20, 21, 22, 23, 24}


def test_rare_classes_get_their_most_probable_texts() -> None:
    shares = np.zeros((50, 3), np.float32)
    shares[:, 0] = 1
    shares[7], shares[9] = [0.2, 0.8, 0], [0.3, 0.7, 0]
    counts = np.array([40, 2, 0])
    assert rare_classes(counts) == [2, 1]
    assert rare(shares, counts, np.ones(50, bool), 2).tolist() == [7, 9]
    free = np.ones(50, bool)
    free[7] = False
    assert rare(shares, counts, free, 1).tolist() == [9]


def test_labels_that_the_others_contradict_are_doubted_the_strongest_first() -> None:
    shares = np.array([[0.9, 0.1], [0.15, 0.85], [0.02, 0.98], [0.4, 0.6]], np.float32)
    truth = np.array([[1, 0], [1, 0], [1, 0], [1, 0]], np.float32)
    assert doubted(shares, truth, False).tolist() == [2, 1]


def test_varied_texts_are_of_all_groups() -> None:
    centres = directions(4, seed=3)
    vectors = np.repeat(centres, 50, 0) + 0.01 * directions(200, seed=4)
    found = varied(vectors.astype(np.float32), np.array([0]), 3)
    assert {place // 50 for place in found.tolist()} == {1, 2, 3}, "the group of what was asked is left out"


def test_a_text_is_taken_once_and_other_kinds_stand_in() -> None:
    lists: Lists = {"uncertain": [1, 2], "varied": [3]}
    used: set[int] = set()

    def usable(place: int, kind: str) -> bool:
        return place not in used

    found = []
    while (each := take("rare", lists, usable)) is not None:
        used.add(each[0])
        found.append(each)
    assert found == [(1, "uncertain"), (2, "uncertain"), (3, "varied")]


def test_nothing_that_is_not_free_is_ranked() -> None:
    vectors, free = directions(60), np.zeros(60, bool)
    free[10:30] = True
    shares = np.random.default_rng(0).dirichlet([1, 1, 1], 60).astype(np.float32)
    found = rank(vectors, shares, np.array([9, 1, 1]), free, multilabel=False)
    assert found["uncertain"]
    assert all(free[place] for places in found.values() for place in places)
