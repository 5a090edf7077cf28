"""BERT's masked language modelling: masked tokens are predicted from both sides.

The head, most of the work at a large vocabulary, is computed at the masked positions only.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from torch import Tensor

from rehead.model.model import Model
from rehead.pretrain.context import BuildContext
from rehead.pretrain.masking import EVALUATED, Masking
from rehead.pretrain.row_objective import RowObjective, hits, tensor
from rehead.text.packed_rows import PackedRows
from rehead.text.store_subset import Store
from rehead.training.objective import Batch, Measures, Sums

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Masked(RowObjective):
    """Masked tokens are predicted at their own positions, with bidirectional attention."""

    name = "masked"
    weights = MappingProxyType({"masked": 1.0})

    def __init__(
        self, model: Model, train: Store, valid: Store, masking: Masking, *, time: int, batch: int, seed: int
    ) -> None:
        super().__init__(model, train, valid, time=time, batch=batch, seed=seed)
        self.masking = masking

    def make(self, rows: PackedRows, at: NDArray[np.int64], seed: int, *, validating: bool = False) -> Batch:
        """Read the rows and mask some tokens."""
        ids = rows.at(at).ids[:, :-1]
        masked = self.masking.apply(ids, at, seed, EVALUATED if validating else None)
        targets = ids[masked.chosen]
        places = masked.chosen.reshape(-1).nonzero()[0]
        tensors = {"ids": tensor(masked.ids), "places": tensor(places), "targets": tensor(targets)}
        return Batch(tensors, {"masked": len(targets)}, ids.size)

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the losses of the masked positions: ids (B, T), their places in the flat batch (N,), targets (N,)."""
        hidden = self.model.base(tensors["ids"], causal=False)  # (B, T, H)
        return self.sums(hidden, tensors)

    def sums(self, hidden: Tensor, tensors: dict[str, Tensor]) -> Sums:
        """Sum the losses of the masked positions, from hidden (B, T, H)."""
        loss, right = self.predict(hidden.flatten(0, 1)[tensors["places"]], tensors["targets"])
        return Sums({"masked": loss}, hits("masked", right))

    def report(self, measures: Measures) -> dict[str, float]:
        """Report loss, perplexity and accuracy of the masked tokens, with 15 % masked."""
        return self.report_of(measures, "masked")


def build(context: BuildContext) -> Masked:
    """Build the objective `masked`, with next-sentence prediction if that is asked for."""
    from rehead.pretrain.next_sentence import NextSentence  # which is a kind of `Masked`

    prepared, options = context.prepared, context.options
    masking = Masking.of(prepared.tokenizer, options.mask_probability)
    model, train, valid = context.model, prepared.train, prepared.valid
    if options.next_sentence:
        return NextSentence(model, train, valid, masking, prepared.tokenizer, **context.sizes)
    return Masked(model, train, valid, masking, **context.sizes)
