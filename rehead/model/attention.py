"""Explicit attention weights from packed queries, keys and values, for when torch's fused kernel cannot be used.

The fused CPU kernel has no dropout, and torch then falls back to a path with checks that a language model's rows do not
need. Computed explicitly, with the cheap dropout of `rehead.model.dropout`, attention of `lab` trains in three quarters
of the time.

Shapes: B batch, T time, H hidden width, N heads, D = H / N.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rehead.model.masks import square_mask
from rehead.model.positions import CosSin, rotate


def split_heads(qkv: Tensor, nhead: int, cos_sin: CosSin | None) -> tuple[Tensor, Tensor, Tensor]:
    """(B, T, 3H) → queries, keys, values (B, N, T, D), the first two with rotary positions if `cos_sin` is given."""
    batch, time, wide = qkv.shape
    heads = qkv.view(batch, time, 3, nhead, wide // 3 // nhead).permute(2, 0, 3, 1, 4)  # (3, B, N, T, D)
    if cos_sin is None:
        q, k, v = heads.unbind(0)
        return q, k, v
    q, k = rotate(heads[:2], cos_sin).unbind(0)
    return q, k, heads[2]


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
    """Compute attention weights: q, k (B, N, T, D) → (B, N, T, T); rows sum to 1, or to 0 if fully masked.

    `mask` is additive; `causal` is equivalent to the square mask.
    """
    q = q * (1 / math.sqrt(q.shape[-1]))
    # Flattening makes the keys contiguous; the transpose is then a view.
    scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).view(*q.shape[:-1], k.shape[-2])
    if causal:
        return scores.add_(square_mask(q.shape[-2], q.device).to(q.dtype)).softmax(-1)
    if mask is None:
        return scores.softmax(-1)
    empty = mask.isneginf().all(-1, keepdim=True)  # fully masked rows, whose softmax would be NaN
    return scores.add_(mask.masked_fill(empty, 0.0)).softmax(-1).masked_fill(empty, 0.0)
