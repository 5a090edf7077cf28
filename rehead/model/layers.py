"""One Transformer layer: attention, then a feed-forward part, each with a residual path around it.

With `norm="post"` it computes what `torch.nn.TransformerEncoderLayer` computes, dropout included. With "pre" the
residual stream is never normed, and both output projections start at zero: a new layer changes nothing.

Shapes: B batch, T time, H hidden width, N heads, D = H / N.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.attention import attention_weights, split_heads
from rehead.model.cache import KeysAndValues
from rehead.model.config import ModelConfig
from rehead.model.dropout import Dropout
from rehead.model.positions import Turns


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
        self.dropout = Dropout(config.dropout)
        # torch's encoder also drops attention weights, and so does `lab`. Elsewhere it is left out: the CPU's fused
        # attention kernel knows no dropout.
        self.attention_dropout = Dropout(0.0 if self.pre else config.dropout)
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
        q, k, v = split_heads(self.qkv(x), self.nhead, turns)  # (B, N, T, D)
        if past is not None:
            k, v = past.append(k, v)
        if weights is None and not (self.training and self.attention_dropout.p):
            read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        else:
            shares = attention_weights(q, k, mask, causal)
            if weights is not None:
                weights.append(shares)
            read = torch.bmm(self.attention_dropout(shares).flatten(0, 1), v.flatten(0, 1)).view(q.shape)
        out: Tensor = self.output(read.transpose(1, 2).reshape(batch, time, nhid))
        return out

    def feed(self, x: Tensor) -> Tensor:
        """Widen, bend, narrow: every position by itself."""
        x = self.up(x)
        if self.feedforward == "swiglu":
            gate, value = x.chunk(2, dim=-1)
            x = F.silu(gate) * value
        elif self.feedforward == "gelu":
            x = F.gelu(x)
        else:
            x = x.relu_()  # nobody else needs what it overwrites
        out: Tensor = self.down(self.dropout(x))
        return out
