"""Attention from packed queries, keys and values: torch's fused kernel where it can be used, spelt out where it cannot.

The CPU's fused kernel knows no dropout, and torch then falls back to a path with guards that a language model's rows do
not need. Spelt out here, with cheap dropout, attention of `lab` trains in three quarters of the time.

Queries, keys and values come out of one product as (B, T, 3H). Taking them apart and turning them (rotary positions)
is one function with a gradient of its own, which writes all three gradients into one tensor, in the place and
order that the product's backward pass reads.

Shapes: B batch, T time, H hidden width, N heads, D = H / N.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rehead.model.masks import square_mask
from rehead.model.positions import Turns, rotate


def split_heads(qkv: Tensor, nhead: int, turns: Turns | None) -> tuple[Tensor, Tensor, Tensor]:
    """(B, T, 3H) → queries, keys, values (B, N, T, D), the first two turned by their positions."""
    cosine, sine = (None, None) if turns is None else (each.to(qkv.dtype) for each in turns)
    q, k, v = _Split.apply(qkv, nhead, cosine, sine)  # type: ignore[no-untyped-call]
    return q, k, v


class _Split(torch.autograd.Function):
    """Take apart, and turn."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        qkv: Tensor,
        nhead: int,
        cosine: Tensor | None,
        sine: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cosine, sine)
        heads = _heads(qkv, nhead)
        if cosine is None or sine is None:
            return heads[0], heads[1], heads[2]
        turned = torch.empty_like(heads[:2], memory_format=torch.contiguous_format)  # (2, B, N, T, D)
        rotate(heads[:2], (cosine, sine), turned)
        return turned[0], turned[1], heads[2]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        cosine, sine = ctx.saved_tensors
        batch, nhead, time, width = slopes[0].shape
        out = slopes[0].new_empty(batch, time, 3 * nhead * width)
        for place, (slope, here) in enumerate(zip(slopes, _heads(out, nhead), strict=True)):
            if cosine is None or place == 2:
                here.copy_(slope)
            else:
                rotate(slope, (cosine, -sine), here)
        return out, None, None, None


def _heads(packed: Tensor, nhead: int) -> Tensor:
    """View (B, T, 3H) as (3, B, N, T, D)."""
    batch, time, wide = packed.shape
    return packed.view(batch, time, 3, nhead, wide // 3 // nhead).permute(2, 0, 3, 1, 4)


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
