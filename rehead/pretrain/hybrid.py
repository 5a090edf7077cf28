"""Masked and causal rows in one run, with one head: the base can generate, and reads bidirectionally.

For one head to serve both, a masked token is predicted by the hidden state one position before it, as the next token
is. Only the attention mask differs: none, or causal.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from rehead.errors import UserError
from rehead.model.model import Model
from rehead.pretrain.context import BuildContext
from rehead.pretrain.masking import EVALUATED, Masking
from rehead.pretrain.row_objective import RowObjective, hits, tensor
from rehead.text.order import random_bits
from rehead.text.packed_rows import PackedRows
from rehead.text.random_streams import Stream
from rehead.text.store_subset import Store
from rehead.training.objective import Batch, Measures, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Hybrid(RowObjective):
    """Some rows are read under the causal (square) mask, the others bidirectionally with tokens masked."""

    name = "hybrid"
    weights = MappingProxyType({"causal": 0.5, "masked": 0.5})

    def __init__(
        self,
        model: Model,
        train: Store,
        valid: Store,
        masking: Masking,
        *,
        time: int,
        batch: int,
        seed: int,
        causal_rows: float = 0.5,
    ) -> None:
        if not 0 < causal_rows < 1:
            raise UserError(f"--causal-rows {causal_rows:g}: must lie between 0 and 1.")
        super().__init__(model, train, valid, time=time, batch=batch, seed=seed)
        self.masking, self.causal_rows = masking, causal_rows

    def make(self, rows: PackedRows, at: NDArray[np.int64], seed: int, *, validating: bool = False) -> Batch:
        """Read the rows and assign each to causal or masked; in validation all of them are both."""
        ids = rows.at(at).ids  # (B, T + 1)
        if validating:
            forward = backward = np.ones(len(at), bool)
        else:
            draw = random_bits(seed, Stream.ROW_DIRECTION, at) >> np.uint64(11)
            forward = draw.astype(np.float64) * 2.0**-53 < self.causal_rows
            backward = ~forward
        both = ids[backward, :-1]
        masked = self.masking.apply(both, at[backward], seed, EVALUATED if validating else None)
        masked.chosen[:, 0] = False  # no hidden state comes before it
        read = np.where(masked.chosen, masked.ids, both)
        # Hidden state i predicts token i + 1, in the flat batch of the masked rows.
        places = masked.chosen.reshape(-1).nonzero()[0] - 1
        tensors = {
            "causal": tensor(ids[forward]),
            "ids": tensor(read),
            "places": tensor(places),
            "targets": tensor(both[masked.chosen]),
        }
        counts = {"causal": float(forward.sum()) * (ids.shape[1] - 1), "masked": float(len(places))}
        return Batch(tensors, counts, (int(forward.sum()) + len(both)) * (ids.shape[1] - 1))

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the losses of both kinds of rows: causal (B₁, T + 1), ids (B₂, T), places and targets (N,)."""
        ids = tensors["causal"]
        ahead = self.model.base(ids[:, :-1], causal=True).flatten(0, 1)
        causal, causal_hits = self.predict(ahead, ids[:, 1:].flatten())
        both = self.model.base(tensors["ids"], causal=False).flatten(0, 1)
        masked, masked_hits = self.predict(both[tensors["places"]], tensors["targets"])
        losses = {"causal": causal, "masked": masked}
        return Sums(losses, hits("causal", causal_hits) | hits("masked", masked_hits))

    def report(self, measures: Measures) -> dict[str, float]:
        """Report both tasks; the loss is their mean, which is optimised."""
        causal, masked = (self.report_of(measures, name) for name in ("causal", "masked"))
        return {
            "loss": 0.5 * (causal["loss"] + masked["loss"]),
            "perplexity": causal["perplexity"],
            "accuracy": masked["accuracy"],
            "causal_loss": causal["loss"],
            "masked_loss": masked["loss"],
        }


def build(context: BuildContext) -> Hybrid:
    """Build the objective `hybrid`."""
    prepared, options = context.prepared, context.options
    masking = Masking.of(prepared.tokenizer, options.mask_probability)
    return Hybrid(
        context.model, prepared.train, prepared.valid, masking, causal_rows=options.causal_rows, **context.sizes
    )
