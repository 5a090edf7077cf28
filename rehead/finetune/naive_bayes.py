"""Naive-Bayes scaling: sparse features count by how unevenly they occur in the classes, as in NB-SVM.

A linear classifier regularises all features alike, though a rare n-gram that occurs in one class alone says more than a
common one that occurs in all. Scaled by the log-count ratio of naive Bayes (Wang and Manning 2012) it does not. Here
there is one scale for all classes, so that these are still fitted at once, and it is raised to a power: 1 is best on
pseudo-labels of unlabelled text, 0.5 on labels, where the ratios of rare n-grams are uncertain: over no scaling, 0.3 to
1.1 points on bank questions, questions and hotel reviews with all their labels (docs/experiments/any-text.md).

Shapes: N documents, W columns, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from rehead.finetune.ridge import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def uneven_scale(block: Block, widths: Sequence[int], targets: Floats, weights: Floats) -> Floats:
    """Measure how unevenly each feature of a sparse block occurs in the classes: (W,).

    As naive Bayes does, by the logarithm of the ratio of a feature's shares in a class and in all others, in root mean
    square over the classes; documents belong to classes by as much as the targets (N, K) say, and count by `weights`
    (N,). Views have `widths` columns; in each, the mean square over all occurrences is 1.
    """
    low, high = targets[weights > 0].min(0), targets[weights > 0].max(0)
    inside = weights[:, None] * (targets - low) / np.maximum(high - low, 1e-12)  # (N, K)
    counted = block.occurrences(torch.from_numpy(np.column_stack((inside, weights))).float()).double().numpy() + 1
    found, total = counted[:, :-1], counted[:, -1:]  # (W, K), (W, 1)
    others = np.maximum(total + 1 - found, 1e-6)
    spread = block.squares(torch.ones(len(weights))).double().numpy()  # of all occurrences
    scale, begin = np.ones(len(found)), 0
    for width in widths:
        some = slice(begin, begin + width)
        ratio = np.log(found[some] / found[some].sum(0)) - np.log(others[some] / others[some].sum(0))
        square = (ratio**2).mean(1)
        mean = float((spread[some] * square).sum() / max(spread[some].sum(), 1e-12))
        scale[some] = np.sqrt(square / max(mean, 1e-24))
        begin += width
    return scale
