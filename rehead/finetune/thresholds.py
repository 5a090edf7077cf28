"""Decision thresholds of multilabel classifiers, tuned on held-out documents.

A threshold of 0.5 maximises accuracy, but not the F1 of a rare label, which is highest at about half the best F1. Each
label gets the threshold that maximises its F1 on held-out documents, halfway between two of their probabilities; with
too few examples it stays at 0.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST = 5  # documents with and without a label that tuning its threshold requires
LOWEST, HIGHEST = 0.05, 0.95


def find_thresholds(probabilities: NDArray[Any], truth: NDArray[Any]) -> list[float]:
    """Tune the threshold of each label: probabilities and truth (N, K) → K thresholds."""
    return [
        _threshold(probabilities[:, label].astype(np.float64), truth[:, label] > 0) for label in range(truth.shape[1])
    ]


def _threshold(probabilities: NDArray[np.float64], real: NDArray[np.bool_]) -> float:
    if min(real.sum(), (~real).sum()) < FEWEST:
        return 0.5
    order = np.argsort(-probabilities, kind="stable")
    ranked, hits = probabilities[order], np.cumsum(real[order])
    f1 = 2 * hits / (np.arange(1, len(order) + 1) + real.sum())  # if the first 1, 2, … documents get the label
    f1[:-1][ranked[:-1] == ranked[1:]] = -1  # a threshold cannot separate ties
    best = int(f1.argmax())
    below = ranked[best + 1] if best + 1 < len(ranked) else 0.0
    return float(np.clip(round((ranked[best] + below) / 2, 6), LOWEST, HIGHEST))
