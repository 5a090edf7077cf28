"""Small labelled sets whose answer is in their words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rehead.text.documents import LabelledData

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
