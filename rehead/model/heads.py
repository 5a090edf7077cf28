"""What stands on the base: a language model, or a classifier. Either can be taken off and the other put on.

Shapes: B batch, T time, H hidden width, V vocabulary or terms, K classes, W columns of a view.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.config import Classifier, Head, LanguageModel, ModelConfig, Pooling, ViewConfig


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

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """Hidden (…, H) and the embedding table, which a tied head reads → logits (…, V)."""
        return F.linear(*self.parts(hidden, embedding))

    def parts(self, hidden: Tensor, embedding: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Give what the logits are made of, for a loss that need not see them all: normed hidden, weight, bias."""
        if self.norm is not None:
            hidden = self.norm(hidden)
        return hidden, embedding if self.weight is None else self.weight, self.bias


class ViewHead(nn.Module):
    """The weights of one view, with the statistics that its features are scaled by."""

    shift: Tensor | None
    "Dense, unit: the mean document, which is subtracted before the length is set to one: (W,)."
    scale: Tensor | None
    "Sparse, or with terms: how much each feature or n-gram counts (idf): (W,) or (V,)."
    keys: Tensor | None
    "With terms: the hashes of the n-grams, each in two halves: (V, 2)."
    kind: Tensor | None
    "Dense with terms: 0 for words, 1 for character n-grams: (V,)."
    table: Tensor | None
    "Dense with terms: the vector of each n-gram: (V, W)."

    def __init__(self, view: ViewConfig, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros((view.columns, classes) if view.sparse else (classes, view.columns)))
        "(W, K) if sparse, so that the rows of the features found are read; else (K, W)."
        self.register_buffer("shift", torch.zeros(view.columns) if view.unit and not view.sparse else None)
        self.register_buffer("scale", torch.ones(view.terms or view.columns) if view.sparse or view.terms else None)
        self.register_buffer("keys", torch.zeros(view.terms, 2) if view.terms else None)
        dense = view.terms and not view.sparse
        self.register_buffer("kind", torch.zeros(view.terms) if dense else None)
        self.register_buffer("table", torch.zeros(view.terms, view.columns) if dense else None)


class ClassifierHead(nn.Module):
    """Score the classes of a document by the features of the views that were chosen: one linear layer on all of them.

    Texts are scored by `rehead.runs.scoring`, which reads the views; `forward` is for training by gradient.
    """

    def __init__(self, config: ModelConfig, head: Classifier) -> None:
        super().__init__()
        self.config = head
        self.dropout = nn.Dropout(head.dropout)
        self.views = nn.ModuleDict({view.name: ViewHead(view, head.classes) for view in head.views})
        self.bias = nn.Parameter(torch.zeros(head.classes))
        if head.neural is not None:  # as torch starts a linear layer
            fresh = nn.Linear(head.neural.columns, head.classes)
            self.of(head.neural.name).weight = nn.Parameter(fresh.weight.detach())
            self.bias = nn.Parameter(fresh.bias.detach())

    def of(self, view: str) -> ViewHead:
        """Give the weights of a view."""
        part = self.views[view]
        assert isinstance(part, ViewHead)  # noqa: S101 (for the type checker)
        return part

    def forward(self, vectors: Tensor, view: str | None = None) -> Tensor:
        """Score documents by the vectors of one view: (B, H) → (B, K), without what other views score.

        By default it is the neural one.
        """
        if view is None:
            assert self.config.neural is not None  # noqa: S101 (for the type checker)
            view = self.config.neural.name
        part = self.of(view)
        if part.shift is not None:
            vectors = unit_vectors(vectors, part.shift)
        return F.linear(self.dropout(vectors), part.weight, self.bias)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Logits (B, K) → probabilities: softmax, or one sigmoid for each label (multilabel)."""
        return logits.sigmoid() if self.config.multilabel else logits.softmax(-1)


def unit_vectors(vectors: Tensor, shift: Tensor) -> Tensor:
    """Measure vectors (B, W) from the mean document (W,), and bring them to unit length."""
    return F.normalize(vectors - shift, dim=1)


def build_head(config: ModelConfig, head: Head) -> LanguageModelHead | ClassifierHead:
    """Make the module that a head's configuration describes, with fresh weights."""
    return LanguageModelHead(config, head) if isinstance(head, LanguageModel) else ClassifierHead(config, head)


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
