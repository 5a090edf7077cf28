"""What the language-model objectives share: batches of rows of text, for training and validation.

A row is `time` tokens of the corpus in one piece; documents in it are separated by the end mark, and attention crosses
that mark, as in GPT-2 and in the classic lab: keeping it inside documents would take a mask for every row.

Shapes: B rows, T time, N predictions, H hidden width.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from rehead.errors import ConfigError
from rehead.model.heads import LanguageModelHead
from rehead.model.model import Model
from rehead.text.order import shard_slice, step_indices
from rehead.text.packed_rows import PackedRows
from rehead.text.random_streams import Stream
from rehead.text.store_subset import Store
from rehead.training.cross_entropy import linear_cross_entropy
from rehead.training.objective import Batch, Measures, Objective, ParameterSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RowBatches(Objective):
    """An objective on rows of tokens. A subclass makes a batch of them (`make`), and the loss."""

    def __init__(self, model: Model, train: Store, valid: Store, *, time: int, batch: int, seed: int) -> None:
        """Train on rows of `time` tokens, about `batch` tokens in a step."""
        super().__init__(model)
        self.seed = seed
        self.rows = PackedRows(train, self.row_length(time), seed)
        self.per_step = max(1, batch // time)
        shortest = min(self.row_length(time), int(valid.offsets[-1]))
        self.valid_rows = PackedRows(valid, shortest, seed)

    def row_length(self, time: int) -> int:
        """Give how many tokens of the corpus a row of `time` tokens takes."""
        return time

    def steps_in_epoch(self) -> float:
        """Steps per epoch."""
        return len(self.rows) / self.per_step

    def read(self, step: int, part: int = 0, parts: int = 1) -> Batch:
        """Read one part of a step's rows."""
        return self.make(self.rows, step_indices(step, self.per_step, part, parts), self.seed)

    def held_out(self, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """Yield the held-out rows, each once, in batches of the size of a training step."""
        for begin in range(0, len(self.valid_rows), self.per_step):
            at = np.arange(begin, min(begin + self.per_step, len(self.valid_rows)))
            yield self.make(
                self.valid_rows, at[shard_slice(len(at), part, parts)], Stream.VALIDATION_ROWS, validating=True
            )

    @abstractmethod
    def make(self, rows: PackedRows, at: NDArray[np.int64], seed: int, *, validating: bool = False) -> Batch:
        """Make a batch of the rows with these numbers; `seed` is for random choices."""

    def report_of(self, measures: Measures, name: str) -> dict[str, float]:
        """Give loss, perplexity and accuracy of one kind of prediction; NaN if there was none."""
        loss = measures.mean(name)
        right = measures.metrics[f"{name}_hits"] / measures.counts[name] if measures.counts[name] else math.nan
        return {"loss": loss, "perplexity": math.exp(min(loss, 700)), "accuracy": right}


class RowObjective(RowBatches):
    """An objective on rows of tokens, of a model of rehead's own with a language-model head."""

    embedding_rate: float = 1.0
    "Multiplier of the learning rate of the token embeddings: low where an earlier stage has trained them."

    def __init__(self, model: Model, train: Store, valid: Store, *, time: int, batch: int, seed: int) -> None:
        if not isinstance(model.head, LanguageModelHead):
            raise ConfigError(f"the objective {self.name!r} needs a model with a language-model head.")
        super().__init__(model, train, valid, time=time, batch=batch, seed=seed)

    def adapt_trained_model(self) -> None:
        """Scale down the logits of an untrained tied head to the size they have on a fresh base."""
        self.model.even_out_tied_head()

    def predict(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        """Sum the losses of some predictions: hidden (N, H), targets (N,); in validation, count correct ones too."""
        return linear_cross_entropy(*self.model.token_logit_parts(hidden), targets)

    def parameter_settings(self) -> dict[nn.Parameter, ParameterSettings]:
        """Have embeddings that were trained before move slowly."""
        (_, tokens), *_ = self.model.base.row_tables()
        return {each: ParameterSettings(self.embedding_rate) for each in tokens.parameters()}

    def row_tables(self) -> list[nn.Parameter]:
        """List the table of n-gram vectors, where there is one."""
        return [each for first, table in self.model.base.row_tables() if first for each in table.parameters()]


def hits(name: str, count: Tensor | None) -> dict[str, Tensor]:
    """Name the count of correct predictions, where there is one."""
    return {} if count is None else {f"{name}_hits": count}


def next_token_batch(rows: PackedRows, at: NDArray[np.int64]) -> Batch:
    """Read rows for next-token prediction, one token longer than the input: the last one is only predicted."""
    ids = rows.at(at).ids
    count = len(ids) * (ids.shape[1] - 1)
    return Batch({"ids": tensor(ids)}, {"causal": count}, count)


def tensor(array: NDArray[np.int64]) -> Tensor:
    """Wrap an array as a tensor, without a copy where possible."""
    return torch.from_numpy(np.ascontiguousarray(array))
