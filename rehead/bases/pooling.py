"""Hidden states of tokens → one vector per text, as sentence-transformers defines it.

Shapes: B texts, T tokens, H width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _first(hidden: Tensor, keep: Tensor) -> Tensor:
    return hidden[torch.arange(len(hidden), device=hidden.device), keep.int().argmax(1)]


def _last(hidden: Tensor, keep: Tensor) -> Tensor:
    last = keep.shape[1] - 1 - keep.int().flip(1).argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), last]


def _max(hidden: Tensor, keep: Tensor) -> Tensor:
    return hidden.masked_fill(~keep[..., None], float("-inf")).amax(1)


def _sum(hidden: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    return (hidden * weights[..., None]).sum(1), weights.sum(1, keepdim=True).clamp_min(1e-9)


def _mean(hidden: Tensor, keep: Tensor) -> Tensor:
    total, count = _sum(hidden, keep.float())
    return total / count


def _mean_sqrt(hidden: Tensor, keep: Tensor) -> Tensor:
    total, count = _sum(hidden, keep.float())
    return total / count.sqrt()


def _weighted_mean(hidden: Tensor, keep: Tensor) -> Tensor:
    total, count = _sum(hidden, keep * torch.arange(1.0, keep.shape[1] + 1, device=keep.device))
    return total / count


# In the order in which the vectors of several are put side by side; the second is the flag of older directories.
POOLINGS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "cls": ("pooling_mode_cls_token", _first),
    "max": ("pooling_mode_max_tokens", _max),
    "mean": ("pooling_mode_mean_tokens", _mean),
    "mean_sqrt_len_tokens": ("pooling_mode_mean_sqrt_len_tokens", _mean_sqrt),
    "weightedmean": ("pooling_mode_weightedmean_tokens", _weighted_mean),
    "lasttoken": ("pooling_mode_lasttoken", _last),
}


def pool(hidden: Tensor, keep: Tensor, names: tuple[str, ...]) -> Tensor:
    """Pool (B, T, H) in each of the ways, side by side: (B, H · ways). `keep` (B, T) is False for padding."""
    return torch.cat([POOLINGS[name][1](hidden, keep) for name in names], dim=1)
