"""Parameters at their own pace: slower, later, or with another weight decay."""

from __future__ import annotations

from types import MappingProxyType

import pytest
import torch
from torch import Tensor, nn

from rehead.model.config import preset
from rehead.model.model import Model
from rehead.training.objective import ParameterSettings, Sums
from rehead.training.optimizers import Optimizers, Rates
from tests.training.still import Still


class Sum(Still):
    """Four parameters beside a model, all with the gradient 1."""

    name = "sum"
    weights = MappingProxyType({"sum": 1.0})

    def __init__(self) -> None:
        super().__init__(Model(preset("bag", ntokens=10, nhid=4, nbuckets=8)))
        for name in ("plain", "slow", "late", "pulled"):
            self.register_parameter(name, nn.Parameter(torch.ones(3)))

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        return Sums({"sum": self.plain.sum() + self.slow.sum() + self.late.sum() + self.pulled.sum()})

    def parameter_settings(self) -> dict[nn.Parameter, ParameterSettings]:
        return {
            self.slow: ParameterSettings(0.1),
            self.late: ParameterSettings(start=0.5),
            self.pulled: ParameterSettings(weight_decay=10.0),
        }

    def idle(self) -> list[nn.Parameter]:
        return list(self.model.parameters())


def test_each_moves_at_its_pace() -> None:
    made = Sum()
    for each in made.idle():
        each.requires_grad_(False)
    optimizers = Optimizers(made, Rates(adamw=0.01), "adamw", sharded=False)

    def step(fraction: float) -> dict[str, float]:
        before = {name: float(each[0].detach()) for name, each in made.named_parameters() if each.requires_grad}
        made({}).losses["sum"].backward()
        optimizers.step(1.0, fraction)
        return {name: before[name] - float(made.get_parameter(name)[0].detach()) for name in before}

    # AdamW moves by its rate under a steady gradient; decay pulls by rate · decay · value.
    assert step(0.0) == pytest.approx({"plain": 0.01, "slow": 0.001, "late": 0, "pulled": 0.11}, rel=1e-3)
    assert step(0.49)["late"] == 0
    assert step(0.5) == pytest.approx({"plain": 0.01, "slow": 0.001, "late": 0.01, "pulled": 0.088}, rel=2e-2)


def test_the_state_is_named_after_parameters_whatever_their_pace() -> None:
    one, other = Sum(), Sum()
    for made in (one, other):
        for each in made.idle():
            each.requires_grad_(False)
    first = Optimizers(one, Rates(), "adamw", sharded=False)
    one({}).losses["sum"].backward()
    first.step(1.0)
    second = Optimizers(other, Rates(), "adamw", sharded=False)
    second.load(first.state())
    again = second.state()
    assert first.state().keys() == again.keys()
    assert all(torch.equal(each, again[name]) for name, each in first.state().items())
    assert {name.rpartition("/")[0] for name in again} == {"plain", "slow", "late", "pulled"}
