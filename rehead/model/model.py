"""A base with a head on it, and the operation this project is named after."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rehead.bases.brought import Brought
from rehead.errors import ConfigError
from rehead.model.base import Base
from rehead.model.config import Classifier, Head, LanguageModel, ModelConfig
from rehead.model.heads import ClassifierHead, LanguageModelHead, build_head, pool

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
        self.brought: dict[str, Brought] = {}
        "Bases that others pretrained, by the name of the view that reads each: files, not part of the weights."
        self.head_config = head
        self.head: LanguageModelHead | ClassifierHead | None = None
        if head is not None:
            self.head = build_head(config, head)

    def forward(self, ids: Tensor, keep: Tensor | None = None, *, causal: bool | None = None) -> Tensor:
        """ids (B, T) → logits: (B, T, V) of a language model, (B, K) of a classifier that reads the layers alone.

        `causal` left out means: as the head reads by nature, which is causal for a language model and what its
        configuration says for a classifier. Other classifiers read more than hidden states: `rehead.runs.scoring`.
        """
        if self.head is None:
            raise ConfigError("this model is a bare base. Give it a head with replace_head(...), or call model.base.")
        if isinstance(self.head_config, Classifier) and [each.name for each in self.head_config.views] != ["layers"]:
            views = ", ".join(each.name for each in self.head_config.views)
            raise ConfigError(f"this classifier reads {views}, not hidden states alone. Use class_logits(run, texts).")
        hidden = self.base(ids, keep, causal=self.reads_causally if causal is None else causal)
        if isinstance(self.head, LanguageModelHead):
            return self.token_logits(hidden)
        assert isinstance(self.head_config, Classifier)  # noqa: S101 (for the type checker)
        logits: Tensor = self.head(pool(hidden, keep, self.head_config.views[0].options.get("pooling", "mean")))
        return logits

    def token_logits(self, hidden: Tensor) -> Tensor:
        """Score every token of the vocabulary by hidden states: (…, H) → (…, V)."""
        assert isinstance(self.head, LanguageModelHead)  # noqa: S101 (whoever asks has looked)
        logits: Tensor = self.head(hidden, self.base.embedding.weight)
        return logits

    def token_logit_parts(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Give what `token_logits` multiplies, for a loss that need not hold all logits: hidden, weight, bias."""
        assert isinstance(self.head, LanguageModelHead)  # noqa: S101 (whoever asks has looked)
        return self.head.parts(hidden, self.base.embedding.weight)

    def even_out_tied_head(self) -> None:
        """Have a tied head that was not trained yet score as evenly as on a fresh base.

        Rows that another objective has trained are many times as long as fresh ones, and so would the logits be: on a
        bag of 25 million tokens the loss began at 24 instead of 9.
        """
        head = self.head
        if not isinstance(head, LanguageModelHead) or head.weight is not None or head.norm is None:
            return
        if bool((head.norm.weight == 1).all()):
            with torch.no_grad():
                head.norm.weight.div_(self.base.embedding.weight.square().sum(1).mean().sqrt().clamp_min(1))

    @torch.no_grad()
    def warm_up_head(self, counts: Tensor | None = None, tokens: Tensor | None = None) -> bool:
        """Start a head with a matrix of its own as a copy of the embeddings; tell whether there is one.

        `counts` (V,): how often each token occurs; their logarithms become the biases. `tokens` (N,): those that are
        copied, instead of all.
        """
        head = self.head
        if not isinstance(head, LanguageModelHead) or head.weight is None:
            return False
        which = slice(None) if tokens is None else tokens
        head.weight[which] = self.base.embedding.weight[which]
        if counts is not None and head.bias is not None:
            shares = (counts.double() + 1) / (counts.double() + 1).sum()
            head.bias.copy_(shares.log())
        return True

    @property
    def reads_causally(self) -> bool:
        """Whether the head reads under the square mask, unless told otherwise."""
        if isinstance(self.head_config, Classifier):
            view = self.head_config.view("layers")
            return bool(view is not None and view.options.get("causal"))
        return isinstance(self.head_config, LanguageModel) or self.config.causal

    @property
    def reads_layers(self) -> bool:
        """Whether a classifier reads hidden states, or, without a classifier on it, would by default."""
        if isinstance(self.head_config, Classifier):
            return self.head_config.view("layers") is not None
        return self.config.reads == "layers"

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.base.embedding.weight.device

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model into evaluation mode, without gradients; afterwards it is in the mode that it was in."""
        training = _in_training(self)
        for each in training:
            each.training = False
        try:
            with torch.no_grad():
                yield
        finally:
            for each in training:
                each.training = True

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


def _in_training(module: nn.Module) -> list[nn.Module]:
    """List what is in training mode. Naming all parts, as `modules()` does, would take longer than a short text."""
    below = [each for child in module.children() for each in _in_training(child)]
    return [module, *below] if module.training else below


def _shapes(head: nn.Module | None) -> Shapes:
    return {} if head is None else {f"head.{name}": tuple(each.shape) for name, each in head.named_parameters()}


def _name(head: Head | None) -> str:
    return "no head" if head is None else f"{head.kind} head"


def _said(name: str, shapes: Shapes) -> str:
    count = sum(map(math.prod, shapes.values()))
    tensors = ", ".join(f"{each} {'×'.join(map(str, shape))}" for each, shape in shapes.items())
    return f"{name} ({count:,} parameters{': ' if tensors else ''}{tensors})"
