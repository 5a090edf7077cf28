"""SwiGLU with a gradient of its own: silu(gate) · value, the two lying side by side.

torch would keep a third tensor, take the exponential twice, and copy the two gradients together afterwards.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def swiglu(x: Tensor) -> Tensor:
    """Gate and value (…, 2F) → silu(gate) · value (…, F)."""
    out: Tensor = _SwiGLU.apply(x)  # type: ignore[no-untyped-call]
    return out


class _SwiGLU(torch.autograd.Function):
    """With s = sigmoid(gate): gate · s · value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        gate, value = x.chunk(2, dim=-1)
        share = gate.sigmoid()
        ctx.save_for_backward(x, share)
        return (gate * share).mul_(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # noqa: ANN401
        x, share = ctx.saved_tensors
        gate, value = x.chunk(2, dim=-1)
        out = torch.empty_like(x)
        to_gate, to_value = out.chunk(2, dim=-1)
        torch.mul(gate, share, out=to_value)  # silu(gate)
        # The slope of silu is s + silu · (1 - s) = s · (1 - silu) + silu.
        torch.addcmul(to_value, share, 1 - to_value, out=to_gate).mul_(value).mul_(slope)
        to_value.mul_(slope)
        return out
