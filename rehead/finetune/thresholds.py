"""From which probability on a label is given, where a document may have several: found on held-out documents.

One half is right where labels are as likely as not, and probabilities are exact. A rare label is better given earlier:
its F1 is highest where its probability is about half of the best F1. Each label gets the threshold at which its F1 on
the held-out documents is highest, halfway between two of their probabilities; one that hardly occurs there keeps 0.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST = 5  # documents with a label, and without it, for a threshold of its own
LOWEST, HIGHEST = 0.05, 0.95


def find_thresholds(probabilities: NDArray[Any], truth: NDArray[Any]) -> list[float]:
    """Find each label's threshold: probabilities and truth (N, K) → K numbers."""
    return [
        _threshold(probabilities[:, label].astype(np.float64), truth[:, label] > 0) for label in range(truth.shape[1])
    ]


def _threshold(probabilities: NDArray[np.float64], real: NDArray[np.bool_]) -> float:
    if min(real.sum(), (~real).sum()) < FEWEST:
        return 0.5
    order = np.argsort(-probabilities, kind="stable")
    sure, hits = probabilities[order], np.cumsum(real[order])
    f1 = 2 * hits / (np.arange(1, len(order) + 1) + real.sum())  # with the first 1, 2, … documents given the label
    f1[:-1][sure[:-1] == sure[1:]] = -1  # a threshold cannot come between equals
    best = int(f1.argmax())
    below = sure[best + 1] if best + 1 < len(sure) else 0.0
    return float(np.clip(round((sure[best] + below) / 2, 6), LOWEST, HIGHEST))
