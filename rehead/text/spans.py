"""The words of a text as its reader sees them, and which tokens they are made of.

A word is a stretch of characters of the original text: letters and digits, with apostrophes and hyphens inside
("don't", "well-made"); a single character, in scripts that are written without spaces; or a run of punctuation or
pictures. So every character that is not white space belongs to exactly one word. Marks that combine with a letter stay
with it.
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
"Begin and end, in characters; the end is exclusive."

PICTURES = "\u2190-\u2bff\ufe00-\ufe0f\U0001f000-\U0001fbff"  # arrows, dingbats, emoji, and what varies them
LETTER = rf"[^\s{NON_WORD}{UNSPACED}{PICTURES}]"
WORD = re.compile(rf"[{UNSPACED}]|{LETTER}+(?:['’-]{LETTER}+)*|(?:(?!{LETTER}|[{UNSPACED}])\S)+")


class Alignment(NamedTuple):
    """Which tokens touch which words: pairs, in the order of the tokens, and of the words within one."""

    token: Ints
    word: Ints


def word_spans(text: str) -> list[Span]:
    """Find the words of a text, in their order."""
    return [found.span() for found in WORD.finditer(text)]


def align_tokens(tokens: Sequence[Span], words: Sequence[Span]) -> Alignment:
    """Find which tokens of a text have characters of which words; white space around a token counts for nothing."""
    import numpy as np

    pieces, whole = (np.array(each, np.int64).reshape(-1, 2) for each in (tokens, words))
    first = np.searchsorted(whole[:, 1], pieces[:, 0], side="right")  # the first word that ends behind its begin
    last = np.searchsorted(whole[:, 0], pieces[:, 1], side="left")  # the first one that begins behind its end
    count = np.maximum(last - first, 0)
    token = np.repeat(np.arange(len(pieces)), count)
    before = np.cumsum(count) - count
    return Alignment(token, np.arange(len(token)) - np.repeat(before - first, count))
