"""Which optimizer moves which tensor, and their state as named tensors.

    matrices of the layers   AdamW, or Muon; with weight decay
    tables of rows           row-wise Adagrad on the rows a step touched (`rehead.training.row_optimizer`)
    everything else          AdamW: embeddings, heads, norms, biases; no decay

A sharded run has AdamW for all of them: the others need whole matrices, or sparse gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from rehead.errors import DamagedError
from rehead.training.checkpoint import Tensors
from rehead.training.distributed import gathered, spread_like, whole
from rehead.training.objective import Objective, Pace

# What each keeps for a parameter.
KEPT = {"AdamW": {"step", "exp_avg", "exp_avg_sq"}, "Muon": {"momentum"}, "RowAdagrad": {"squares"}}

OptimizerName = Literal["adamw", "muon"]


@dataclass(frozen=True)
class Rates:
    """Learning rates by optimizer, before the schedule."""

    adamw: float = 1e-3
    muon: float = 2e-2
    rows: float = 0.1
    decay: float = 0.1
    "Weight decay of the layers' matrices."

    def at(self, lr: float | None, scale: float) -> Rates:
        """Set AdamW's learning rate to `lr`, or multiply it by `scale`; Muon and the rows keep their ratio to it."""
        factor = scale if lr is None else lr / self.adamw
        adamw = self.adamw * scale if lr is None else lr
        return replace(self, adamw=adamw, muon=self.muon * factor, rows=self.rows * factor)


class Optimizers:
    """All optimizers of a phase, as one."""

    def __init__(self, objective: Objective, rates: Rates, matrices: OptimizerName, *, sharded: bool) -> None:
        self.names = {parameter: name for name, parameter in objective.named_parameters()}
        trained = [each for each in objective.parameters() if each.requires_grad]
        tables = set() if sharded else set(objective.row_tables())
        layers = {each for each in objective.model.base.layers.parameters() if each.dim() == 2}
        of_layers = [each for each in trained if each in layers and each not in tables]
        others = [each for each in trained if each not in layers and each not in tables]
        rows = [each for each in trained if each in tables]
        self.each: list[torch.optim.Optimizer] = []
        self.paces = objective.paces()
        groups = self._groups(others, rates.adamw, weight_decay=0.0)
        if matrices == "muon" and not sharded and of_layers:
            from rehead.training.muon import Muon

            self.each.append(Muon(self._groups(of_layers, rates.muon), lr=rates.muon, weight_decay=rates.decay))
        else:
            groups += self._groups(of_layers, rates.adamw, weight_decay=rates.decay)
        if groups:
            self.each.append(torch.optim.AdamW(groups, lr=rates.adamw, betas=(0.9, 0.98), fused=_fused(others)))
        if rows:
            from rehead.training.row_optimizer import RowAdagrad

            self.each.append(RowAdagrad(self._groups(rows, rates.rows), lr=rates.rows, rates=objective.row_rates()))
        self.rates = [[group["lr"] for group in each.param_groups] for each in self.each]

    def _groups(self, parameters: list[nn.Parameter], rate: float, **settings: float) -> list[dict[str, Any]]:
        """Put parameters that move at the same pace together, as torch's optimizers take them."""
        by_pace: dict[Pace, list[nn.Parameter]] = {}
        for each in parameters:
            by_pace.setdefault(self.paces.get(each, Pace()), []).append(each)
        decays = {pace: {} if pace.decay is None else {"weight_decay": pace.decay} for pace in by_pace}
        return [{"params": some, "lr": rate * pace.scale, **settings, **decays[pace]} for pace, some in by_pace.items()]

    def step(self, factor: float, fraction: float = 1.0) -> None:
        """Move the weights, with `factor` of each learning rate, and forget the gradients.

        Those whose turn comes after this `fraction` of the phase stay; their averages of gradients go on.
        """
        for optimizer, rates in zip(self.each, self.rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                waits = self.paces.get(group["params"][0], Pace()).begin > fraction
                group["lr"] = 0.0 if waits else rate * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state(self, *, keep: bool = True) -> Tensors:
        """Give all state as tensors named after their parameter; every process of a sharded run must ask, one keeps."""
        return {
            f"{self.names[parameter]}/{key}": gathered(value, keep=keep)
            for optimizer in self.each
            for group in optimizer.param_groups
            for parameter in group["params"]
            for key, value in optimizer.state.get(parameter, {}).items()
        }

    def load(self, tensors: Tensors) -> None:
        """Put the state back."""
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
            optimizer.state[parameter][key] = spread_like(tensor, parameter) if alike else tensor


def clip(parameters: Iterable[nn.Parameter], most: float) -> float:
    """Scale gradients down so that their norm, taken together, is at most `most`; give the norm they had.

    Sparse ones are left alone: Adagrad divides by their size anyway.
    """
    gradients = [each.grad for each in parameters if each.grad is not None and not each.grad.is_sparse]
    norms = [whole(torch.linalg.vector_norm(each)) for each in gradients]
    norm = float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0
    if most and norm > most:
        torch._foreach_mul_(gradients, most / norm)
    return norm


def _fused(parameters: list[nn.Parameter]) -> bool | None:
    """Whether torch has a fused kernel for where these are: it halves the time of a step on a CPU."""
    kinds = {each.device.type for each in parameters}
    return True if kinds <= {"cpu", "cuda"} and kinds else None
