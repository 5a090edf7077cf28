"""Who may look at whom: additive masks, 0 where a look is allowed and −∞ where it is not.

Additive masks combine by addition: the sum allows what every one of them allows. They broadcast to
(batch, heads, queries, keys), so the small ones stay small: the square mask is (queries, keys), the padding mask
(batch, 1, 1, keys).
"""

from __future__ import annotations

import torch
from torch import Tensor


def square_mask(n: int, device: torch.device | None = None) -> Tensor:
    """Build the causal mask (n, n): position i looks at 0 … i. 0 on and below the diagonal, −∞ above."""
    return torch.full((n, n), float("-inf"), device=device).triu(diagonal=1)


def padding_mask(keep: Tensor) -> Tensor:
    """Hide the padding: keep (batch, keys), True for real tokens → (batch, 1, 1, keys)."""
    return _additive(keep)[:, None, None, :]


def segment_mask(segments: Tensor) -> Tensor:
    """Keep looks inside a segment: segments (batch, time), numbers → (batch, 1, time, time).

    For rows packed with several documents, so that none reads another.
    """
    return _additive(segments[:, :, None] == segments[:, None, :])[:, None]


def combine(*masks: Tensor | None) -> Tensor | None:
    """Add masks up, `None` standing for "everything is allowed"."""
    total: Tensor | None = None
    for mask in masks:
        if mask is not None:
            total = mask if total is None else total + mask
    return total


def _additive(allowed: Tensor) -> Tensor:
    return torch.zeros(allowed.shape, device=allowed.device).masked_fill_(~allowed, float("-inf"))
