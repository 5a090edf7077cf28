"""How long a text is once it is read: characters of compatibility are written out, one of them as up to 18."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from rehead.text.text_ngrams import folded

if TYPE_CHECKING:
    from numpy.typing import NDArray


def written_out(text: str) -> int:
    """Count the characters that n-grams are made of, at most: what reading a text takes grows with them.

    A character is looked up rather than normalised, so counting takes the same time whatever it becomes.
    """
    if text.isascii():
        return len(text)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    table = _table()
    sizes = table[codes]
    if (new := codes[sizes == 0]).size:
        for code in np.unique(new).tolist():
            table[code] = max(1, len(folded(chr(code))))
        sizes = table[codes]
    return int(sizes.sum())


@functools.cache
def _table() -> NDArray[np.uint8]:
    """What every character that was met so far becomes; 0: not yet known."""
    return np.zeros(0x110000, np.uint8)
