"""Labels as numbers: what losses and measures are computed from.

One label each: which class, (N,) of int64. Multi-label: one yes or no for each class, (N, K) of float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError
from rehead.text.documents import LabelledData, location

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Targets = NDArray[Any]


def targets(data: LabelledData, names: Sequence[str], *, multilabel: bool) -> Targets:
    """Turn labels into numbers: (N,), or (N, K) if multi-label. `names` are the classes, in order.

    A label that is not among them is refused, by its place in the file.
    """
    number = {name: place for place, name in enumerate(names)}
    for labels, (source, line) in zip(data.labels, data.sources, strict=True):
        if odd := next((each for each in labels if each not in number), None):
            known = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
            raise UserError(
                f"{location(source, line)}: the label {odd!r} is not among those that were trained on ({known}). "
                "Correct it, or add examples of it to the training part."
            )
        if len(labels) != 1 and not multilabel:
            raise UserError(f"{location(source, line)}: {len(labels)} labels, but every training example has one.")
    if not multilabel:
        return np.array([number[labels[0]] for labels in data.labels], np.int64)
    table = np.zeros((len(data), len(names)), np.float32)
    for row, labels in zip(table, data.labels, strict=True):
        row[[number[each] for each in labels]] = 1
    return table


def class_weights(truth: Targets, classes: int) -> NDArray[np.float64]:
    """Weigh classes so that all that are there count the same, (K,); of several labels, each yes as much as its no."""
    if truth.ndim == 2:
        yes = truth.sum(0)
        multilabel: NDArray[np.float64] = np.clip((len(truth) - yes) / np.maximum(yes, 1), 0.1, 100)
        return multilabel
    counts = np.bincount(truth, minlength=classes)
    weights: NDArray[np.float64] = len(truth) / (max(1, (counts > 0).sum()) * np.maximum(counts, 1))
    return weights


def balance(truth: Targets) -> NDArray[np.float64]:
    """Weigh documents so that all classes count the same, (N,); of several labels, each yes as much as no, (N, K).

    The mean is 1.
    """
    if truth.ndim == 2:
        return np.stack([balance((each > 0).astype(np.int64)) for each in truth.T], axis=1)
    return class_weights(truth, int(truth.max(initial=0)) + 1)[truth]


def some(data: LabelledData, which: Sequence[int] | NDArray[np.int64]) -> LabelledData:
    """Take some examples of a set, in this order; the names of the classes stay those of the whole."""
    chosen = [int(each) for each in which]
    return LabelledData(
        texts=[data.texts[each] for each in chosen],
        labels=[data.labels[each] for each in chosen],
        names=list(data.names),
        multilabel=data.multilabel,
        sources=[data.sources[each] for each in chosen],
    )
