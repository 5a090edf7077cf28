"""Which optimizer trains which tensor, and the optimizers' state as named tensors.

    weight matrices of the layers   AdamW, or Muon; with weight decay
    sparsely updated tables         row-wise Adagrad on the rows a step touched (`rehead.training.row_optimizer`)
    everything else                 AdamW without weight decay: embeddings, heads, norms, biases

A sharded run uses AdamW for all of them: Muon needs whole matrices, and row-wise Adagrad sparse gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from rehead.errors import DamagedError
from rehead.training.checkpoint import Tensors
from rehead.training.distributed import full_tensor, gather_tensor, shard_like
from rehead.training.objective import Objective, ParameterSettings

# The state that each optimizer keeps per parameter.
KEPT = {"AdamW": {"step", "exp_avg", "exp_avg_sq"}, "Muon": {"momentum"}, "RowAdagrad": {"squares"}}

OptimizerName = Literal["adamw", "muon"]


@dataclass(frozen=True)
class Rates:
    """Learning rates by kind of tensor, before the schedule, and the weight decay."""

    adamw: float = 1e-3
    muon: float = 2e-2
    rows: float = 0.1
    weight_decay: float = 0.1
    "Of the layers' matrices."

    def at(self, lr: float | None, scale: float) -> Rates:
        """Set AdamW's learning rate to `lr`, or multiply it by `scale`; Muon and the rows keep their ratio to it."""
        factor = scale if lr is None else lr / self.adamw
        adamw = self.adamw * scale if lr is None else lr
        return replace(self, adamw=adamw, muon=self.muon * factor, rows=self.rows * factor)


class Optimizers:
    """The optimizers of a phase, used as one."""

    def __init__(self, objective: Objective, rates: Rates, matrices: OptimizerName, *, sharded: bool) -> None:
        self.names = {parameter: name for name, parameter in objective.named_parameters()}
        trained = [each for each in objective.parameters() if each.requires_grad]
        tables = set() if sharded else set(objective.row_tables())
        layers = {
            each for layer in objective.model.base.layer_modules() for each in layer.parameters() if each.dim() == 2
        }
        of_layers = [each for each in trained if each in layers and each not in tables]
        rest = [each for each in trained if each not in layers and each not in tables]
        rows = [each for each in trained if each in tables]
        self.each: list[torch.optim.Optimizer] = []
        self.settings = objective.parameter_settings()
        groups = self._groups(rest, rates.adamw, weight_decay=0.0)
        if matrices == "muon" and not sharded and of_layers:
            from rehead.training.muon import Muon

            self.each.append(Muon(self._groups(of_layers, rates.muon), lr=rates.muon, weight_decay=rates.weight_decay))
        else:
            groups += self._groups(of_layers, rates.adamw, weight_decay=rates.weight_decay)
        if groups:
            self.each.append(torch.optim.AdamW(groups, lr=rates.adamw, betas=(0.9, 0.98), fused=_fused(rest)))
        if rows:
            from rehead.training.row_optimizer import RowAdagrad

            self.each.append(RowAdagrad(self._groups(rows, rates.rows), lr=rates.rows, rates=objective.row_rates()))
        self.rates = [[group["lr"] for group in each.param_groups] for each in self.each]

    def _groups(self, parameters: list[nn.Parameter], lr: float, **defaults: float) -> list[dict[str, Any]]:
        """Make torch's parameter groups: one for each combination of settings."""
        members: dict[ParameterSettings, list[nn.Parameter]] = {}
        for each in parameters:
            members.setdefault(self.settings.get(each, ParameterSettings()), []).append(each)
        groups: list[dict[str, Any]] = []
        for settings, some in members.items():
            decay = {} if settings.weight_decay is None else {"weight_decay": settings.weight_decay}
            groups.append({"params": some, "lr": lr * settings.lr_scale, **defaults, **decay})
        return groups

    def step(self, factor: float, fraction: float = 1.0) -> None:
        """Update the weights, with every learning rate multiplied by `factor`, and clear the gradients.

        Parameters whose training starts after this `fraction` of the phase stay; their gradient averages are updated.
        """
        for optimizer, rates in zip(self.each, self.rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                waits = self.settings.get(group["params"][0], ParameterSettings()).start > fraction
                group["lr"] = 0.0 if waits else rate * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state(self, *, keep: bool = True) -> Tensors:
        """Give all state as tensors named after their parameter. In a sharded run every process must call it."""
        return {
            f"{self.names[parameter]}/{key}": gather_tensor(value, keep=keep)
            for optimizer in self.each
            for group in optimizer.param_groups
            for parameter in group["params"]
            for key, value in optimizer.state.get(parameter, {}).items()
        }

    def load(self, tensors: Tensors) -> None:
        """Restore the state."""
        owner = {
            self.names[parameter]: (optimizer, parameter)
            for optimizer in self.each
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for name, value in tensors.items():
            tensor = value
            place, _, key = name.rpartition("/")
            if place not in owner:
                raise DamagedError(f"the optimizer state holds {name!r}, which is no part of this run.")
            optimizer, parameter = owner[place]
            if key not in KEPT[type(optimizer).__name__]:
                raise DamagedError(
                    f"the optimizer state holds {name!r}, which {type(optimizer).__name__} does not keep."
                )
            if key != "step" or optimizer.defaults.get("fused"):  # torch counts steps on the CPU, unless it is fused
                tensor = tensor.to(parameter.device)
            alike = tensor.shape == parameter.shape
            optimizer.state[parameter][key] = shard_like(tensor, parameter) if alike else tensor


def clip(parameters: Iterable[nn.Parameter], most: float) -> float:
    """Clip the global gradient norm to `most`; give the norm before clipping.

    Sparse gradients are left as they are: Adagrad normalises them anyway.
    """
    gradients = [each.grad for each in parameters if each.grad is not None and not each.grad.is_sparse]
    norms = [full_tensor(torch.linalg.vector_norm(each)) for each in gradients]
    norm = float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0
    if most and norm > most:
        torch._foreach_mul_(gradients, most / norm)
    return norm


def _fused(parameters: list[nn.Parameter]) -> bool | None:
    """Tell whether torch has a fused kernel for these devices: it halves the time of a step on a CPU."""
    kinds = {each.device.type for each in parameters}
    return True if kinds <= {"cpu", "cuda"} and kinds else None
