"""What a base keeps of the documents it was pretrained on: the mean and covariance of their vectors, and frequencies.

A few labels cannot tell which of 256 directions matter. The unlabelled text can: the directions in which its documents
differ most are those that a label is likeliest to follow. So pretraining ends by reading a sample of its documents, and
the base keeps the mean and covariance of their vectors, and in how many of them each token and n-gram occurs. A
classifier that scales directions by their spread gains two points with 100 labels and four with 20
(docs/experiments/few-labels.md).

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


class ViewStatistics(nn.Module):
    """Mean and covariance of the documents' vectors as one view gives them; zeros where none were read."""

    mean: Tensor
    "(H,)"
    covariance: Tensor
    "(H, H)"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("covariance", torch.zeros(width, width))


class Statistics(nn.Module):
    """Buffers only: nothing here is trained."""

    frequency: Tensor
    "Documents in which a row occurs: (R,)."
    documents: Tensor
    "How many were read; 0: nothing is known. (1,)"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.register_buffer("frequency", torch.zeros(config.ntokens + config.nbuckets))
        self.register_buffer("documents", torch.zeros(1))
        self.views = nn.ModuleDict({name: ViewStatistics(config.nhid) for name in config.views})

    @property
    def known(self) -> bool:
        """Whether documents have been read."""
        return float(self.documents) > 1

    def of(self, view: str) -> tuple[Tensor, Tensor] | None:
        """Give mean and covariance as a view sees the documents; None where they are not known."""
        if view not in self.views:
            return None
        kept = self.views[view]
        assert isinstance(kept, ViewStatistics)  # noqa: S101 (for the type checker)
        return (kept.mean, kept.covariance) if self.known and bool(kept.covariance.any()) else None

    def learn_frequency(self, frequency: NDArray[np.int64], documents: int) -> None:
        """Take how many of so many documents contain each row: (R,)."""
        self.frequency.copy_(torch.from_numpy(frequency))
        self.documents.fill_(documents)

    def learn_vectors(self, view: str, vectors: NDArray[Any]) -> None:
        """Take the vectors (N, H) of a sample of documents, as a view gives them."""
        kept, given = self.views[view], torch.from_numpy(vectors).double()
        assert isinstance(kept, ViewStatistics)  # noqa: S101 (for the type checker)
        mean = given.mean(0)
        apart = given - mean
        kept.mean.copy_(mean)
        kept.covariance.copy_(apart.T @ apart / max(1, len(given) - 1))
