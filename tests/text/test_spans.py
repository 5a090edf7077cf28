"""Words as readers see them, and the tokens that they are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehead.text.documents import Document
from rehead.text.spans import align_tokens, word_spans
from rehead.text.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I don't like it!!!", ["I", "don't", "like", "it", "!!!"]),
        ("a well-made film (10/10)", ["a", "well-made", "film", "(", "10", "/", "10", ")"]),
        ("'quoted' -- d'été", ["'", "quoted", "'", "--", "d'été"]),
        ("映画は。", ["映", "画", "は", "。"]),
        ("हिन्दी फ़िल्म", ["हिन्दी", "फ़िल्म"]),
        ("cafe\u0301 ok", ["cafe\u0301", "ok"]),
        ("good👍🏽❤️bad", ["good", "👍🏽❤️", "bad"]),
        (" \n\t\u00a0", []),
        ("", []),
    ],
)
def test_words_are_what_a_reader_sees(text: str, words: list[str]) -> None:
    assert [text[begin:end] for begin, end in word_spans(text)] == words


@given(st.text())
def test_every_character_but_white_space_is_in_one_word(text: str) -> None:
    found = [place for begin, end in word_spans(text) for place in range(begin, end)]
    assert found == [place for place, each in enumerate(text) if not each.isspace()]


def test_tokens_and_words_touch_where_they_share_a_character() -> None:
    words = [(0, 3), (4, 9), (9, 10)]
    tokens = [(0, 2), (2, 3), (3, 7), (7, 10), (3, 4), (10, 10)]
    touch = align_tokens(tokens, words)
    assert list(zip(touch.token.tolist(), touch.word.tolist(), strict=True)) == [(0, 0), (1, 0), (2, 1), (3, 1), (3, 2)]
    assert len(align_tokens([], words).token) == len(align_tokens(tokens, []).token) == 0


TOKENIZER = Tokenizer.train(
    [Document("I don't think it's a well-made film. İstanbul, 映画!", "x", 1)] * 5,
    vocab=310,
    lowercase=True,
    quiet=True,
)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_every_word_has_tokens_whatever_it_is_made_of(text: str) -> None:
    ids, tokens = TOKENIZER.encode_with_spans(text)
    assert ids == TOKENIZER.encode(text)
    words = word_spans(text)
    touch = align_tokens(tokens, words)
    assert set(touch.word.tolist()) == set(range(len(words)))
    for token, word in zip(*touch, strict=True):
        assert tokens[token][0] < words[word][1]
        assert words[word][0] < tokens[token][1]
