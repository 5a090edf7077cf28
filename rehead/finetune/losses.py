"""The losses of documents: the log loss, and what settings and candidates are compared by.

Settings are compared by the probability that a classifier, calibrated by log loss, gives to the wrong classes: its
expected error. It is as smooth as the log loss, and follows accuracy more closely: over 66 settings and three draws of
154 bank questions, its rank correlation with the accuracy on unseen questions was 0.80 to 0.90, that of the log loss
0.42 to 0.74 and that of the error itself 0.53 to 0.68. On news, questions and hotel reviews it is level with the log
loss, and the error itself is worse (docs/experiments/any-text.md).

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


def selection_losses(scores: Floats, truth: NDArray[Any], *, balanced: bool = False) -> Floats:
    """Give what a document adds to the loss by which settings are compared: (N,).

    The probability of the wrong classes; if multilabel, the log loss, since most labels of a document are easy.
    """
    if truth.ndim == 2:
        return log_losses(scores, truth, balanced=balanced)
    weights = balanced_weights(truth) if balanced else 1.0
    right = scores[np.arange(len(truth)), truth] - np.logaddexp.reduce(scores, axis=1)
    wrong: Floats = weights * -np.expm1(right)
    return wrong
