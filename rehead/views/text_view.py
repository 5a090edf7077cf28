"""What the views of a text's own n-grams share: a vocabulary of hashes, weighted by idf. No tokenizer, no base.

Shapes: N texts, V n-grams of the vocabulary, K classes, G groups of words.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from rehead.model.config import ViewConfig, from_dict
from rehead.model.model import Model
from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups
from rehead.views.view import Raw, SparseView, View
from rehead.views.vocabulary import (
    MOST_TEXTS,
    count_ngrams,
    damaged_keys,
    find_keys,
    from_floats,
    learn_vocabulary,
    to_floats,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.text.text_ngrams import TextNgrams

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

GROUP_CHARACTERS = 1 << 18  # read at once


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """Nothing to state: which n-grams there are is part of the head."""


class TextView(SparseView):
    """N-grams of the text itself; `ngrams` says which."""

    Options = NoOptions
    learns = True
    kind: ClassVar[str]
    "Which n-grams of a text: words or characters."
    limit: ClassVar[int]
    "Most n-grams that the vocabulary holds."

    def __init__(self, model: Model, options: Any, *, unit: bool = True, terms: int = 0) -> None:  # noqa: ANN401
        super().__init__(model, options, unit=unit)
        self.terms = terms
        self.keys, self.scale = np.zeros(0, np.int64), np.zeros(0)

    @classmethod
    def from_config(cls, model: Model, config: ViewConfig) -> TextView:
        """Make the view that a classifier's config describes; its vocabulary is among the statistics."""
        return cls(model, from_dict(cls.Options, dict(config.options)), unit=config.unit, terms=config.terms)

    @abstractmethod
    def ngrams(self, texts: EncodedTexts) -> TextNgrams:
        """Find the n-grams of texts."""

    @property
    def columns(self) -> int:
        """Size of the vocabulary."""
        return self.terms

    def learn(self, texts: EncodedTexts, beside: Sequence[View] = ()) -> None:
        """Choose the vocabulary, and weight it by how rare each n-gram is."""
        groups = texts.groups_of_characters(GROUP_CHARACTERS, MOST_TEXTS)
        found = learn_vocabulary(((self.ngrams(group), len(group)) for group in groups), self.limit)
        self.keys, self.scale, self.terms = found.keys, found.idf(), len(found.keys)

    def take_common(self, other: TextView) -> None:
        """Take the most common n-grams of another view, as many as there is room for."""
        kept = np.sort(np.argsort(other.scale, kind="stable")[: self.limit])  # the idf falls with the frequency
        self.keys, self.scale, self.terms = other.keys[kept], other.scale[kept], len(kept)

    def state(self) -> bytes:
        """What decides the result of `read`, beside the options: the vocabulary."""
        return self.keys.tobytes()

    def read(self, texts: EncodedTexts) -> Raw:
        """Count the n-grams of each text."""
        from scipy import sparse

        parts = [
            count_ngrams(self.keys, self.ngrams(group), len(group))
            for group in texts.groups_of_characters(GROUP_CHARACTERS, MOST_TEXTS)
        ]
        return Raw(sparse.vstack(parts).tocsr() if len(parts) > 1 else parts[0], np.arange(len(texts)), len(texts))

    def fit(self, raw: Raw) -> None:
        """Nothing more: the idf is that of the text that the vocabulary was learnt from."""

    def load_statistics(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the vocabulary and its idf."""
        super().load_statistics(tensors)
        self.keys = from_floats(tensors["keys"].cpu().numpy())

    def damaged_statistics(self, tensors: Mapping[str, torch.Tensor]) -> str | None:
        """Find hashes that could not be looked up."""
        wrong = damaged_keys(tensors["keys"].cpu().numpy())
        return f"keys {wrong}" if wrong else None

    def statistics(self) -> dict[str, Floats]:
        """Give the vocabulary and its idf."""
        return {"scale": self.scale, "keys": to_floats(self.keys).astype(np.float64)}

    def scores_without(
        self, weight: NDArray[Any], texts: EncodedTexts, groups: Groups, progress: Callable[[], None]
    ) -> Floats:
        """Take away the n-grams that have a character in a group of words, and count the others anew."""
        matrix = counts_without(self.keys, texts, groups, self.ngrams)
        features = self.transform(Raw(matrix, np.arange(matrix.shape[0]), matrix.shape[0]))
        scores: Floats = features @ weight.astype(np.float64)
        return scores


def counts_without(
    keys: Ints, texts: EncodedTexts, groups: Groups, ngrams: Callable[[EncodedTexts], TextNgrams]
) -> Any:  # noqa: ANN401 (a sparse matrix of scipy's)
    """Count the n-grams of one text: whole, then without those that each group of words touches: (1 + G, V)."""
    from scipy import sparse

    [text] = texts.texts
    normal, spans = groups.normalised(text)
    found = ngrams(EncodedTexts([normal]))
    column, there = find_keys(keys, found.key)
    column, start, end = column[there], found.start[there], found.end[there]
    # Pairs of an occurrence and a group that touches it, each once.
    occurrence, group = _touching(start, end, spans)
    pairs = np.unique(group * max(1, len(column)) + occurrence)
    group, occurrence = np.divmod(pairs, max(1, len(column)))
    whole = np.bincount(column, minlength=len(keys)).astype(np.float64)
    present = np.unique(column)
    lost = sparse.csr_matrix(
        (np.ones(len(pairs)), (group, np.searchsorted(present, column[occurrence]))), shape=(groups.count, len(present))
    ).toarray()
    counts = np.concatenate((whole[present][None], whole[present] - lost))  # (1 + G, present)
    data = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0.0)
    row, place = np.nonzero(data)
    return sparse.csr_matrix((data[row, place], (row, present[place])), shape=(len(data), len(keys)))


def _touching(start: Ints, end: Ints, spans: Ints) -> tuple[Ints, Ints]:
    """Find which slices overlap which spans (S, 3) of begin, end and group: pairs of a slice and a group."""
    begins, ends = spans[:, 0], spans[:, 1]  # in order, and apart
    first = np.searchsorted(ends, start, side="right")
    last = np.searchsorted(begins, end, side="left")
    count = np.maximum(last - first, 0)
    which = np.repeat(np.arange(len(start)), count)
    before = np.cumsum(count) - count
    place = np.arange(int(count.sum())) - np.repeat(before - first, count)
    return which, spans[place, 2]
