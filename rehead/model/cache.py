"""What a causal reader has read, kept so that it can read on: the keys and values of every layer.

Under the square mask nothing that comes later changes an earlier position, so a new token needs one pass of its own,
not a second one over all before it. What is kept grows by 2·H numbers per token and layer; room doubles when it is
full, so that the copying comes to less than one more write per token.

Shapes: B batch, T new tokens, N heads, D width of one head. All rows hold equally many tokens, without padding.
"""

from __future__ import annotations

import torch
from torch import Tensor


class KeysAndValues:
    """The part of one layer: keys and values (B, N, room, D), filled up to `length`."""

    def __init__(self) -> None:
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of T new tokens, (B, N, T, D) each; give all there are, (B, N, length, D) each."""
        begin, self.length = self.length, self.length + keys.shape[2]
        self.keys = _filled(self.keys, keys, begin)
        self.values = _filled(self.values, values, begin)
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def take_rows(self, rows: Tensor) -> None:
        """Go on with these rows of the batch: numbers, which may leave some out and repeat others."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


class Cache:
    """What `Base.read_on` keeps from one call to the next. For use without gradients."""

    def __init__(self) -> None:
        self.length = 0
        "Tokens read so far, in every row."
        self.last: Tensor | None = None
        "The last ids (B, …), as many as the longest n-gram reaches back."
        self.layers: list[KeysAndValues] = []

    def take_rows(self, rows: Tensor) -> None:
        """Go on with these rows of the batch: `[0, 0, 0]` makes three of one, `[0, 2]` drops the second."""
        if self.last is not None:
            self.last = self.last[rows]
        for layer in self.layers:
            layer.take_rows(rows)


def _filled(kept: Tensor | None, new: Tensor, begin: int) -> Tensor:
    """Write `new` (B, N, T, D) behind the first `begin` tokens, making room where there is none."""
    batch, heads, time, width = new.shape
    end = begin + time
    if kept is None or kept.shape[2] < end:
        larger = torch.empty(batch, heads, end if kept is None else 2 * end, width, dtype=new.dtype, device=new.device)
        if kept is not None:
            larger[:, :, :begin] = kept[:, :, :begin]
        kept = larger
    kept[:, :, begin:end] = new
    return kept
