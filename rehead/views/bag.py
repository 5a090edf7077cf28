"""The bag of n-grams: a document is the average of the vectors of its tokens and n-grams, whatever their order.

No layer takes part, nothing is padded, and a document of any length is read whole. This is what the document objective
pretrains in minutes on a CPU, and what the default preset consists of.

Shapes: N texts, P pieces, H hidden width, G groups of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rehead.text.long_documents import UNLIMITED, LongRule, check_cutting, cut_documents, split_long
from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups, rows_without
from rehead.views.rows import RowFinder, index_rows, sum_rows, vectors_of_rows
from rehead.views.view import DenseView, Raw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class BagOptions:
    """How a bag reads."""

    distinct: bool = True
    "Count each token and n-gram of a document once, and average over these; else sum them all, per token."
    max_length: int | None = None
    "Tokens read at once; None: the whole document."
    long: LongRule = "windows"
    "What is read of a longer document; the scores of several windows are averaged."

    def __post_init__(self) -> None:
        check_cutting(self.max_length, self.long)


class BagView(DenseView):
    """Averaged n-gram vectors."""

    name = "bag"
    about = "the average of its n-gram vectors"
    of_base = True
    Options = BagOptions
    options: BagOptions

    @property
    def max_length(self) -> int:
        """Tokens read at once."""
        return UNLIMITED if self.options.max_length is None else self.options.max_length

    @property
    def finder(self) -> RowFinder:
        """What finds the rows of documents."""
        return RowFinder(self.model.base)

    def read(self, texts: EncodedTexts) -> Raw:
        """Average the rows of each document, or of each of its pieces."""
        finder, found, document, count = self.finder, [], [], 0
        for group in texts.groups():
            pieces, whole = group, np.arange(len(group))
            if max(map(len, group.ids), default=0) > self.max_length:
                cuts, parts = cut_documents(group.ids, self.max_length, self.options.long)
                pieces, whole = EncodedTexts(ids=parts), cuts.document
            found.append(self._vectors(finder, pieces).cpu().numpy())
            document.append(whole + count)
            count += len(group)
        return Raw(np.concatenate(found), np.concatenate(document), count)

    def _vectors(self, finder: RowFinder, texts: EncodedTexts) -> Tensor:
        """One vector for each text, read whole: (texts, H)."""
        row, document, counts = self._rows(finder, texts)
        total = vectors_of_rows(self.model.base, row, document, len(texts))
        return total / torch.from_numpy(np.maximum(counts, 1)).to(total)[:, None]

    def _rows(self, finder: RowFinder, texts: EncodedTexts) -> tuple[Ints, Ints, Ints]:
        """Find the rows that count (L,), which text each is of (L,), and what the sum is divided by (texts,)."""
        if self.options.distinct:
            found = texts.distinct_rows(finder)
            return found.row, found.document, found.counts
        every = finder.find(texts.ids)
        return every.row, every.document, np.array([len(each) for each in texts.ids], np.int64)

    # Training by gradient: what `rehead.finetune.objective` asks of the view under the head.

    def collate(self, finder: RowFinder, parts: Sequence[Ints]) -> dict[str, Tensor]:
        """Make the tensors of some documents, or pieces, that `pool` takes."""
        row, document, counts = self._rows(finder, EncodedTexts(ids=parts))
        arrays = index_rows(row, document, len(parts), finder.ntokens) | {"counts": counts}
        return {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in arrays.items()}

    def pool(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Average, with a gradient: (P, H)."""
        return sum_rows(self.model.base, tensors) / tensors["counts"].clamp_min(1)[:, None]

    def row_tables(self) -> list[nn.Embedding]:
        """Tables of which a step touches few rows: tokens, and n-grams where there are some."""
        return [table for _, table in self.model.base.row_tables()]

    # Explaining.

    def tokens_without(self, texts: EncodedTexts, groups: Groups) -> int:
        """Count no token: what a group takes away is subtracted."""
        return 0

    def scores_without(
        self, weight: NDArray[Any], texts: EncodedTexts, groups: Groups, progress: Callable[[], None]
    ) -> Floats:
        """Subtract the rows of each group from the sum: exact, and nothing is read again."""
        [ids] = texts.ids
        base, finder = self.model.base, self.finder
        scores = np.zeros((1 + groups.count, len(weight)))
        pieces = split_long(np.array([len(ids)], np.int64), self.max_length, self.options.long)
        for piece in range(len(pieces.document)):
            where = pieces.read(piece, np.arange(len(ids)))
            gone = rows_without(finder, ids[where], groups.at(where), distinct=self.options.distinct)
            order = np.argsort(gone.group, kind="stable")
            lost = vectors_of_rows(base, gone.row[gone.entry[order]], gone.group[order], groups.count)
            whole = vectors_of_rows(base, gone.row, np.zeros_like(gone.row), 1)
            sums = (whole - torch.cat((torch.zeros_like(whole), lost))).cpu()  # (1 + G, H)
            weights = np.bincount(gone.group, weights=gone.counted[gone.entry], minlength=groups.count)
            left = gone.counted.sum() - np.append(0, weights)
            sums[torch.from_numpy(left == 0)] = 0.0  # and not what rounding leaves
            scores += self._scores(weight, sums / torch.from_numpy(np.maximum(left, 1)).to(sums)[:, None])
        return scores / len(pieces.document)
