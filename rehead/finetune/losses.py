"""The log loss of each document: what settings and candidates are compared by.

Shapes: N documents, K classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.targets import balanced_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def log_losses(scores: Floats, truth: NDArray[Any], *, balanced: bool = False) -> Floats:
    """Give the log loss of each document, its mean over the labels if multilabel: (N,).

    `balanced`: documents are weighted so that all their classes count the same.
    """
    weights = balanced_weights(truth) if balanced else 1.0
    if truth.ndim == 2:
        multilabel: Floats = (weights * np.logaddexp(0, np.where(truth > 0, -scores, scores))).mean(1)
        return multilabel
    lost: Floats = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(truth)), truth]
    return weights * lost
