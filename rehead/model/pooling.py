"""Pooling: from the hidden states of a document to one vector. Shapes: B documents, T time, H hidden width."""

from __future__ import annotations

import torch
from torch import Tensor

from rehead.model.config import Pooling


def pool(hidden: Tensor, keep: Tensor | None, pooling: Pooling) -> Tensor:
    """Average the hidden states, or take the last: (B, T, H) → (B, H). `keep` (B, T) is False for padding.

    A document without tokens gives zeros.
    """
    if keep is None:
        keep = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
    if not hidden.shape[1]:
        return hidden.new_zeros(len(hidden), hidden.shape[2])
    if pooling == "mean":
        real = hidden.masked_fill(~keep[..., None], 0.0)
        return real.sum(1) / keep.sum(1, keepdim=True).clamp_min(1)
    places = torch.arange(keep.shape[1], device=keep.device)
    last = torch.where(keep, places, 0).amax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), last] * keep.any(1, keepdim=True)
