"""What the objectives on a network of transformers share: it stands beside an empty model of rehead's own.

The training loop knows two things of an objective's tensors: which ones the run keeps (`kept`), and which ones are not
trained (`idle`). A network may have parts that a loss never reaches, such as BERT's pooler: a trial step finds them,
since many processes can only average gradients that are there. The same step tells how long a run will take.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from rehead.training.budget import Budget
from rehead.training.objective import Batch, Objective, ParameterSettings, Sums

WARM = 2.0  # seconds: a faster trial step is taken twice, since the first one also allocates


class NetworkObjective(Objective):
    """An objective on a network of transformers."""

    kept = "network."
    network: nn.Module
    weight_decay: float
    unused: frozenset[str] = frozenset()
    "Parameters of the network that the loss does not depend on, by name."

    def attach(self, network: nn.Module, weight_decay: float) -> None:
        """Train this network; its matrices decay, embeddings and all else do not."""
        self.network, self.weight_decay = network.requires_grad_(True), weight_decay

    def idle(self) -> list[nn.Parameter]:
        """List the parameters of the empty model, and those of the network that are not used."""
        return [
            *self.model.parameters(),
            *(each for name, each in self.network.named_parameters() if name in self.unused),
        ]

    def constant(self) -> list[nn.Parameter]:
        """List the parameters of the empty model."""
        return list(self.model.parameters())

    def parameter_settings(self) -> dict[nn.Parameter, ParameterSettings]:
        """Decay the matrices of the layers."""
        tables = {id(each.weight) for each in self.network.modules() if isinstance(each, nn.Embedding)}
        matrices = [each for each in self.network.parameters() if each.dim() > 1 and id(each) not in tables]
        return dict.fromkeys(matrices, ParameterSettings(weight_decay=self.weight_decay))

    def empty(self) -> Tensor:
        """Give the zero of an empty batch, which depends on every parameter that is trained."""
        used = (each for each in self.network.parameters() if each.requires_grad)
        return torch.stack([each.sum() * 0.0 for each in used]).sum()


def try_step(objective: NetworkObjective, mine: int, parts: int, device: torch.device) -> float:
    """Compute a part of a step without updating weights; note what is not used, and give the seconds of a step."""
    took = time_step(objective, mine, parts, device)
    named = dict(objective.network.named_parameters())
    objective.unused = frozenset(name for name, each in named.items() if each.grad is None)
    objective.zero_grad(set_to_none=True)
    return took


def time_step(objective: Objective, mine: int, parts: int, device: torch.device) -> float:
    """Compute a part of a step without updating weights, and give the seconds of a step; gradients are left.

    All processes take the same part, the largest, so that they agree; each has `mine` of all `parts` in a step.
    """
    objective.to(device).train()
    batch = max((objective.read(0, part, parts) for part in range(parts)), key=lambda each: each.tokens)
    tensors = {name: each.to(device) for name, each in batch.tensors.items()}
    took = WARM
    for _ in range(2):
        began = time.perf_counter()
        sums: Sums = objective(tensors)
        torch.stack(list(sums.losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        took = time.perf_counter() - began
        if took >= WARM:
            break
    return took * mine


def expected_seconds(objective: Objective, budget: Budget, step: float, validations: int) -> float:
    """Estimate the length of a run from the seconds of a step: a validation batch takes a third of one."""
    if budget.kind == "minutes":
        return 60 * budget.amount
    first: Batch = objective.read(0)
    steps = budget.amount / (1 if budget.kind == "steps" else max(1, first.tokens))
    batches = sum(1 for _ in objective.held_out())
    return step * (steps + (validations + 1) * batches / 3 if validations else steps)
