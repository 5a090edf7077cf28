"""The key-value cache of causal generation.

With causal attention a later token never changes an earlier hidden state, so each new token needs one forward pass of
its own instead of one over the whole sequence. The cache grows by 2·H numbers per token and layer; its capacity doubles
when it is full, so that copying costs less than one extra write per token.

Shapes: B batch, T new tokens, N heads, D head size. All rows have the same number of tokens, without padding.
"""

from __future__ import annotations

import torch
from torch import Tensor


class LayerCache:
    """Keys and values of one layer: (B, N, capacity, D), filled up to `length`."""

    def __init__(self) -> None:
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of T new tokens, (B, N, T, D) each; return all, (B, N, length, D) each."""
        begin, self.length = self.length, self.length + keys.shape[2]
        self.keys = _filled(self.keys, keys, begin)
        self.values = _filled(self.values, values, begin)
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def take_rows(self, rows: Tensor) -> None:
        """Keep these rows of the batch; indices may omit and repeat rows."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


class KeyValueCache:
    """The state of `Base.forward_cached` between calls. Not for use with gradients."""

    def __init__(self) -> None:
        self.length = 0
        "Number of tokens so far, in every row."
        self.last: Tensor | None = None
        "The last max_n − 1 ids (B, …), which the n-grams of the next token need."
        self.layers: list[LayerCache] = []

    def take_rows(self, rows: Tensor) -> None:
        """Keep these rows of the batch: `[0, 0, 0]` repeats the first three times, `[0, 2]` drops the second."""
        if self.last is not None:
            self.last = self.last[rows]
        for layer in self.layers:
            layer.take_rows(rows)


def _filled(kept: Tensor | None, new: Tensor, begin: int) -> Tensor:
    """Write `new` (B, N, T, D) after the first `begin` tokens, growing the buffer if needed."""
    batch, heads, time, width = new.shape
    end = begin + time
    if kept is None or kept.shape[2] < end:
        larger = torch.empty(batch, heads, end if kept is None else 2 * end, width, dtype=new.dtype, device=new.device)
        if kept is not None:
            larger[:, :, :begin] = kept[:, :, :begin]
        kept = larger
    kept[:, :, begin:end] = new
    return kept
