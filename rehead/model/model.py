"""A base with a head on it, and the operation this project is named after."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn

from rehead.errors import ConfigError
from rehead.model.base import Base
from rehead.model.config import Classifier, Head, LanguageModel, ModelConfig
from rehead.model.heads import ClassifierHead, LanguageModelHead, build_head
from rehead.model.words import different_rows, mean_of_rows

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class HeadChange:
    """What replacing a head did: the tensors that went, those that came, and how much stayed as it was."""

    dropped: Shapes
    added: Shapes
    kept: int
    old: str
    new: str

    def __str__(self) -> str:
        gone = f"dropped {_said(self.old, self.dropped)}"
        come = f"new {_said(self.new, self.added)}"
        return f"{gone}; {come}; base kept as it was: {self.kept:,} parameters"


class Model(nn.Module):
    """A base and, unless it is bare, a head."""

    def __init__(self, config: ModelConfig, head: Head | None = None) -> None:
        super().__init__()
        self.config = config
        self.base = Base(config)
        self.head_config = head
        self.head: LanguageModelHead | ClassifierHead | None = None
        if head is not None:
            self.head = build_head(config, head)

    def forward(self, ids: Tensor, keep: Tensor | None = None, *, causal: bool | None = None) -> Tensor:
        """ids (B, T) → logits: (B, T, V) of a language model, (B, K) of a classifier.

        `causal` left out means: as the head reads by nature, which is causal for a language model and what its
        configuration says for a classifier.
        """
        if self.head is None:
            raise ConfigError("this model is a bare base. Give it a head with replace_head(...), or call model.base.")
        if isinstance(self.head, ClassifierHead) and self.head.reads_rows:
            return self._by_rows(self.head, ids, keep, causal)
        hidden = self.base(ids, keep, causal=self.reads_causally if causal is None else causal)
        logits: Tensor = self.head(hidden, keep, self.base.embedding.weight)
        return logits

    def _by_rows(self, head: ClassifierHead, ids: Tensor, keep: Tensor | None, causal: bool | None) -> Tensor:
        """Score documents by the tokens and n-grams that are in them, each once: (B, T) → (B, K)."""
        rows = different_rows(self.base, ids, keep)
        if head.config.pooling == "distinct":
            pooled = mean_of_rows(self.base, rows)
        else:
            pooled = head.pool(self.base(ids, keep, causal=self.reads_causally if causal is None else causal), keep)
        logits = head.score(pooled)
        return logits if head.words is None else logits + head.words(rows)

    @property
    def reads_causally(self) -> bool:
        """How the head reads unless told otherwise."""
        if isinstance(self.head_config, Classifier):
            return self.head_config.causal
        return isinstance(self.head_config, LanguageModel) or self.config.causal

    def replace_head(self, head: Head) -> HeadChange:
        """Take the head off and put a fresh one on, on the base's device. No tensor of the base is touched."""
        if not isinstance(head, LanguageModel | Classifier):
            raise ConfigError(f"head={head!r} is no head. Give a LanguageModel(...) or a Classifier(...).")
        old, dropped = _name(self.head_config), _shapes(self.head)
        kept = self.base.embedding.weight
        self.head = build_head(self.config, head).to(device=kept.device, dtype=kept.dtype).train(self.training)
        self.head_config = head
        return HeadChange(
            dropped=dropped,
            added=_shapes(self.head),
            kept=sum(each.numel() for each in self.base.parameters()),
            old=old,
            new=_name(head),
        )


def _shapes(head: nn.Module | None) -> Shapes:
    return {} if head is None else {f"head.{name}": tuple(each.shape) for name, each in head.named_parameters()}


def _name(head: Head | None) -> str:
    return "no head" if head is None else f"{head.kind} head"


def _said(name: str, shapes: Shapes) -> str:
    count = sum(map(math.prod, shapes.values()))
    tensors = ", ".join(f"{each} {'×'.join(map(str, shape))}" for each, shape in shapes.items())
    return f"{name} ({count:,} parameters{': ' if tensors else ''}{tensors})"
