"""Small labelled sets whose answer is in their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from rehead.compare import baselines
from rehead.finetune import linear_start
from rehead.finetune.candidates import linear
from rehead.model.config import PRESETS
from rehead.text.documents import LabelledData
from rehead.training import curves

GOOD = ["wonderful", "lovely", "charming", "bright", "superb", "tender"]
BAD = ["dreadful", "boring", "clumsy", "stale", "awful", "tedious"]
ODD = ["scary", "spooky", "creepy", "ghostly", "eerie", "grim"]
FILLING = [
    "the", "a", "film", "story", "actor", "scene", "with", "of", "and", "music", "camera", "end", "begins", "again",
    "house", "river", "town", "night",
]  # fmt: skip


def reviews(
    count: int, seed: int = 0, kinds: Sequence[str] = ("bad", "good"), source: str = "made.csv"
) -> LabelledData:
    """Reviews of about 20 words, of which three or so tell the class; one in ten tells the wrong one."""
    words = {"good": GOOD, "bad": BAD, "odd": ODD}
    chance = np.random.default_rng(seed)
    texts, labels = [], []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        told = kind if chance.random() < 0.9 else str(chance.choice(kinds))
        picked = [*chance.choice(FILLING, 17), *chance.choice(words[told], 3)]
        chance.shuffle(picked)
        texts.append(" ".join(picked) + f" number {number}.")
        labels.append((kind,))
    return LabelledData(texts, labels, sorted(kinds), False, [("made.csv", line) for line in range(2, count + 2)])


def tagged(count: int, seed: int = 0) -> LabelledData:
    """Texts with none, one or both of two labels."""
    chance = np.random.default_rng(seed)
    texts, labels = [], []
    for number in range(count):
        has = [name for name in ("good", "odd") if chance.random() < 0.5]
        picked = [*chance.choice(FILLING, 12)]
        for name in has:
            picked += [*chance.choice({"good": GOOD, "odd": ODD}[name], 2)]
        chance.shuffle(picked)
        texts.append(" ".join(picked) + f" number {number}.")
        labels.append(tuple(has))
    return LabelledData(texts, labels, ["good", "odd"], True, [("tags.csv", line) for line in range(2, count + 2)])


@contextmanager
def small_and_quick() -> Iterator[None]:
    """Shrink what makes comparisons slow and does not matter here.

    Of the presets the tables of n-grams: 262,144 rows are copied and optimized for a hundred texts. Of linear
    classifiers and baselines the grids that are searched. Learning curves of pretraining are not drawn.
    """
    with pytest.MonkeyPatch.context() as patched:
        for name in ("small", "bag"):
            patched.setitem(PRESETS, name, {**PRESETS[name], "nbuckets": 512})
        patched.setattr(linear, "POWERS", (1.0, 2.0))
        patched.setattr(linear, "ALPHAS", (0.1, 1.0, 10.0))
        patched.setattr(linear, "ROUNDS", 1)
        patched.setattr(linear_start, "CS", (1e-3, 1e-1))
        patched.setitem(baselines.C_GRID, "tfidf", (1, 10))
        patched.setitem(baselines.C_GRID, "tfidf_chars", (1, 10))
        patched.setitem(baselines.C_GRID, "nbsvm", (0.1, 1))
        patched.setattr(curves, "save", lambda *_: [])
        yield


@pytest.fixture
def quick() -> Iterator[None]:
    """Make comparisons quick."""
    with small_and_quick():
        yield
