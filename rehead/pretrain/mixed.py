"""Several objectives at once (`--objective masked+document`): a step takes a batch of each and adds up the losses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from torch import Tensor, nn

from rehead.training.objective import Batch, Measures, Objective, ParameterSettings, Sums


class Mixed(Objective):
    """The sum of several objectives on one model."""

    def __init__(self, objectives: list[Objective]) -> None:
        super().__init__(objectives[0].model)
        self.each = nn.ModuleList(objectives)
        self.name = "+".join(each.name for each in objectives)
        self.weights = {f"{each.name}.{loss}": weight for each in objectives for loss, weight in each.weights.items()}

    @property
    def objectives(self) -> Iterator[Objective]:
        """The objectives, in their order."""
        for each in self.each:
            assert isinstance(each, Objective)  # noqa: S101 (for the type checker)
            yield each

    def adapt_trained_model(self) -> None:
        """Let each objective adapt the model."""
        for each in self.objectives:
            each.adapt_trained_model()

    def steps_in_epoch(self) -> float:
        """Steps per epoch of the objective with the longest epoch."""
        return max(each.steps_in_epoch() for each in self.objectives)

    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of the batch of each."""
        return self._together([(each, each.read(step, part, parts)) for each in self.objectives])

    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Yield the held-out batches of all objectives together; some may have fewer."""
        objectives = list(self.objectives)
        for batches in zip_longest(*(each.held_out(part, parts) for each in objectives)):
            pairs = zip(objectives, batches, strict=True)
            yield self._together([(each, batch) for each, batch in pairs if batch is not None])

    def _together(self, batches: list[tuple[Objective, Batch]]) -> Batch:
        tensors = {f"{each.name}.{name}": value for each, batch in batches for name, value in batch.tensors.items()}
        counts = {f"{each.name}.{name}": value for each, batch in batches for name, value in batch.counts.items()}
        return Batch(tensors, counts, sum(batch.tokens for _, batch in batches))

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Collect the sums of each, under its name."""
        losses: dict[str, Tensor] = {}
        metrics: dict[str, Tensor] = {}
        for each in self.objectives:
            begin = f"{each.name}."
            own = {name.removeprefix(begin): value for name, value in tensors.items() if name.startswith(begin)}
            if not own:
                continue
            sums = each(own)
            losses |= {begin + name: value for name, value in sums.losses.items()}
            metrics |= {begin + name: value for name, value in sums.metrics.items()}
        return Sums(losses, metrics)

    def report(self, measures: Measures) -> dict[str, float]:
        """Report the metrics of each, under its name; the loss is the sum of their losses."""
        found: dict[str, float] = {"loss": 0.0}
        for each in self.objectives:
            begin = f"{each.name}."
            own = Measures(
                *(
                    {name.removeprefix(begin): value for name, value in sums.items() if name.startswith(begin)}
                    for sums in (measures.losses, measures.counts, measures.metrics)
                )
            )
            said = each.report(own)
            found["loss"] += said["loss"]
            found |= {begin + name: value for name, value in said.items()}
        return found

    def row_tables(self) -> list[nn.Parameter]:
        """List the tables that none of them reads as a whole."""
        tables = [parameter for each in self.objectives for parameter in each.row_tables()]
        return [
            table
            for table in dict.fromkeys(tables)
            if all(table in set(each.row_tables()) or table not in set(each.parameters()) for each in self.objectives)
        ]

    def row_rates(self) -> dict[nn.Parameter, Tensor]:
        """Give the row multipliers of each, for those tables."""
        tables = set(self.row_tables())
        rates = [pair for each in self.objectives for pair in each.row_rates().items()]
        return {table: rate for table, rate in rates if table in tables}

    def parameter_settings(self) -> dict[nn.Parameter, ParameterSettings]:
        """Give the settings of each; where they differ, those of the last."""
        return {parameter: one for each in self.objectives for parameter, one in each.parameter_settings().items()}

    def idle(self) -> list[nn.Parameter]:
        """List the parameters that none of them trains."""
        idle = [set(each.idle()) for each in self.objectives]
        return list(set.intersection(*idle))
