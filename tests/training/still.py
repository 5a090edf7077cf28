"""An objective that reads nothing, for tests of what is around it."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from torch import Tensor

from rehead.training.objective import Batch, Measures, Objective, Sums


class Still(Objective):
    """It has a model, and no data."""

    name = "still"
    weights = MappingProxyType({"still": 1.0})

    def steps_in_epoch(self) -> float:
        return 1.0

    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        return Batch({}, {}, 0)

    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        return iter(())

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        return Sums({})

    def report(self, measures: Measures) -> dict[str, float]:
        return {}
