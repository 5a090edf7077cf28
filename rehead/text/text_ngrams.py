"""Word and character n-grams of texts as 48-bit hashes, by array operations over many texts at once.

A text is read as people write it: composed (NFKC), case-folded, white space folded, between a mark for its beginning
and one for its end, which n-grams may contain ("^ how", "? $"): the first and last words of a question say
much about it. There is no tokenizer and no segmenter.

    characters   runs of 2 to 5 characters, within words and across them
    words        letters and digits between other characters, single punctuation marks, and single characters of scripts
                 written without spaces; alone, and in pairs of neighbours

Every n-gram is a slice of the array of code points, and its hash comes from one cumulative sum over that array: with
P(i) = Σ_{j<i} c_j·M^j modulo 2⁶⁴, the slice from i to j has the hash (P(j) − P(i))·M^−i, wherever it stands. So a
length of n-gram costs three operations on arrays, in Python a hundred times the speed of joining strings. Hashes are
the vocabulary: nothing of a text can be read from a classifier that keeps them, and no table of strings is loaded. At
48 bits, two of a hundred thousand n-grams share one with a probability of one in fifty thousand.

Exported classifiers carry a copy of this file, so it needs numpy alone.

Shapes: N texts, L occurrences of n-grams.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]

# Han, Kana, Thai, Lao, Burmese and Khmer are written without spaces: each character is taken for a word.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
CHARACTERS = (2, 5)  # shortest and longest character n-gram
BEGIN, END = "\x02", "\x03"  # control characters, which are white space where a text contains them
MARKS = str.maketrans({BEGIN: " ", END: " "})
HASH_BITS = 48
FACTOR = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2⁶⁴
INVERSE = pow(FACTOR, -1, 1 << 64)
PAIR = 0xD6E8FEB86659FD93
UNKNOWN, SPACE, LETTER, SINGLE = range(4)  # classes of characters


class TextNgrams(NamedTuple):
    """The n-grams of some texts, text by text: arrays of one length."""

    key: Ints
    "Hash of each occurrence, of 48 bits: (L,)."
    document: Ints
    "Which of the texts it is in: (L,), ascending."
    start: Ints
    "Its first character, in the normalised text: (L,)."
    end: Ints
    "The character after its last: (L,)."


class CodePoints(NamedTuple):
    """Texts as one array of characters, each between the two marks."""

    codes: NDArray[np.uint32]
    starts: Ints
    "Where each text begins, and where the last ends: (N + 1,)."
    sums: Words
    "The cumulative sum that hashes come from."


def normalised(text: str) -> str:
    """Give the characters that n-grams are made of, without the marks. What is normalised stays as it is."""
    return " ".join(folded(text).split())


def folded(text: str) -> str:
    """Compose characters and fold case; white space stays, and the marks become white space.

    Folding comes between two compositions, since it may leave letters and accents that compose (H̱ has no capital).
    """
    if BEGIN in text or END in text:
        text = text.translate(MARKS)
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def code_points(texts: Sequence[str]) -> CodePoints:
    """Normalise texts and join them."""
    marked = [f"{BEGIN}{normalised(text)}{END}" for text in texts]
    codes = np.frombuffer("".join(marked).encode("utf-32-le", "surrogatepass"), np.uint32)
    starts = np.zeros(len(marked) + 1, np.int64)
    np.cumsum([len(each) for each in marked], out=starts[1:])
    up, _ = _powers(len(codes))
    sums = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum((codes.astype(np.uint64) + np.uint64(1)) * up[: len(codes)], out=sums[1:])
    return CodePoints(codes, starts, sums)


def character_ngrams(texts: CodePoints) -> TextNgrams:
    """Find every run of 2 to 5 characters that stays in its text."""
    length = len(texts.codes)
    left = np.repeat(texts.starts[1:], np.diff(texts.starts)) - np.arange(length)  # characters to the text's end
    document = np.repeat(np.arange(len(texts.starts) - 1), np.diff(texts.starts))
    parts = []
    for n in range(CHARACTERS[0], CHARACTERS[1] + 1):
        start = np.flatnonzero(left >= n)
        parts.append((_slices(texts, start, start + n, n), document[start], start, start + n))
    key, whose, start, end = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(whose, kind="stable")
    first = texts.starts[whose[order]] + 1  # the mark is no character of the text
    return TextNgrams(key[order], whose[order], start[order] - first, end[order] - first)


def word_ngrams(texts: CodePoints) -> TextNgrams:
    """Find every word, and every pair of neighbouring words or marks."""
    kinds = _classes(texts.codes)
    inside = kinds == LETTER
    begins = (kinds == SINGLE) | (inside & ~np.concatenate(([False], inside[:-1])))
    ends = (kinds == SINGLE) | (inside & ~np.concatenate((inside[1:], [False])))
    begin, end = np.flatnonzero(begins), np.flatnonzero(ends) + 1
    document = np.searchsorted(texts.starts, begin, side="right") - 1
    key = _slices(texts, begin, end, 0)
    together = np.flatnonzero(document[1:] == document[:-1])
    pairs = _mixed(key[together].view(np.uint64) * np.uint64(PAIR) + key[together + 1].view(np.uint64))
    marks = (texts.codes[begin] == ord(BEGIN)) | (texts.codes[begin] == ord(END))
    alone = np.flatnonzero(~marks)
    keys = np.concatenate((key[alone], pairs))
    whose = np.concatenate((document[alone], document[together]))
    start, stop = np.concatenate((begin[alone], begin[together])), np.concatenate((end[alone], end[together + 1]))
    order = np.argsort(whose, kind="stable")
    first = texts.starts[whose[order]] + 1
    return TextNgrams(keys[order], whose[order], start[order] - first, stop[order] - first)


def _slices(texts: CodePoints, start: Ints, end: Ints, salt: int) -> Ints:
    """Hash slices of the array of characters: (L,)."""
    _, down = _powers(len(texts.codes))
    plain = (texts.sums[end] - texts.sums[start]) * down[start]
    return _mixed(plain + np.uint64(salt))


def _mixed(state: Words) -> Ints:
    """Spread what distinguishes two values over all bits (the finaliser of splitmix64), and keep 48 of them."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    kept: Ints = ((state ^ (state >> np.uint64(31))) >> np.uint64(64 - HASH_BITS)).view(np.int64)
    return kept


_grown: dict[str, Words] = {}


def _powers(count: int) -> tuple[Words, Words]:
    """Give the powers of the factor, and of its inverse, from 0 up: at least so many."""
    if len(_grown.get("up", ())) < count:
        size = 1 << max(16, (count - 1).bit_length())
        for name, factor in (("up", FACTOR), ("down", INVERSE)):
            each = np.full(size, factor, np.uint64)
            each[0] = 1
            _grown[name] = np.cumprod(each)
    return _grown["up"], _grown["down"]


@functools.cache
def _table() -> NDArray[np.uint8]:
    """The class of every character that was met so far; 0: not yet known."""
    return np.zeros(0x110000, np.uint8)


def _classes(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Classify characters: white space, part of a word, or a word by itself."""
    table = _table()
    kinds = table[codes]
    if (new := codes[kinds == UNKNOWN]).size:
        for code in np.unique(new).tolist():
            table[code] = _class(chr(code))
        kinds = table[codes]
    return kinds


def _class(character: str) -> int:
    if re.fullmatch(f"[{UNSPACED}]", character):
        return SINGLE
    if character.isspace():
        return SPACE
    # Combining marks stay with their letter: they are most vowels of many scripts.
    return LETTER if character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M" else SINGLE
