"""Tokens of the base: which tokens and n-grams of them a document contains, each scoring the classes by itself.

The vocabulary is that of the base: its tokens, and the n-grams it has vectors for. A document's distinct rows count
once each, weighted by inverse document frequency, at unit length. Beside a document's vector they are worth half a
point with 1,600 labels and more with many (docs/experiments/few-labels.md). Words as people write them are the view
`words`, which needs no tokenizer.

Shapes: N texts, R rows, K classes, G groups of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups, rows_without
from rehead.views.rows import RowFinder, row_count
from rehead.views.view import Raw, SparseView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TokensOptions:
    """Nothing to state: which tokens there are is the base's vocabulary."""


class TokensView(SparseView):
    """Tokens and n-grams of tokens."""

    name = "tokens"
    of_base = True
    about = "its tokens and n-grams of tokens"
    Options = TokensOptions

    @property
    def columns(self) -> int:
        """Number of rows: tokens and n-grams."""
        return row_count(self.model.base)

    def read(self, texts: EncodedTexts) -> Raw:
        """Find the distinct rows of each document: a sparse matrix of ones (N, R)."""
        from scipy import sparse

        finder = RowFinder(self.model.base)
        columns, counts = [], []
        for group in texts.groups(1 << 18):
            rows = group.distinct_rows(finder)
            columns.append(rows.row)
            counts.append(rows.counts)
        row, count = np.concatenate(columns), np.concatenate(counts)
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(count)))
        matrix = sparse.csr_matrix((np.ones(len(row), np.float32), row, ends), shape=(len(count), self.columns))
        return Raw(matrix, np.arange(len(count)), len(count))

    def fit(self, raw: Raw) -> None:
        """Use the document frequencies that the base has kept of its unlabelled text, else those of these texts."""
        statistics = self.model.base.statistics
        if statistics.known:
            frequency, documents = statistics.frequency.double().numpy(), float(statistics.documents)
        else:
            frequency, documents = np.asarray(raw.matrix.sum(0), np.float64).ravel(), float(raw.texts)
        self.scale = np.log((1 + documents) / (1 + frequency)) + 1

    def tokens_without(self, texts: EncodedTexts, groups: Groups) -> int:
        """Count no token: what a group takes away is subtracted."""
        return 0

    def scores_without(
        self, weight: NDArray[Any], texts: EncodedTexts, groups: Groups, progress: Callable[[], None]
    ) -> Floats:
        """Subtract the tokens of each group, which also changes the length that the rest is divided by."""
        [ids] = texts.ids
        gone = rows_without(RowFinder(self.model.base), ids, groups, distinct=True)
        idf = self.scale[gone.row].astype(np.float64)
        each = weight[gone.row].astype(np.float64) * idf[:, None]  # (rows, K)
        scores, square = np.tile(each.sum(0), (1 + groups.count, 1)), np.full(1 + groups.count, (idf**2).sum())
        np.subtract.at(scores, 1 + gone.group, each[gone.entry])
        np.subtract.at(square, 1 + gone.group, idf[gone.entry] ** 2)
        left = len(gone.row) - np.append(0, np.bincount(gone.group, minlength=groups.count))
        given: Floats = np.where(left[:, None] > 0, scores, 0.0) / np.sqrt(np.maximum(square, 1e-24))[:, None]
        return given
