"""Positional encodings.

    sinusoidal   added to the embeddings; no parameters; any length
    learned      added to the embeddings; maxlen × nhid parameters; length at most maxlen
    rotary       (RoPE) rotates queries and keys, so that scores depend on distance; no parameters; any length
    none         no positions: token order is ignored

Shapes: B batch, T time, H hidden size, D head size. Positions are integers (B or 1, T), counted from 0 at a document's
first token, independent of padding. A single row, shared by the batch, may start anywhere. With several rows all
positions are below T, so that one table of T rows serves them all; recomputing it costs T·H sines, little compared with
a layer's T·H·H.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rehead.errors import ConfigError

WAVELENGTH = 10_000.0  # of the lowest frequency, in positions per radian, as in "Attention is all you need"

CosSin = tuple[Tensor, Tensor]
"Cosines and sines of the rotary angles."


def count_positions(ids: Tensor, keep: Tensor | None) -> Tensor:
    """Number the tokens of each document from 0, skipping padding: (B, T), or (1, T) without padding."""
    if keep is None:
        return torch.arange(ids.shape[1], device=ids.device)[None]
    real = keep.long()
    return (real.cumsum(1) - real) * real  # number of real tokens before each


def sinusoidal_table(length: int, nhid: int, device: torch.device | None = None) -> Tensor:
    """Build the table (length, H): sines in the even columns, cosines in the odd ones, with decreasing frequency."""
    return _waves(torch.arange(length, device=device), nhid)


def _waves(places: Tensor, nhid: int) -> Tensor:
    angles = _angles(places, nhid)  # (T, H / 2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).reshape(len(places), nhid)


class Sinusoidal(nn.Module):
    """Add sinusoidal positions, computed on the fly."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, H), positions (B or 1, T) → (B, T, H)."""
        places = _places(positions)
        waves = _waves(places, x.shape[2]).to(x.dtype)  # (T, H)
        return x + (waves if len(positions) == 1 else waves[positions])


class Learned(nn.Module):
    """Add a learned vector per position."""

    def __init__(self, nhid: int, maxlen: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(maxlen, nhid))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, H), positions (B or 1, T) → (B, T, H)."""
        # If only padding makes a row longer than maxlen, its document still fits.
        if x.shape[1] > len(self.weight):
            self.check(int(positions.max()) + 1)
        return x + self.weight[positions]

    def check(self, length: int) -> None:
        """Refuse a text longer than `maxlen`."""
        if length > (maxlen := len(self.weight)):
            raise ConfigError(
                f"the text has {length} tokens, which exceeds maxlen={maxlen} of the learned positions. "
                "Truncate the text, or use a model with sinusoidal or rotary positions."
            )


def rotary_cos_sin(positions: Tensor, width: int) -> CosSin:
    """Compute cosines and sines for heads of this width: positions (B or 1, T) → two of (B or 1, 1, T, D)."""
    angles = _angles(_places(positions), width)
    angles = torch.cat((angles, angles), dim=-1)  # (T, D)
    cosine, sine = angles.cos(), angles.sin()
    if len(positions) == 1:
        return cosine[None, None], sine[None, None]
    return cosine[positions][:, None], sine[positions][:, None]


def rotate(x: Tensor, cos_sin: CosSin) -> Tensor:
    """Rotate each pair (i, i + D / 2) of x (…, heads, T, D) by the angle of its position."""
    first, second = x.chunk(2, dim=-1)
    cosine, sine = (each.chunk(2, dim=-1)[0].to(x.dtype) for each in cos_sin)  # their halves are equal
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def _places(positions: Tensor) -> Tensor:
    """Return the positions to compute (T,): those of a single row, or 0 … T − 1 for several rows."""
    return positions[0] if len(positions) == 1 else torch.arange(positions.shape[1], device=positions.device)


def _angles(places: Tensor, width: int) -> Tensor:
    """Compute the angle of each position at each frequency: (T, width / 2)."""
    frequencies = WAVELENGTH ** (-torch.arange(0, width, 2, device=places.device) / width)
    return places[:, None] * frequencies
