"""What a text is once it is read, counted without reading it."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehead.text.lengths import written_out
from rehead.text.text_ngrams import folded

GROWING = [
    chr(each)
    for each in range(sys.maxunicode + 1)
    if unicodedata.decomposition(chr(each)) or len(chr(each).casefold()) > 1
]


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("a plain text", 12), ("déjà vu", 7), ("电影 🎬", 4), ("\ufdfa", 18), ("\ufb03x", 4), ("Straße", 7)],
)
def test_ligatures_count_as_what_they_stand_for(text: str, count: int) -> None:
    assert written_out(text) == count


@given(st.text(st.one_of(st.sampled_from(GROWING), st.characters(codec=None))))
def test_no_text_is_longer_when_it_is_read(text: str) -> None:
    assert len(folded(text)) <= written_out(text)
