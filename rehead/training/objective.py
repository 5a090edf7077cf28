"""What a training run optimises: the batch of every step, and its loss. Every pretraining or fine-tuning task is one.

The loop (`rehead.training.loop`) is independent of the task. It asks an objective for a part of a step's batch, a pure
function of the step number, and calls it for the sums of its losses. So

- resuming at step k means asking for step k;
- a step's batch is split into parts (ranks × gradient accumulation), and since losses are *sums* that the loop divides
  by the counts of the whole step, gradients do not depend on the split.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn

from rehead.model.model import Model


@dataclass
class Batch:
    """One part of a step's batch, on the CPU; the loop moves the tensors to the model's device."""

    tensors: dict[str, Tensor]
    "The argument of the objective's forward."
    counts: dict[str, float]
    "How many predictions each loss sums over, by the name of the loss."
    tokens: int
    "Tokens in it, without padding: the unit of budgets and throughput."


class Sums(NamedTuple):
    """Sums over a batch, so that parts add up."""

    losses: dict[str, Tensor]
    "Loss by name, with the names of `Batch.counts`: the loop minimises Σ weight · loss / count."
    metrics: dict[str, Tensor] = {}  # noqa: RUF012 (never changed)
    "Anything else to report, such as the number of correct predictions; computed in validation only."


@dataclass
class Measures:
    """Validation totals: sums and counts over all held-out batches."""

    losses: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)

    def mean(self, name: str) -> float:
        """Give the mean loss of this name; NaN if there was no prediction."""
        return self.losses[name] / self.counts[name] if self.counts.get(name) else float("nan")


class ParameterSettings(NamedTuple):
    """Optimizer settings of a parameter: those with equal settings make up a parameter group."""

    lr_scale: float = 1.0
    "Multiplier of the learning rate."
    start: float = 0.0
    "Fraction of the phase after which it is trained; before that it is frozen (gradual unfreezing)."
    weight_decay: float | None = None
    "Weight decay; None: the default of its kind."


class Objective(nn.Module, ABC):
    """A model in training, with its data. Subclasses add heads of their own as submodules."""

    name: str
    "As `--objective` spells it."
    weights: Mapping[str, float]
    "Weight of each loss in the total, by its name."
    initial_may_be_best: bool = False
    "Whether the weights before the first step can be kept as the best, because they are not random."
    kept: str | tuple[str, ...] = "model."
    "Where the weights are that a run keeps, by the beginning of their names: the model's, unless it stands elsewhere."

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def use(self, model: Model) -> None:
        """Replace the model by another one of the same shape."""
        for module in self.modules():
            if isinstance(module, Objective):
                module.model = model

    def adapt_trained_model(self) -> None:
        """Adapt a model that another objective has trained, where that is needed. Does nothing by default.

        Called once, at the start of every phase but the first, on every process's copy.
        """

    def conclude(self) -> None:
        """Leave the model to the next phase. Does nothing by default.

        Called once, at the end of every phase but the last, on every process's copy.
        """

    @abstractmethod
    def steps_in_epoch(self) -> float:
        """Steps per epoch."""

    @abstractmethod
    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of a step's batch. Deterministic: the same arguments give the same batch on every machine."""

    @abstractmethod
    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Yield one part of the held-out batches: the same every time, and equally many for every part."""

    @abstractmethod
    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Compute the sums of the losses of one batch. An empty batch gives zeros that depend on every parameter."""

    @abstractmethod
    def report(self, measures: Measures) -> dict[str, float]:
        """Turn validation totals into the metrics that are logged: loss, perplexity, accuracy."""

    def selection_loss(self, found: Mapping[str, float]) -> float:
        """Give what model selection minimises, from the reported metrics: the held-out loss, by default."""
        return found.get("loss", float("inf"))

    def row_tables(self) -> list[nn.Parameter]:
        """List the large embedding tables of which a step touches few rows: their gradients may be sparse."""
        return []

    def row_rates(self) -> dict[nn.Parameter, Tensor]:
        """Give learning-rate multipliers per row, of shape (rows,), for some of these tables."""
        return {}

    def parameter_settings(self) -> dict[nn.Parameter, ParameterSettings]:
        """Give the parameters whose optimizer settings differ from the defaults."""
        return {}

    def constant(self) -> list[nn.Parameter]:
        """List the frozen parameters that no phase of the run trains: checkpoints leave them out."""
        return []

    def idle(self) -> list[nn.Parameter]:
        """List the parameters that this objective does not train, such as a head that another one trains."""
        return []
