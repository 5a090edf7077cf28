"""Small labelled sets, with something to learn in them."""

from __future__ import annotations

import numpy as np

from rehead.text.documents import LabelledData

GOOD = ("great", "lovely", "superb", "moving", "funny")
BAD = ("awful", "boring", "weak", "dull", "clumsy")
FILL = ("the", "film", "was", "a", "story", "of", "two", "people", "and", "then", "it", "ended", "one", "day")


def sentence(words: tuple[str, ...], chance: np.random.RandomState, size: int) -> str:
    """Some filler, with every fourth word of the kind that matters."""
    made = [str(chance.choice(words if place % 4 == 3 else FILL)) for place in range(size)]
    return " ".join(made)


def reviews(count: int, seed: int = 0, names: tuple[str, ...] = ("bad", "good")) -> LabelledData:
    """As many of each class; a third class is filler alone."""
    chance = np.random.RandomState(seed)
    kinds = {0: BAD, 1: GOOD, 2: FILL}
    labels = [names[place % len(names)] for place in range(count)]
    texts = [sentence(kinds[names.index(label)], chance, int(chance.randint(8, 30))) for label in labels]
    return LabelledData(
        texts=texts,
        labels=[(label,) for label in labels],
        names=sorted(names),
        multilabel=False,
        sources=[("reviews.csv", line) for line in range(2, count + 2)],
    )


def misleading(data: LabelledData, seed: int = 3, share: float = 0.3) -> LabelledData:
    """Cut reviews short, and have some of their words speak for the other class."""
    chance = np.random.RandomState(seed)
    other = dict(zip(GOOD + BAD, BAD + GOOD, strict=True))
    short = [text.split()[:10] for text in data.texts]
    data.texts = [" ".join(other.get(word, word) if chance.rand() < share else word for word in text) for text in short]
    return data


def multilabel(count: int, seed: int = 0) -> LabelledData:
    """Documents with any of three labels, or none."""
    chance = np.random.RandomState(seed)
    kinds = {"bad": BAD, "good": GOOD, "long": ("endless", "slow", "hours")}
    labels, texts = [], []
    for _ in range(count):
        chosen = tuple(name for name in kinds if chance.rand() < 0.4)
        labels.append(chosen)
        texts.append(" ".join([sentence(FILL, chance, 6), *(sentence(kinds[name], chance, 8) for name in chosen)]))
    return LabelledData(texts, labels, sorted(kinds), True, [("tags.jsonl", line) for line in range(1, count + 1)])
