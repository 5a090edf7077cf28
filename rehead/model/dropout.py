"""Dropout with cheap random numbers on a CPU.

torch draws at least 32 random bits for each value, one value after the other: the largest cost of a layer after its
matrix products. Here each 64-bit draw of the same generator (and seed) serves four values with 16 bits each, in a
quarter of the time. The dropout probability is `p` rounded to a multiple of 1/65,536, and the kept values are scaled by
exactly its complement, so that the mean is preserved.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 1 << 16  # values of 16 bits


class Dropout(nn.Module):
    """In training, zero each value with probability `p` and scale up the others."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout in training; the identity otherwise."""
        return drop(x, self.p) if self.training and self.p else x

    def extra_repr(self) -> str:
        """Show the probability."""
        return f"p={self.p}"


def drop(x: Tensor, p: float) -> Tensor:
    """Zero each value of x with probability `p` and scale up the others."""
    # Other devices have fast random generators.
    return x * _factors(x, p) if x.device.type == "cpu" else F.dropout(x, p)


def _factors(x: Tensor, p: float) -> Tensor:
    """Draw the factors of x: 0, or 1 / (1 - p)."""
    dropped = round(p * STEPS)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    bits = draws.view(torch.int16)[: x.numel()].view(x.shape)  # -2¹⁵ … 2¹⁵ - 1, all equally likely
    kept = bits.float().ge_(dropped - STEPS // 2)
    return kept.mul_(STEPS / max(1, STEPS - dropped)).to(x.dtype)
