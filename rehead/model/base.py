"""The base: tokens in, one hidden state per token out. It is pretrained, and kept when the head is replaced.

    token embedding (+ n-gram embeddings) → positions → layers

Causal or bidirectional attention is chosen per call, so one base serves generation and classification.
Shapes: B batch, T time, H hidden size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rehead.errors import ConfigError
from rehead.model.cache import KeyValueCache, LayerCache
from rehead.model.config import ModelConfig
from rehead.model.dropout import Dropout
from rehead.model.layers import Layer
from rehead.model.masks import padding_mask, square_mask
from rehead.model.ngrams import NGrams
from rehead.model.positions import Learned, Sinusoidal, count_positions, rotary_cos_sin
from rehead.model.statistics import Statistics

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


SCALED_RANGE = 0.1  # fresh embeddings that are multiplied by the square root of nhid are uniform in ±this


class Base(nn.Module):
    """Embeddings, positions and layers, as the configuration says."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.scale = math.sqrt(config.nhid) if config.scale_embedding else 1.0
        # Initialised in `reset`: filling the table twice, or on the meta device, would dominate construction time.
        self.embedding = nn.Embedding(config.ntokens, config.nhid, _weight=torch.empty(config.ntokens, config.nhid))
        self.ngrams = NGrams(config.ngrams, config.nbuckets, config.nhid) if config.ngrams > 1 else None
        self.positions: Sinusoidal | Learned | None = None
        if config.positions == "sinusoidal":
            self.positions = Sinusoidal()
        elif config.positions == "learned":
            self.positions = Learned(config.nhid, config.maxlen)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.nlayers))
        self.statistics = Statistics(config)
        self.reset()

    def reset(self) -> None:
        """Initialise the weights. N-gram vectors start at zero, so that n-grams unseen in training add nothing."""
        if self.embedding.weight.is_meta:
            return
        if self.config.scale_embedding:
            nn.init.uniform_(self.embedding.weight, -SCALED_RANGE, SCALED_RANGE)
        else:
            nn.init.normal_(self.embedding.weight, std=self.config.nhid**-0.5)
        if self.ngrams is not None:
            nn.init.zeros_(self.ngrams.weight)
        if isinstance(self.positions, Learned):
            nn.init.normal_(self.positions.weight, std=0.02)

    @property
    def fresh_size(self) -> float:
        """Root mean square of the values of a fresh embedding table."""
        return SCALED_RANGE / math.sqrt(3) if self.config.scale_embedding else self.config.nhid**-0.5

    @torch.no_grad()
    def start_tokens(self, tokens: Tensor, vectors: Tensor) -> None:
        """Start the embeddings of some tokens (N,) from these vectors (N, H), at the size of fresh ones."""
        size = vectors.square().mean().sqrt().clamp_min(1e-12)
        self.embedding.weight[tokens] = (vectors * (self.fresh_size / size)).to(self.embedding.weight)

    @torch.no_grad()
    def settle_tokens(self) -> bool:
        """Bring embeddings that were trained alone to the size of fresh ones, where layers expect it; tell if they do.

        Positions are added to embeddings that are scaled by the square root of nhid; rows that another objective has
        trained are many times as long as fresh ones, and would drown the positions.
        """
        if not self.config.scale_embedding:
            return False
        self.embedding.weight.mul_(self.fresh_size / self.embedding.weight.square().mean().sqrt().clamp_min(1e-12))
        return True

    def forward(
        self, ids: Tensor, keep: Tensor | None = None, *, causal: bool, embedded: Tensor | None = None
    ) -> Tensor:
        """Compute hidden states: ids (B, T) → (B, T, H).

        `keep` (B, T) is True for real tokens, False for padding, where the output is undefined. `embedded` replaces the
        result of `embed`, for instance to take gradients with respect to it.
        """
        return self._forward(ids, keep, causal, None, embedded)

    def embed(self, ids: Tensor, keep: Tensor | None = None, *, causal: bool) -> Tensor:
        """Embed tokens and n-grams, without positions: ids (B, T) → (B, T, H)."""
        x: Tensor = self.embedding(ids) * self.scale
        if self.ngrams is not None:
            x = x + self.ngrams(ids, keep, causal)
        return x

    def attention(self, ids: Tensor, keep: Tensor | None = None, *, causal: bool) -> tuple[Tensor, list[Tensor]]:
        """Compute hidden states (B, T, H) and the attention weights of each layer (B, heads, T, T)."""
        weights: list[Tensor] = []
        return self._forward(ids, keep, causal, weights), weights

    def forward_cached(self, ids: Tensor, cache: KeyValueCache) -> Tensor:
        """Compute the hidden states of T further tokens with causal attention, and add them to the cache.

        ids (B, T) → (B, T, H): the last T positions of what `forward` gives for the whole sequence.
        """
        self._check(ids, None)
        begin, time = cache.length, ids.shape[1]
        cache.length += time
        if isinstance(self.positions, Learned):
            self.positions.check(cache.length)
        x: Tensor = self.embedding(ids) * self.scale
        if self.ngrams is not None:
            context = ids if cache.last is None else torch.cat((cache.last, ids), 1)
            x = x + self.ngrams(context, None, True)[:, context.shape[1] - time :]
            cache.last = context[:, 1 - self.ngrams.max_n :]
        positions = torch.arange(begin, cache.length, device=ids.device)[None]
        if self.positions is not None:
            x = self.positions(x, positions)
        x = self.dropout(x)
        if not cache.layers:
            cache.layers = [LayerCache() for _ in self.layers]
        cos_sin = self._cos_sin(positions)
        # A single new token attends to everything. The kernel's own causal mask would be aligned to the first key.
        mask = None
        if begin and time > 1:
            mask = square_mask(cache.length, ids.device)[begin:].to(x.dtype)  # (T, length)
        for layer, past in zip(self.layers, cache.layers, strict=True):
            x = layer(x, mask, not begin and time > 1, cos_sin, None, past)
        return x

    def _forward(
        self,
        ids: Tensor,
        keep: Tensor | None,
        causal: bool,
        weights: list[Tensor] | None,
        embedded: Tensor | None = None,
    ) -> Tensor:
        self._check(ids, keep)
        x: Tensor = self.embed(ids, keep, causal=causal) if embedded is None else embedded
        positions = count_positions(ids, keep)
        if self.positions is not None:
            x = self.positions(x, positions)
        x = self.dropout(x)
        if not self.layers:
            return x
        cos_sin = self._cos_sin(positions)
        mask = None if keep is None else padding_mask(keep)
        if causal and mask is not None:
            mask, causal = square_mask(ids.shape[1], ids.device) + mask, False
        mask = None if mask is None else mask.to(x.dtype)
        for layer in self.layers:
            x = layer(x, mask, causal, cos_sin, weights)
        return x

    def row_tables(self) -> list[tuple[int, nn.Embedding]]:
        """List the embedding tables, each with the number of its first row: tokens, then n-grams."""
        return [(0, self.embedding), *([] if self.ngrams is None else [(self.config.ntokens, self.ngrams)])]

    def learn_frequency(self, frequency: NDArray[np.int64], documents: int) -> None:
        """Store document frequencies: how many of `documents` contain each row, (R,)."""
        self.statistics.learn_frequency(frequency, documents)

    def learn_vectors(self, view: str, vectors: NDArray[Any]) -> None:
        """Store mean and covariance of the vectors (N, H) that a view gives for a sample of documents."""
        self.statistics.learn_vectors(view, vectors)

    def ngram_rows_fit(self) -> bool:
        """Return whether every n-gram slot has a valid row."""
        return self.ngrams is None or self.ngrams.rows_fit()

    def layer_modules(self) -> list[nn.Module]:
        """List the layers from the bottom: the units of sharding and compilation."""
        return list(self.layers)

    def parameters_by_depth(self) -> list[list[nn.Parameter]]:
        """Group all parameters from the top: those of each layer, then the embeddings."""
        layers = [list(layer.parameters()) for layer in reversed(self.layers)]
        in_layers = {id(each) for layer in layers for each in layer}
        return [*layers, [each for each in self.parameters() if id(each) not in in_layers]]

    def _cos_sin(self, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        if self.config.positions != "rotary":
            return None
        return rotary_cos_sin(positions, self.config.nhid // self.config.nhead)

    def _check(self, ids: Tensor, keep: Tensor | None) -> None:
        """Check shapes, types and token ids here, where the error message can name the argument."""
        if ids.dim() != 2 or ids.dtype not in (torch.int64, torch.int32):
            raise ConfigError(f"ids are {tuple(ids.shape)} {ids.dtype}. Expected (batch, time) of int64 or int32.")
        if keep is not None and keep.shape != ids.shape:
            raise ConfigError(f"keep is {tuple(keep.shape)}. Expected the shape of ids, {tuple(ids.shape)}.")
        if keep is not None and keep.dtype != torch.bool:
            raise ConfigError(f"keep is {keep.dtype}. Expected bool: True for real tokens, False for padding.")
        # On an accelerator, reading the ids would force a synchronisation.
        if ids.device.type == "cpu" and ids.numel() and not torch.compiler.is_compiling():
            low, high = (int(each) for each in ids.aminmax())
            if low < 0 or high >= self.config.ntokens:
                wrong = low if low < 0 else high
                raise ConfigError(
                    f"ids contain {wrong}. Expected 0 to {self.config.ntokens - 1}: ntokens is the vocabulary size."
                )
