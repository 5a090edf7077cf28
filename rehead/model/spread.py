"""How the documents that a base was pretrained on lie in its space: where their middle is, and how far they spread.

A few labels cannot tell which of 256 directions matter. The unlabelled text can: the directions in which its documents
differ most are those that a label is likeliest to follow. So pretraining ends by reading a sample of its documents, and
the base keeps their mean, their covariance, and in how many of them each token and n-gram is found. A classifier that
scales directions by their spread gains two points with 100 labels and four with 20 (docs/few-labels.md).

Of a base whose layers read, it keeps also how documents lie past the layers: a classifier may do without them.

Shapes: H hidden width, R rows: the tokens, then the n-grams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rehead.model.config import ModelConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Spread(nn.Module):
    """Mean, covariance and frequencies; no parameters, nothing that is trained."""

    centre: Tensor
    "(H,)"
    covariance: Tensor
    "(H, H)"
    frequency: Tensor
    "Documents in which a row is found: (R,)."
    documents: Tensor
    "How many were read; 0: nothing is known. (1,)"
    past_centre: Tensor
    "The same past the layers, where there are some and positions are not added below them: (H,), (H, H)."
    past_covariance: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        wide = config.nhid
        self.register_buffer("centre", torch.zeros(wide))
        self.register_buffer("covariance", torch.zeros(wide, wide))
        self.register_buffer("frequency", torch.zeros(rows_in(config)))
        self.register_buffer("documents", torch.zeros(1))
        if config.nlayers and config.positions in ("rotary", "none"):
            self.register_buffer("past_centre", torch.zeros(wide))
            self.register_buffer("past_covariance", torch.zeros(wide, wide))

    @property
    def known(self) -> bool:
        """Whether documents have been read."""
        return float(self.documents) > 1

    def learn(self, vectors: NDArray[Any], frequency: NDArray[np.int64], documents: int) -> None:
        """Take up the vectors (N, H) of a sample of documents, and how many of so many documents hold each row (R,)."""
        _describe(vectors, self.centre, self.covariance)
        self.frequency.copy_(torch.from_numpy(frequency))
        self.documents.fill_(documents)

    def learn_past(self, vectors: NDArray[Any]) -> None:
        """Take up the vectors (N, H) of documents that were read past the layers."""
        _describe(vectors, self.past_centre, self.past_covariance)


def _describe(vectors: NDArray[Any], centre: Tensor, covariance: Tensor) -> None:
    """Put the mean of vectors (N, H), and their covariance, where they belong."""
    given = torch.from_numpy(vectors).double()
    middle = given.mean(0)
    apart = given - middle
    centre.copy_(middle)
    covariance.copy_(apart.T @ apart / max(1, len(given) - 1))


def rows_in(config: ModelConfig) -> int:
    """How many rows tokens and n-grams have together."""
    return config.ntokens + (config.nbuckets if config.ngrams > 1 else 0)
