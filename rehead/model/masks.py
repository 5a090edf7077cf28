"""Additive attention masks: 0 where a query may attend to a key, −∞ where it may not.

Masks combine by addition: the sum allows what all of them allow. They broadcast to (batch, heads, queries, keys): the
square (causal) mask is (queries, keys), the padding mask (batch, 1, 1, keys).
"""

from __future__ import annotations

import torch
from torch import Tensor


def square_mask(n: int, device: torch.device | None = None) -> Tensor:
    """Build the causal mask (n, n): position i attends to 0 … i. 0 on and below the diagonal, −∞ above."""
    return torch.full((n, n), float("-inf"), device=device).triu(diagonal=1)


def padding_mask(keep: Tensor) -> Tensor:
    """Build the padding mask: keep (batch, keys), True for real tokens → (batch, 1, 1, keys)."""
    return torch.zeros(keep.shape, device=keep.device).masked_fill_(~keep, float("-inf"))[:, None, None, :]
