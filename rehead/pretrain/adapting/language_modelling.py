"""Going on with masked or causal language modelling: the head of the checkpoint is trained along.

Rows are cut as for bases of our own (`rehead.text.packed_rows`): documents one after the other, an end mark between
them. A row of the masked objective has the special tokens around it that the model puts around a text. Its head is
computed at the masked positions only, which saves a fifth of a step of BERT, and most of its memory.

Shapes: B rows, T time, N predictions, H hidden width, V vocabulary.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.config import NO_BASE
from rehead.model.model import Model
from rehead.pretrain.adapting.network_objective import NetworkObjective
from rehead.pretrain.adapting.tokens import BroughtTokenizer
from rehead.pretrain.masking import EVALUATED, Masking
from rehead.pretrain.row_objective import RowBatches, hits, next_token_batch, tensor
from rehead.text.packed_rows import PackedRows
from rehead.text.store_subset import Store
from rehead.training.objective import Batch, Measures, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LanguageModelling(NetworkObjective, RowBatches):
    """An objective on rows of text, with the head that the network came with."""

    def __init__(
        self, network: nn.Module, train: Store, valid: Store, *, time: int, batch: int, seed: int, weight_decay: float
    ) -> None:
        super().__init__(Model(NO_BASE), train, valid, time=time, batch=batch, seed=seed)
        self.attach(network, weight_decay)

    def sums(self, logits: Tensor, targets: Tensor) -> Sums:
        """Sum the losses of some predictions: logits (N, V), targets (N,)."""
        loss = F.cross_entropy(logits.float(), targets, reduction="sum")
        right = None if self.training else (logits.argmax(1) == targets).sum()
        return Sums({self.name: loss}, hits(self.name, right))

    def nothing(self) -> Sums:
        """Give the sums of an empty batch."""
        return Sums({self.name: self.empty()}, hits(self.name, None if self.training else torch.zeros(())))

    def report(self, measures: Measures) -> dict[str, float]:
        """Report loss, perplexity and accuracy of the predicted tokens."""
        return self.report_of(measures, self.name)


class Causal(LanguageModelling):
    """Every token is predicted from those before it."""

    name = "causal"
    weights = MappingProxyType({"causal": 1.0})

    def make(self, rows: PackedRows, at: NDArray[np.int64], seed: int, *, validating: bool = False) -> Batch:
        """Read the rows, one token longer than the network's input."""
        return next_token_batch(rows, at)

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the losses of all positions: ids (B, T + 1)."""
        ids = tensors["ids"]
        if not len(ids):
            return self.nothing()
        logits = self.network(input_ids=ids[:, :-1], attention_mask=torch.ones_like(ids[:, :-1])).logits
        return self.sums(logits.flatten(0, 1), ids[:, 1:].flatten())


class Masked(LanguageModelling):
    """Masked tokens are predicted from both sides."""

    name = "masked"
    weights = MappingProxyType({"masked": 1.0})

    def __init__(
        self,
        network: nn.Module,
        train: Store,
        valid: Store,
        tokenizer: BroughtTokenizer,
        share: float,
        **sizes: Any,  # noqa: ANN401 (those of `LanguageModelling`)
    ) -> None:
        self.tokenizer, self.masking = tokenizer, Masking.of(tokenizer, share)
        super().__init__(network, train, valid, **sizes)

    def row_length(self, time: int) -> int:
        """Leave room for the special tokens around a row."""
        return max(1, time - self.tokenizer.specials)

    def make(self, rows: PackedRows, at: NDArray[np.int64], seed: int, *, validating: bool = False) -> Batch:
        """Read the rows and mask some tokens."""
        ids = rows.at(at).ids[:, :-1]
        masked = self.masking.apply(ids, at, seed, EVALUATED if validating else None)
        left, right = self.tokenizer.prefix, self.tokenizer.suffix
        sides = [np.tile(np.array(side, np.int64), (len(ids), 1)) for side in (left, right)]
        chosen = np.pad(masked.chosen, ((0, 0), (len(left), len(right))))
        targets = ids[masked.chosen]
        tensors = {
            "ids": tensor(np.concatenate([sides[0], masked.ids, sides[1]], axis=1)),
            "places": tensor(chosen.reshape(-1).nonzero()[0]),
            "targets": tensor(targets),
        }
        return Batch(tensors, {"masked": len(targets)}, ids.size)

    def forward(self, tensors: dict[str, Tensor]) -> Sums:
        """Sum the losses of the masked positions: ids (B, T), their places in the flat batch (N,), targets (N,)."""
        ids, places = tensors["ids"], tensors["places"]
        if not len(places):
            return self.nothing()
        network: Any = self.network

        def keep_places(module: nn.Module, arguments: object, output: Any) -> Any:  # noqa: ANN401
            output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[places][None]  # (1, N, H)
            return output

        hook = network.base_model.register_forward_hook(keep_places)
        try:
            logits = network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits  # (1, N, V)
        finally:
            hook.remove()
        return self.sums(logits[0], tensors["targets"])
