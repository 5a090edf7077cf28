"""Labels as arrays, for losses and metrics.

Single-label: class indices, (N,) of int64. Multilabel: a binary matrix, (N, K) of float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError
from rehead.text.documents import LabelledData, location
from rehead.text.label_spelling import same_label

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Targets = NDArray[Any]


def targets(data: LabelledData, names: Sequence[str], *, multilabel: bool) -> Targets:
    """Encode labels: (N,), or (N, K) if multilabel. `names` are the classes, in order; an unknown label is an error."""
    number = {name: place for place, name in enumerate(names)}
    for labels, (source, line) in zip(data.labels, data.sources, strict=True):
        if odd := next((each for each in labels if each not in number), None):
            known = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
            same = same_label(odd, names)
            raise UserError(
                f"{location(source, line)}: the label {odd!r} is not in the training set ({known}). "
                + (f"Write {same!r}, as there." if same else "Correct it, or add examples of it to the training set.")
            )
        if len(labels) != 1 and not multilabel:
            raise UserError(
                f"{location(source, line)}: {len(labels)} labels, but the training set has one per example."
            )
    if not multilabel:
        return np.array([number[labels[0]] for labels in data.labels], np.int64)
    table = np.zeros((len(data), len(names)), np.float32)
    for row, labels in zip(table, data.labels, strict=True):
        row[[number[each] for each in labels]] = 1
    return table


def class_weights(truth: Targets, classes: int) -> NDArray[np.float64]:
    """Compute balanced class weights over the classes present, (K,); multilabel: negatives / positives per label."""
    if truth.ndim == 2:
        positive = truth.sum(0)
        multilabel: NDArray[np.float64] = np.clip((len(truth) - positive) / np.maximum(positive, 1), 0.1, 100)
        return multilabel
    counts = np.bincount(truth, minlength=classes)
    weights: NDArray[np.float64] = len(truth) / (max(1, (counts > 0).sum()) * np.maximum(counts, 1))
    return weights


def balanced_weights(truth: Targets) -> NDArray[np.float64]:
    """Compute balanced sample weights with mean 1, (N,); multilabel: separately for each label, (N, K)."""
    if truth.ndim == 2:
        return np.stack([balanced_weights((each > 0).astype(np.int64)) for each in truth.T], axis=1)
    return class_weights(truth, int(truth.max(initial=0)) + 1)[truth]


def subset(data: LabelledData, which: Sequence[int] | NDArray[np.int64]) -> LabelledData:
    """Select examples by index, in this order; the class names are kept."""
    chosen = [int(each) for each in which]
    return LabelledData(
        texts=[data.texts[each] for each in chosen],
        labels=[data.labels[each] for each in chosen],
        names=list(data.names),
        multilabel=data.multilabel,
        sources=[data.sources[each] for each in chosen],
    )
