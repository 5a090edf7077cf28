"""One Transformer layer: attention, then a feed-forward part, each with a residual path around it.

With `norm="post"` it computes what `torch.nn.TransformerEncoderLayer` computes, dropout included. With "pre" the
residual stream is never normed, and both output projections start at zero: a new layer changes nothing.

Shapes: B batch, T time, H hidden width, N heads, D = H / N.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.cache import KeysAndValues
from rehead.model.config import ModelConfig
from rehead.model.masks import square_mask
from rehead.model.positions import rotate

Turns = tuple[Tensor, Tensor]


class Layer(nn.Module):
    """Attention and feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        nhid, nff, bias = config.nhid, config.nff, config.bias
        self.nhead = config.nhead
        self.pre = config.norm == "pre"
        self.feedforward = config.feedforward
        self.qkv = nn.Linear(nhid, 3 * nhid, bias=bias)
        self.output = nn.Linear(nhid, nhid, bias=bias)
        self.up = nn.Linear(nhid, 2 * nff if config.feedforward == "swiglu" else nff, bias=bias)
        self.down = nn.Linear(nff, nhid, bias=bias)
        self.norm1 = nn.LayerNorm(nhid, bias=bias)
        self.norm2 = nn.LayerNorm(nhid, bias=bias)
        self.dropout = nn.Dropout(config.dropout)
        # torch's encoder also drops attention weights, and so does `lab`. Elsewhere it is left out: the CPU's fused
        # attention kernel knows no dropout.
        self.attention_dropout = 0.0 if self.pre else config.dropout
        self.reset()

    def reset(self) -> None:
        """Set fresh weights: as torch's encoder does for "post"; outputs at zero for "pre"."""
        nn.init.xavier_uniform_(self.qkv.weight)
        for linear in (self.qkv, self.output):
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        if self.pre:
            nn.init.zeros_(self.output.weight)
            nn.init.zeros_(self.down.weight)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        causal: bool,
        turns: Turns | None,
        weights: list[Tensor] | None = None,
        past: KeysAndValues | None = None,
    ) -> Tensor:
        """x (B, T, H) → (B, T, H). `weights`, when given, receives this layer's attention (B, N, T, T).

        `mask` is additive; `causal` stands for the square mask, which the kernel then need not read. `past`, when
        given, holds earlier tokens, which are read too, and receives these.
        """
        if self.pre:
            x = x + self.dropout(self.attend(self.norm1(x), mask, causal, turns, weights, past))
            x = x + self.dropout(self.feed(self.norm2(x)))
        else:
            x = self.norm1(x + self.dropout(self.attend(x, mask, causal, turns, weights, past)))
            x = self.norm2(x + self.dropout(self.feed(x)))
        return x

    def attend(
        self,
        x: Tensor,
        mask: Tensor | None,
        causal: bool,
        turns: Turns | None,
        weights: list[Tensor] | None,
        past: KeysAndValues | None = None,
    ) -> Tensor:
        """Let every position read the others, as far as the mask allows."""
        batch, time, nhid = x.shape
        # (B, T, 3H) → three of (B, N, T, D)
        q, k, v = self.qkv(x).view(batch, time, 3, self.nhead, nhid // self.nhead).permute(2, 0, 3, 1, 4)
        if turns is not None:
            q, k = rotate(q, turns), rotate(k, turns)
        if past is not None:
            k, v = past.append(k, v)
        dropout = self.attention_dropout if self.training else 0.0
        if weights is None:
            read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
        else:
            spread = attention_weights(q, k, square_mask(time, x.device).to(q.dtype) if causal else mask)
            weights.append(spread)
            read = F.dropout(spread, dropout) @ v
        out: Tensor = self.output(read.transpose(1, 2).reshape(batch, time, nhid))
        return out

    def feed(self, x: Tensor) -> Tensor:
        """Widen, bend, narrow: every position by itself."""
        x = self.up(x)
        if self.feedforward == "swiglu":
            gate, value = x.chunk(2, dim=-1)
            x = F.silu(gate) * value
        else:
            x = F.relu(x) if self.feedforward == "relu" else F.gelu(x)
        out: Tensor = self.down(self.dropout(x))
        return out


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Spell attention out: q, k (B, N, T, D) → (B, N, T, T), rows that sum to 1, or to 0 where all is masked."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is None:
        return scores.softmax(-1)
    nothing = mask.isneginf().all(-1, keepdim=True)  # rows with nothing to look at; their softmax would be NaN
    return (scores + mask.masked_fill(nothing, 0.0)).softmax(-1).masked_fill(nothing, 0.0)
