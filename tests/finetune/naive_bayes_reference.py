"""Naive-Bayes scaling, written out column by column: what tests compare the product with."""

from __future__ import annotations

from typing import Any

import numpy as np


def unevenness(table: Any, targets: Any, weights: Any) -> Any:
    """The log-count ratio of naive Bayes of each column, in root mean square over the classes; written out."""
    member = (targets - targets.min(0)) / np.maximum(targets.max(0) - targets.min(0), 1e-12)
    squares = []
    for label in range(targets.shape[1]):
        inside = 1 + ((table > 0) * (weights * member[:, label])[:, None]).sum(0)
        outside = 1 + ((table > 0) * (weights * (1 - member[:, label]))[:, None]).sum(0)
        squares.append((np.log(inside / inside.sum()) - np.log(outside / outside.sum())) ** 2)
    scale = np.sqrt(np.mean(squares, axis=0))
    return scale / np.sqrt((table**2 * scale**2).sum() / (table**2).sum())
