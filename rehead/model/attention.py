"""Attention from packed queries, keys and values: torch's fused kernel where it can be used, spelt out where it cannot.

The CPU's fused kernel knows no dropout, and torch then falls back to a path with guards that a language model's rows do
not need. Spelt out here, with cheap dropout, attention of `lab` trains in three quarters of the time.

Shapes: B batch, T time, H hidden width, N heads, D = H / N.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rehead.model.masks import square_mask
from rehead.model.positions import Turns, rotate


def split_heads(qkv: Tensor, nhead: int, turns: Turns | None) -> tuple[Tensor, Tensor, Tensor]:
    """(B, T, 3H) → queries, keys, values (B, N, T, D), the first two turned by their positions."""
    batch, time, wide = qkv.shape
    heads = qkv.view(batch, time, 3, nhead, wide // 3 // nhead).permute(2, 0, 3, 1, 4)  # (3, B, N, T, D)
    if turns is None:
        q, k, v = heads.unbind(0)
        return q, k, v
    q, k = rotate(heads[:2], turns).unbind(0)
    return q, k, heads[2]


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
    """Spell attention out: q, k (B, N, T, D) → (B, N, T, T), rows that sum to 1, or to 0 where all is masked.

    `mask` is additive; `causal` stands for the square mask.
    """
    q = q * (1 / math.sqrt(q.shape[-1]))
    # The keys are brought in order before they are transposed, which then costs nothing.
    scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).view(*q.shape[:-1], k.shape[-2])
    if causal:
        return scores.add_(square_mask(q.shape[-2], q.device).to(q.dtype)).softmax(-1)
    if mask is None:
        return scores.softmax(-1)
    nothing = mask.isneginf().all(-1, keepdim=True)  # rows with nothing to look at; their softmax would be NaN
    return scores.add_(mask.masked_fill(nothing, 0.0)).softmax(-1).masked_fill(nothing, 0.0)
