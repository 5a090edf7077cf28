"""Words and their hashes, for duplicate detection: case-folded, and the same on every machine.

Case, white space, punctuation and HTML line breaks are ignored. Accents of Latin letters distinguish words for exact
duplicates, but not for near ones, so the accents are hashed into separate bits.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

import numpy as np

from rehead.text.text_ngrams import UNSPACED

BREAK = re.compile(r"<\s*/?\s*(?:br|p)\s*/?\s*>", re.IGNORECASE)
NON_WORD = r"\x00-/:-@\[-`{-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf×÷\u2000-\u206f\u3000-\u303f"
WORD = re.compile(f"[{UNSPACED}]|[^{NON_WORD}{UNSPACED}]+")
CHARACTER = re.compile(f"[{UNSPACED}]")
CHARACTER_WORDS = 0.5  # how many words such a character counts as, for minimum lengths

ACCENTS = re.compile(
    "(?<=[a-z])[\u0300-\u036f]+"
)  # in other scripts a combining mark makes another letter, as in Cyrillic й
LETTERS = str.maketrans({"œ": "oe", "æ": "ae", "ø": "o", "ł": "l", "đ": "d", "ı": "i"})

# Bits of a word's hash for its accents, and for whether it is a single CHARACTER.
SPELLING, IS_CHARACTER = np.uint64(0xFFFF), np.uint64(1)


def split_words(text: str) -> list[str]:
    """Split a text into case-folded words; if it has none, such as "!!!", at white space."""
    if "<" in text:
        text = BREAK.sub(" ", text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return WORD.findall(text.casefold()) or text.split()


def fold_accents(word: str) -> str:
    """Remove accents from Latin letters; other scripts stay unchanged."""
    if word.isascii():
        return word
    return unicodedata.normalize("NFKC", ACCENTS.sub("", unicodedata.normalize("NFKD", word))).translate(LETTERS)


class WordHashes(dict[str, int]):
    """Cache of word → 64-bit hash, the same on every machine and in every run.

    Without the SPELLING bits, it is the hash of the word without accents. Each distinct word is hashed once.
    """

    def __missing__(self, word: str) -> int:
        folded = fold_accents(word)
        value = _digest(folded) & ~int(SPELLING)
        if folded != word:
            value |= _digest(word) & int(SPELLING ^ IS_CHARACTER)
        if CHARACTER.fullmatch(word):
            value |= int(IS_CHARACTER)
        self[word] = value
        return value


def _digest(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
