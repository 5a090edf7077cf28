"""A document as a bag: the sum of its rows, of the table of tokens and of that of n-grams, read past the layers.

Nothing is padded, no hidden state of a token is made, and the gradient holds the touched rows alone
(`rehead.training.row_sums`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from rehead.model.base import Base
from rehead.model.grams import Grams
from rehead.training.row_sums import Readings, readings, row_sums

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def bag_readings(grams: Grams, size: int, ntokens: int) -> dict[str, NDArray[np.int64]]:
    """Prepare what `row_sums` takes, for the table of the tokens and for that of the n-grams."""
    tokens, longer = grams.some(grams.size == 1), grams.some(grams.size > 1)
    parts = {"tokens": (tokens.rows, tokens.document), "ngrams": (longer.rows - ntokens, longer.document)}
    return {
        f"{table}.{name}": each
        for table, (rows, documents) in parts.items()
        for name, each in readings(rows, documents, size).items()
    }


def bag_sums(base: Base, tensors: dict[str, Tensor]) -> Tensor:
    """Add up the rows of each document, of what `bag_readings` prepared: (documents, nhid)."""
    total = row_sums(base.embedding, _readings(tensors, "tokens")) * base.scale
    return total if base.ngrams is None else total + row_sums(base.ngrams, _readings(tensors, "ngrams"))


def _readings(tensors: dict[str, Tensor], table: str) -> Readings:
    return Readings(*(tensors[f"{table}.{name}"] for name in Readings._fields))
