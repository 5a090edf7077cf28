"""Texts on their way through the views: the text, its token ids, and what several views ask of it, found once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rehead.errors import ConfigError
from rehead.text.lengths import written_out
from rehead.text.text_ngrams import CodePoints, TextNgrams, character_ngrams, code_points, word_ngrams
from rehead.text.tokenizer import Tokenizer
from rehead.views.rows import DistinctRows, RowFinder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

GROUP_TOKENS = 16_384  # read at once where nothing is padded


class EncodedTexts:
    """Some texts, tokenized when a view first asks for their ids. A view that reads the text alone never does."""

    def __init__(
        self,
        texts: Sequence[str] | None = None,
        tokenizer: Tokenizer | None = None,
        *,
        ids: Sequence[Ints] | None = None,
    ) -> None:
        """Give texts with the tokenizer to encode them by, or the ids where they are known already."""
        self._texts, self._tokenizer = texts, tokenizer
        self._ids = None if ids is None else list(ids)
        self._distinct: DistinctRows | None = None
        self._code_points: CodePoints | None = None
        self._words: TextNgrams | None = None
        self._characters: TextNgrams | None = None

    @property
    def texts(self) -> Sequence[str]:
        """The texts themselves."""
        if self._texts is None:
            raise ConfigError("this view reads text, but only token ids were given.")
        return self._texts

    @property
    def ids(self) -> list[Ints]:
        """Token ids of each text."""
        if self._ids is None:
            if self._tokenizer is None:
                raise ConfigError(
                    "there is no tokenizer to encode texts with. Give the one the model was trained with."
                )
            self._ids = [np.array(each, np.int64) for each in self._tokenizer.encode_batch(list(self.texts))]
        return self._ids

    def __len__(self) -> int:
        return len(self.ids if self._texts is None else self._texts)

    def groups(self, tokens: int = GROUP_TOKENS) -> Iterator[EncodedTexts]:
        """Cut them, in order, into groups of about so many tokens; at least one group, which may be empty."""
        ids = self.ids
        for some in _slices([len(each) for each in ids], tokens):
            if some == slice(0, len(ids)):
                yield self
                return
            texts = None if self._texts is None else self._texts[some]
            yield EncodedTexts(texts, self._tokenizer, ids=ids[some])

    def distinct_rows(self, finder: RowFinder) -> DistinctRows:
        """Find each text's distinct rows; the second view that asks gets what was found for the first."""
        if self._distinct is None:
            self._distinct = finder.find_distinct(self.ids)
        return self._distinct

    def groups_of_characters(self, characters: int, most_texts: int | None = None) -> Iterator[EncodedTexts]:
        """Cut them, in order, into groups of about so many characters as they are read; at least one group."""
        texts = self.texts
        for some in _slices([written_out(each) for each in texts], characters, most_texts):
            if some == slice(0, len(texts)):
                yield self
                return
            yield EncodedTexts(texts[some], self._tokenizer)

    @property
    def word_ngrams(self) -> TextNgrams:
        """Words and pairs of words of each text, found once for all views that ask."""
        if self._words is None:
            self._words = word_ngrams(self._characters_of_texts())
        return self._words

    @property
    def character_ngrams(self) -> TextNgrams:
        """Character n-grams of each text, found once for all views that ask."""
        if self._characters is None:
            self._characters = character_ngrams(self._characters_of_texts())
        return self._characters

    def _characters_of_texts(self) -> CodePoints:
        if self._code_points is None:
            self._code_points = code_points(self.texts)
        return self._code_points


def _slices(lengths: Sequence[int], most: int, most_items: int | None = None) -> list[slice]:
    """Cut a sequence into slices of about so much length in all: at least one, which may be empty."""
    begins, seen = [0], 0
    for place, length in enumerate(lengths):
        if place > begins[-1] and (seen + length > most or place - begins[-1] == most_items):
            begins.append(place)
            seen = 0
        seen += length
    return [slice(begin, end) for begin, end in zip(begins, [*begins[1:], len(lengths)], strict=True)]
