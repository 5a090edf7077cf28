"""One Transformer layer: attention, then a feed-forward network, each with a residual connection.

With `norm="post"` it computes the same as `torch.nn.TransformerEncoderLayer`, dropout included. With "pre" the residual
stream is not normalised, and both output projections start at zero, so that a new layer is the identity.

Shapes: B batch, T time, H hidden size, N heads, D = H / N.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.attention import attention_weights, split_heads
from rehead.model.cache import LayerCache
from rehead.model.config import ModelConfig
from rehead.model.dropout import Dropout
from rehead.model.positions import CosSin


class Layer(nn.Module):
    """A Transformer layer."""

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
        # torch's encoder applies dropout to attention weights, and so does `lab`. The other presets do not, since the
        # fused attention kernel of the CPU has no dropout.
        self.attention_dropout = Dropout(0.0 if self.pre else config.dropout)
        self.reset()

    def reset(self) -> None:
        """Initialise the weights: like torch's encoder for "post"; output projections at zero for "pre"."""
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
        cos_sin: CosSin | None,
        weights: list[Tensor] | None = None,
        past: LayerCache | None = None,
    ) -> Tensor:
        """x (B, T, H) → (B, T, H). `weights`, if given, receives the attention weights of this layer (B, N, T, T).

        `mask` is additive; `causal` is equivalent to the square mask, without materialising it. `past`, if given, is
        the key-value cache: x attends to the tokens in it, and is appended.
        """
        if self.pre:
            x = x + self.dropout(self.attend(self.norm1(x), mask, causal, cos_sin, weights, past))
            x = x + self.dropout(self.feed(self.norm2(x)))
        else:
            x = self.norm1(x + self.dropout(self.attend(x, mask, causal, cos_sin, weights, past)))
            x = self.norm2(x + self.dropout(self.feed(x)))
        return x

    def attend(
        self,
        x: Tensor,
        mask: Tensor | None,
        causal: bool,
        cos_sin: CosSin | None,
        weights: list[Tensor] | None,
        past: LayerCache | None = None,
    ) -> Tensor:
        """Multi-head attention."""
        batch, time, nhid = x.shape
        q, k, v = split_heads(self.qkv(x), self.nhead, cos_sin)  # (B, N, T, D)
        if past is not None:
            k, v = past.append(k, v)
        if weights is None and not (self.training and self.attention_dropout.p):
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        else:
            probabilities = attention_weights(q, k, mask, causal)
            if weights is not None:
                weights.append(probabilities)
            attended = torch.bmm(self.attention_dropout(probabilities).flatten(0, 1), v.flatten(0, 1)).view(q.shape)
        out: Tensor = self.output(attended.transpose(1, 2).reshape(batch, time, nhid))
        return out

    def feed(self, x: Tensor) -> Tensor:
        """Feed-forward network, applied to every position separately."""
        x = self.up(x)
        if self.feedforward == "swiglu":
            gate, value = x.chunk(2, dim=-1)
            x = F.silu(gate) * value
        elif self.feedforward == "gelu":
            x = F.gelu(x)
        else:
            x = x.relu_()  # in place: its input is not used again
        out: Tensor = self.down(self.dropout(x))
        return out
