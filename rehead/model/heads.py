"""What stands on the base: a language model, or a classifier. Either can be taken off and the other put on.

A head sees the hidden states, which of them are real, and the embedding table (which a tied language model reads).
Shapes: B batch, T time, H hidden width, V vocabulary, K classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.errors import ConfigError
from rehead.model.config import Classifier, Head, LanguageModel, ModelConfig
from rehead.model.words import Words


class LanguageModelHead(nn.Module):
    """Score every token of the vocabulary at every position.

    Takes hidden states of any leading shape, so that a masked language model can pass the masked positions only.
    A pre-norm base is normed here: its residual stream then serves classifiers as it is.
    """

    def __init__(self, config: ModelConfig, head: LanguageModel) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.nhid, bias=config.bias) if config.norm == "pre" else None
        self.weight = None if head.tied else nn.Parameter(torch.empty(config.ntokens, config.nhid))
        self.bias = nn.Parameter(torch.zeros(config.ntokens)) if config.bias else None
        if self.weight is not None:
            nn.init.uniform_(self.weight, -0.1, 0.1)

    def forward(self, hidden: Tensor, keep: Tensor | None, embedding: Tensor) -> Tensor:
        """Hidden (…, H) → logits (…, V)."""
        return F.linear(*self.parts(hidden, embedding))

    def parts(self, hidden: Tensor, embedding: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Give what the logits are made of, for a loss that need not see them all: normed hidden, weight, bias."""
        if self.norm is not None:
            hidden = self.norm(hidden)
        return hidden, embedding if self.weight is None else self.weight, self.bias


class ClassifierHead(nn.Module):
    """Pool a document into one vector and score the classes; its words may score them beside."""

    centre: Tensor | None
    "What vectors are measured from, where only their direction is read: (H,)."

    def __init__(self, config: ModelConfig, head: Classifier) -> None:
        super().__init__()
        self.config = head
        self.dropout = nn.Dropout(head.dropout)
        self.linear = nn.Linear(config.nhid, head.classes)
        self.words = Words(config, head.classes) if head.words else None
        self.register_buffer("centre", torch.zeros(config.nhid) if head.unit else None)

    def forward(self, hidden: Tensor, keep: Tensor | None, embedding: Tensor) -> Tensor:
        """Hidden (B, T, H), keep (B, T) or None → logits (B, K), without what words score."""
        return self.score(self.pool(hidden, keep))

    def score(self, pooled: Tensor) -> Tensor:
        """Score the classes by a document's vector: (B, H) → (B, K)."""
        if self.centre is not None:
            pooled = F.normalize(pooled - self.centre, dim=1)
        logits: Tensor = self.linear(self.dropout(pooled))
        return logits

    @property
    def reads_rows(self) -> bool:
        """Whether it asks which tokens and n-grams a document has, and not only for hidden states."""
        return self.words is not None or self.config.pooling == "distinct"

    def pool(self, hidden: Tensor, keep: Tensor | None = None) -> Tensor:
        """Make one vector of a document: (B, T, H) → (B, H). No token at all gives zeros."""
        if keep is None:
            keep = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        if not hidden.shape[1]:
            return hidden.new_zeros(len(hidden), hidden.shape[2])
        if self.config.pooling == "distinct":
            raise ConfigError("the mean of distinct rows is no mean of hidden states. Call the model.")
        return _last(hidden, keep) if self.config.pooling == "last" else _mean(hidden, keep)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Logits (B, K) → probabilities: shares of one whole, or one yes-or-no for each label."""
        return logits.sigmoid() if self.config.multilabel else logits.softmax(-1)


def build_head(config: ModelConfig, head: Head) -> LanguageModelHead | ClassifierHead:
    """Make the module that a head's configuration describes, with fresh weights."""
    return LanguageModelHead(config, head) if isinstance(head, LanguageModel) else ClassifierHead(config, head)


def _mean(hidden: Tensor, keep: Tensor) -> Tensor:
    real = hidden.masked_fill(~keep[..., None], 0.0)
    return real.sum(1) / keep.sum(1, keepdim=True).clamp_min(1)


def _last(hidden: Tensor, keep: Tensor) -> Tensor:
    places = torch.arange(keep.shape[1], device=keep.device)
    last = torch.where(keep, places, 0).amax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), last] * keep.any(1, keepdim=True)
