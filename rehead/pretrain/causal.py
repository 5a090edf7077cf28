"""Causal language modelling: next-token prediction at every position, under the causal (square) mask."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from torch import Tensor

from rehead.pretrain.context import BuildContext
from rehead.pretrain.row_objective import RowObjective, hits, next_token_batch
from rehead.text.packed_rows import PackedRows
from rehead.training.objective import Batch, Measures, Sums

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Causal(RowObjective):
    """Every token is predicted from those before it."""

    name = "causal"
    weights = MappingProxyType({"causal": 1.0})

    def make(self, rows: PackedRows, at: NDArray[np.int64], seed: int, *, validating: bool = False) -> Batch:
        """Read the rows, one token longer than the model's input: the last one is only predicted."""
        return next_token_batch(rows, at)

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the losses of all positions: ids (B, T + 1)."""
        ids = tensors["ids"]
        hidden = self.model.base(ids[:, :-1], causal=True)
        loss, right = self.predict(hidden.flatten(0, 1), ids[:, 1:].flatten())
        return Sums({"causal": loss}, hits("causal", right))

    def report(self, measures: Measures) -> dict[str, float]:
        """Report loss, perplexity and accuracy of the next token."""
        return self.report_of(measures, "causal")


def build(context: BuildContext) -> Causal:
    """Build the objective `causal`."""
    return Causal(context.model, context.prepared.train, context.prepared.valid, **context.sizes)
