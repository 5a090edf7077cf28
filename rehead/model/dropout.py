"""Dropout whose random numbers cost little on a CPU.

torch draws at least 32 random bits for each value, one value after the other: the largest cost of a layer after its
matrix products. Here each 64-bit draw of the same generator, so of the same seed, serves four values with 16 bits
each, in a quarter of the time. The share that is dropped is `p` rounded to 1/65,536, and what is kept is scaled by
exactly that share, so the mean stays what it was.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 1 << 16  # what 16 bits can tell apart


class Dropout(nn.Module):
    """In training, set a share `p` of the values to zero and scale up the others."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop in training; pass through otherwise."""
        return drop(x, self.p) if self.training and self.p else x

    def extra_repr(self) -> str:
        """Show the share."""
        return f"p={self.p}"


def drop(x: Tensor, p: float) -> Tensor:
    """Set a share `p` of x to zero and scale up the others."""
    # Other devices have fast generators of their own.
    return x * _factors(x, p) if x.device.type == "cpu" else F.dropout(x, p)


def _factors(x: Tensor, p: float) -> Tensor:
    """Draw what to multiply x with: zeros, and 1 / (1 - p)."""
    dropped = round(p * STEPS)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    bits = draws.view(torch.int16)[: x.numel()].view(x.shape)  # -2¹⁵ … 2¹⁵ - 1, all equally likely
    kept = bits.float().ge_(dropped - STEPS // 2)
    return kept.mul_(STEPS / max(1, STEPS - dropped)).to(x.dtype)
