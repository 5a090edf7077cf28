"""Character spans of the words of a text, and their alignment with tokens.

A word is a span of the original text: letters and digits, with inner apostrophes and hyphens ("don't", "well-made");
a single character, in scripts without spaces; or a run of punctuation or symbols. So every character that is not white
space belongs to exactly one word. Combining marks stay with their letter.

N-grams are made of the normalised text, which may have more or fewer characters: `normalised_places` says where each
character of the original is in it.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rehead.text.text_ngrams import UNSPACED, folded
from rehead.text.word_hashes import NON_WORD

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


def normalised_places(text: str) -> tuple[str, Ints]:
    """Normalise a text as for n-grams (`text_ngrams.normalised`); give where each character begins then: (T + 1,).

    What is composed of several characters belongs to the first of them; the others begin where it ends.
    """
    import numpy as np

    cuts = [place for place, character in enumerate(text) if not place or _starts(character)]
    pieces = [folded(text[begin:end]) for begin, end in itertools.pairwise([*cuts, len(text)])]
    ends = np.cumsum([0, *map(len, pieces)])
    unit = np.searchsorted(cuts, np.arange(len(text)), side="right") - 1
    first = np.zeros(len(text), bool)
    first[cuts] = True
    raw = np.append(ends[np.where(first, unit, unit + 1)], ends[-1])  # places before white space is folded
    whole = "".join(pieces)
    blank = np.array([each.isspace() for each in whole], bool)
    # Of a run of white space the first character stays; at either end of the text, none.
    kept = ~blank
    kept[1:] |= ~blank[:-1]
    kept[len(whole.rstrip()) :] = False
    normal = "".join(" " if space else each for each, space, stays in zip(whole, blank, kept, strict=True) if stays)
    return normal, np.concatenate(([0], np.cumsum(kept)))[raw]


@functools.lru_cache(1 << 16)
def _starts(character: str) -> bool:
    """Tell whether a character never composes with one before it: neither a combining mark nor an inner Hangul jamo."""
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.category(first)[0] != "M" and not "\u1160" <= first <= "\u11ff"
