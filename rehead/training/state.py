"""The training state that checkpoints save: numbers (`State`), and tensors by name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch

from rehead.errors import DamagedError
from rehead.training.checkpoint import Checkpoint, Tensors, put_back
from rehead.training.distributed import shard_like
from rehead.training.objective import Objective


@dataclass
class State:
    """Everything the training loop must remember, beside the tensors."""

    step: int = 0
    "Steps done, over all phases."
    tokens: int = 0
    "Tokens read, over all phases and processes."
    seconds: float = 0.0
    "Training time, without the pauses between an interruption and resuming."
    phase: int = 0
    phase_step: int = 0
    phase_tokens: int = 0
    phase_seconds: float = 0.0
    validated: int = -1
    "Number of the phase's last validation; -1: none yet, 0: the one before the first step."
    best: float | None = None
    "Lowest selection loss of this phase's validations, at step `best_step`."
    best_step: int = 0
    best_validated: int = 0
    "Number of that validation."
    best_measured: dict[str, float] = field(default_factory=dict)
    "Metrics of that validation and, below, of the last one; without those that are not finite."
    measured: dict[str, float] = field(default_factory=dict)
    lines: int = 0
    "Lines written to metrics.jsonl."
    losses: dict[str, float] = field(default_factory=dict)
    "Sums of the losses since the last line of metrics."
    counts: dict[str, float] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Describe a finished run for its details."""
        return {
            "steps": self.step,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
            "best_step": self.best_step,
            "held_out": self.best_measured or self.measured,
        }


def state_of(found: Checkpoint) -> State:
    """Read the state of a checkpoint."""
    names = {each.name for each in dataclasses.fields(State)}
    if not isinstance(found.state, dict) or found.state.keys() != names:
        raise DamagedError("the checkpoint's state.json is not of this version. Start again without --resume.")
    return State(**found.state)


def tensors_of(objective: Objective) -> Tensors:
    """Name an objective's tensors, each once (mixed objectives share a model), without those the run never changes."""
    named: Tensors = {}
    seen = {id(each) for each in objective.constant()}
    for name, tensor in objective.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            named[name] = tensor
            seen.add(id(tensor))
    return named


def load_tensors(objective: Objective, tensors: Tensors, begin: str | tuple[str, ...] = "") -> None:
    """Load tensors into an objective, sharded as its own are: all of them, or those whose names start with `begin`."""
    own = {name: each for name, each in tensors_of(objective).items() if name.startswith(begin)}
    put_back(tensors, own, "model")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(shard_like(tensors[name].to(tensor.device), tensor))
