"""How the documents that a base was pretrained on lie in its space: where their middle is, and how far they spread.

A few labels cannot tell which of 256 directions matter. The unlabelled text can: the directions in which its documents
differ most are those that a label is likeliest to follow. So pretraining ends by reading a sample of its documents, and
the base keeps their mean, their covariance, and in how many of them each token and n-gram is found. A classifier that
scales directions by their spread gains two points with 100 labels and four with 20 (docs/few-labels.md).

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

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        wide = config.nhid
        self.register_buffer("centre", torch.zeros(wide))
        self.register_buffer("covariance", torch.zeros(wide, wide))
        self.register_buffer("frequency", torch.zeros(rows_in(config)))
        self.register_buffer("documents", torch.zeros(1))

    @property
    def known(self) -> bool:
        """Whether documents have been read."""
        return float(self.documents) > 1

    def learn(self, vectors: NDArray[Any], frequency: NDArray[np.int64]) -> None:
        """Take up the vectors (N, H) of a sample of documents, and how many of them hold each row (R,)."""
        given = torch.from_numpy(vectors).double()
        centre = given.mean(0)
        apart = given - centre
        self.centre.copy_(centre)
        self.covariance.copy_(apart.T @ apart / max(1, len(given) - 1))
        self.frequency.copy_(torch.from_numpy(frequency))
        self.documents.fill_(len(given))


def rows_in(config: ModelConfig) -> int:
    """How many rows tokens and n-grams have together."""
    return config.ntokens + (config.nbuckets if config.ngrams > 1 else 0)
