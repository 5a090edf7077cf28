"""How a layer knows the order of the tokens.

    sinusoidal   added to the embeddings; no parameters; any length
    learned      added to the embeddings; maxlen × nhid parameters; no longer than maxlen
    rotary       turns queries and keys, so that a score depends on their distance; no parameters; any length
    none         nothing: the tokens are a set

Shapes: B batch, T time, H hidden width, D width of one head. Positions are whole numbers (B or 1, T), counted from
0 at a document's first token, so a document gets the same ones wherever padding stands. One row of
them, which serves the whole batch, may begin anywhere. Of several rows none has a position of T or more, so that a
table of T rows serves them all; building it anew costs T·H sines, little beside a layer's T·H·H.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rehead.errors import ConfigError

WAVELENGTH = 10_000.0  # of the slowest turn, in positions per radian, as in "Attention is all you need"

Turns = tuple[Tensor, Tensor]


def count_positions(ids: Tensor, keep: Tensor | None) -> Tensor:
    """Number the tokens of each document from 0, skipping padding: (B, T), or (1, T) where all rows agree."""
    if keep is None:
        return torch.arange(ids.shape[1], device=ids.device)[None]
    real = keep.long()
    return (real.cumsum(1) - real) * real  # how many real tokens stand before each


def sinusoidal_table(length: int, nhid: int, device: torch.device | None = None) -> Tensor:
    """Build the table (length, H): sines in the even columns, cosines in the odd ones, ever slower."""
    return _waves(torch.arange(length, device=device), nhid)


def _waves(places: Tensor, nhid: int) -> Tensor:
    angles = _angles(places, nhid)  # (T, H / 2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).reshape(len(places), nhid)


class Sinusoidal(nn.Module):
    """Add the sinusoidal table: computed, never stored."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, H), positions (B or 1, T) → (B, T, H)."""
        places = _places(positions)
        waves = _waves(places, x.shape[2]).to(x.dtype)  # (T, H)
        return x + (waves if len(positions) == 1 else waves[positions])


class Learned(nn.Module):
    """Add a trained vector per position."""

    def __init__(self, nhid: int, maxlen: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(maxlen, nhid))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, H), positions (B or 1, T) → (B, T, H)."""
        # Where padding makes a row too long, the documents in it may still fit.
        if x.shape[1] > len(self.weight):
            self.check(int(positions.max()) + 1)
        return x + self.weight[positions]

    def check(self, length: int) -> None:
        """Refuse a text that has more tokens than there are positions."""
        if length > (maxlen := len(self.weight)):
            raise ConfigError(
                f"the text has {length} tokens, but the learned positions end at maxlen={maxlen}. "
                "Cut the text, or use a model with sinusoidal or rotary positions."
            )


def rotary_turns(positions: Tensor, width: int) -> Turns:
    """Cosines and sines for heads of this width: positions (B or 1, T) → two of (B or 1, 1, T, D)."""
    angles = _angles(_places(positions), width)
    angles = torch.cat((angles, angles), dim=-1)  # (T, D)
    cosine, sine = angles.cos(), angles.sin()
    if len(positions) == 1:
        return cosine[None, None], sine[None, None]
    return cosine[positions][:, None], sine[positions][:, None]


def rotate(x: Tensor, turns: Turns) -> Tensor:
    """Turn each pair (i, i + D / 2) of x (…, heads, T, D) by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    cosine, sine = (each.chunk(2, dim=-1)[0].to(x.dtype) for each in turns)  # their two halves are the same
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def _places(positions: Tensor) -> Tensor:
    """Which positions need computing (T): those of the one row; else all that several rows can have."""
    return positions[0] if len(positions) == 1 else torch.arange(positions.shape[1], device=positions.device)


def _angles(places: Tensor, width: int) -> Tensor:
    """Angle of each of T positions at each of width / 2 frequencies: (T, width / 2)."""
    frequencies = WAVELENGTH ** (-torch.arange(0, width, 2, device=places.device) / width)
    return places[:, None] * frequencies
