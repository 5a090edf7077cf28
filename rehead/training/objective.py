"""What a training run optimises: the batch of every step, and its loss. A new way of training is one of these.

The loop (`rehead.training.loop`) knows nothing of tasks. It asks an objective for its share of a step's batch, which is
a pure function of the step's number, and calls it for the sums of its losses. So

- resuming at step k is asking for step k;
- a step's batch is cut into parts (ranks × accumulation), and since losses are *sums* that the loop divides by the
  counts of the whole step, gradients do not depend on how it was cut.
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
    """One part of a step's batch, on the CPU; the loop brings the tensors to where the model is."""

    tensors: dict[str, Tensor]
    "What the objective's forward takes."
    counts: dict[str, float]
    "How many predictions each loss sums over, by the name of the loss. Known without running the model."
    tokens: int
    "Tokens read: what budgets and rates count. Padding is not counted."


class Sums(NamedTuple):
    """What an objective says of a batch. Everything is a sum over the batch, so that parts add up."""

    losses: dict[str, Tensor]
    "Loss by name, with the names of `Batch.counts`: what is optimised is Σ weight · loss / count."
    others: dict[str, Tensor] = {}  # noqa: RUF012 (never changed)
    "Anything else to report, such as the number of right guesses; not optimised. Filled when not training."


@dataclass
class Measures:
    """What validation found: sums and counts over all held-out batches."""

    losses: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)

    def mean(self, name: str) -> float:
        """Give the mean loss of this name; NaN if nothing was counted."""
        return self.losses[name] / self.counts[name] if self.counts.get(name) else float("nan")


class Pace(NamedTuple):
    """How a parameter moves, compared with others of its kind."""

    scale: float = 1.0
    "Factor of its learning rate."
    begin: float = 0.0
    "The fraction of the phase from which on it moves at all."
    decay: float | None = None
    "Its weight decay; None: what is usual for its kind."


class Objective(nn.Module, ABC):
    """A model in training, with the data it sees. Subclasses add heads of their own as submodules."""

    name: str
    "What `--objective` calls it."
    weights: Mapping[str, float]
    "How much each loss counts, by its name."
    begins_able: bool = False
    "Whether what it is before the first step may be the best it will be."

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def use(self, model: Model) -> None:
        """Train this model from now on, instead of the one of the same shape that it has."""
        for module in self.modules():
            if isinstance(module, Objective):
                module.model = model

    def take_over(self) -> None:
        """Make the model, which another objective has trained, fit to be trained by this one. By default it is.

        Called once, when the phase begins; every process does the same to its own copy.
        """

    @abstractmethod
    def steps_in_epoch(self) -> float:
        """How many steps show every token once."""

    @abstractmethod
    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of the batch of a step. Pure: the same arguments give the same batch, on every machine."""

    @abstractmethod
    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Give this part of the held-out batches: the same every time, and as many of them for every part."""

    @abstractmethod
    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Compute the sums of the losses of one batch. An empty batch gives zeros that still reach every parameter."""

    @abstractmethod
    def report(self, measures: Measures) -> dict[str, float]:
        """Turn validation's sums into what people read: loss, perplexity, accuracy."""

    def badness(self, found: Mapping[str, float]) -> float:
        """Say what "best" goes by, of what was reported: the lowest is best. The loss, by default."""
        return found.get("loss", float("inf"))

    def row_tables(self) -> list[nn.Parameter]:
        """Name the big tables of which a step touches few rows: their gradients may be sparse. None, by default."""
        return []

    def row_rates(self) -> dict[nn.Parameter, Tensor]:
        """Say, for some of these tables, how fast each row moves: factors of shape (rows,). All alike, by default."""
        return {}

    def paces(self) -> dict[nn.Parameter, Pace]:
        """Say which parameters move slower than others, or begin later. None, by default."""
        return {}

    def constant(self) -> list[nn.Parameter]:
        """Name the idle parameters that no phase of the run changes: checkpoints need not hold them."""
        return []

    def idle(self) -> list[nn.Parameter]:
        """Name the parameters that this objective leaves alone, such as a head that another one trains."""
        return []
