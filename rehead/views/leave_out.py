"""What of a document goes when some of its tokens are left out: the bookkeeping that explanations share.

Shapes: G groups, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rehead.text.spans import Span, normalised_places
from rehead.views.rows import RowFinder, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Groups:
    """Groups of a document's tokens, as pairs of a token and a group. A token may be in several, or in none."""

    def __init__(self, token: Ints, group: Ints, count: int, words: Sequence[tuple[Span, int]] = ()) -> None:
        """Give pairs of a token and a group, and, for views of the text itself, the group of each word's span."""
        _, first = np.unique(token * max(1, count) + group, return_index=True)
        self.token, self.group, self.count, self.words = token[first], group[first], count, words

    def normalised(self, text: str) -> tuple[str, Ints]:
        """Normalise the text; give it, and where each word is then, with its group: (words, 3).

        A word of which nothing is left, such as a mark that is composed with the word before, is not among them.
        """
        normal, places = normalised_places(text)
        spans = np.array([(places[begin], places[end], group) for (begin, end), group in self.words], np.int64)
        spans = spans.reshape(-1, 3)
        return normal, spans[spans[:, 1] > spans[:, 0]]

    def at(self, places: Ints) -> Groups:
        """Give the groups of some of the tokens, in this order, as if these were the document."""
        begin, end = np.searchsorted(self.token, places), np.searchsorted(self.token, places, side="right")
        which = _ranges(begin, end)
        return Groups(np.repeat(np.arange(len(places)), end - begin), self.group[which], self.count)


class RowsWithout(NamedTuple):
    """The entries of a sum of rows, and which of them each group takes away."""

    row: Ints
    "Row of each entry: (E,)."
    counted: Ints
    "1 for the entries that the mean is over: (E,)."
    entry: Ints
    "Pairs of an entry and a group that removes it."
    group: Ints


def rows_without(finder: RowFinder, ids: Ints, groups: Groups, *, distinct: bool) -> RowsWithout:
    """Find which entries of a document's sum go with which group.

    Entries are the distinct rows, each of which goes if every occurrence goes; or every occurrence of a row, of which
    the tokens are counted. An n-gram goes with any of its tokens.
    """
    rows = finder.find([ids])
    occurrence, group = _touched(rows, groups)
    if not distinct:
        return RowsWithout(rows.row, (rows.size == 1).astype(np.int64), occurrence, group)
    row, entry, count = np.unique(rows.row, return_inverse=True, return_counts=True)
    pairs, times = np.unique(entry[occurrence] * max(1, groups.count) + group, return_counts=True)
    entry, group = np.divmod(pairs, max(1, groups.count))
    gone = times == count[entry]
    return RowsWithout(row, np.ones_like(row), entry[gone], group[gone])


def _touched(rows: Rows, groups: Groups) -> tuple[Ints, Ints]:
    """Find the n-grams that have a token in a group: pairs of an occurrence and a group, each once."""
    begin = np.searchsorted(groups.token, rows.start)
    end = np.searchsorted(groups.token, rows.start + rows.size)
    occurrence, group = np.repeat(np.arange(len(begin)), end - begin), groups.group[_ranges(begin, end)]
    pairs = np.unique(occurrence * max(1, groups.count) + group)
    first, second = np.divmod(pairs, max(1, groups.count))
    return first, second


def _ranges(begin: Ints, end: Ints) -> Ints:
    """Concatenate ranges of integers."""
    count = end - begin
    before = np.cumsum(count) - count
    joined: Ints = np.arange(int(count.sum())) + np.repeat(begin - before, count)
    return joined
