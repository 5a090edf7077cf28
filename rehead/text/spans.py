"""Character spans of the words of a text, and their alignment with tokens.

A word is a span of the original text: letters and digits, with inner apostrophes and hyphens ("don't", "well-made");
a single character, in scripts without spaces; or a run of punctuation or symbols. So every character that is not white
space belongs to exactly one word. Combining marks stay with their letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rehead.text.word_hashes import NON_WORD, UNSPACED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

Span = tuple[int, int]
"Start and end, in characters; the end is exclusive."

SYMBOLS = "\u2190-\u2bff\ufe00-\ufe0f\U0001f000-\U0001fbff"  # arrows, dingbats, emoji, variation selectors
LETTER = rf"[^\s{NON_WORD}{UNSPACED}{SYMBOLS}]"
WORD = re.compile(rf"[{UNSPACED}]|{LETTER}+(?:['’-]{LETTER}+)*|(?:(?!{LETTER}|[{UNSPACED}])\S)+")


class Alignment(NamedTuple):
    """Pairs of overlapping tokens and words, sorted by token, then by word."""

    token: Ints
    word: Ints


def word_spans(text: str) -> list[Span]:
    """Find the spans of the words of a text, in order."""
    return [found.span() for found in WORD.finditer(text)]


def align_tokens(tokens: Sequence[Span], words: Sequence[Span]) -> Alignment:
    """Find the tokens and words of a text that overlap; white space around a token is ignored."""
    import numpy as np

    pieces, whole = (np.array(each, np.int64).reshape(-1, 2) for each in (tokens, words))
    first = np.searchsorted(whole[:, 1], pieces[:, 0], side="right")  # the first word that ends after the token's start
    last = np.searchsorted(whole[:, 0], pieces[:, 1], side="left")  # the first word that starts after the token's end
    count = np.maximum(last - first, 0)
    token = np.repeat(np.arange(len(pieces)), count)
    before = np.cumsum(count) - count
    return Alignment(token, np.arange(len(token)) - np.repeat(before - first, count))
