"""Text that comes in whole characters, against decoding it all at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from rehead.text.tokenizer import SPECIALS, Tokenizer
from rehead.use.streaming import TextStream
from tests.use.conftest import fruit_tokenizer
from tests.use.tiny_runs import tiny_tokenizer


def streamed(tokenizer: Tokenizer, ids: list[int], before: list[int]) -> list[str]:
    stream = TextStream(tokenizer, before)
    return [*(stream.add(each) for each in ids), stream.end()]


@given(text=st.text(max_size=30))
def test_every_text_comes_whole(text: str) -> None:
    """Rare characters are cut into bytes; none is shown before its last one has come."""
    tokenizer = fruit_tokenizer()
    before = [tokenizer.eos, *tokenizer.encode("a red")]
    pieces = streamed(tokenizer, tokenizer.encode(text), before)
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_comes_with_its_last_byte() -> None:
    tokenizer = fruit_tokenizer()
    ids = tokenizer.encode("☃é")
    assert len(ids) >= 4
    assert streamed(tokenizer, ids, []) == ["", "", "☃", *[""] * (len(ids) - 4), "é", ""]


@given(ids=st.lists(st.integers(len(SPECIALS), 309), max_size=40))
def test_bytes_that_are_no_character_lose_nothing_else(ids: list[int]) -> None:
    tokenizer = fruit_tokenizer()
    assert "".join(streamed(tokenizer, ids, [])) == tokenizer.decode(ids)


def test_an_unfinished_character_is_shown_at_the_end() -> None:
    tokenizer = fruit_tokenizer()
    assert streamed(tokenizer, tokenizer.encode("☃")[:2], []) == ["", "", "\ufffd"]


def pieces_tokenizer() -> Tokenizer:
    """One whose first piece loses its space, as SentencePiece has it."""
    words = [*SPECIALS, "▁a", "▁film", "s", "▁good"]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.decoder = tokenizers.decoders.Metaspace()
    return Tokenizer(inner)


@pytest.mark.parametrize(
    ("before", "expected"), [([], ["a", " film", "s", " good", ""]), ([2, 8], [" a", " film", "s", " good", ""])]
)
def test_a_space_depends_on_what_stands_before(before: list[int], expected: list[str]) -> None:
    assert streamed(pieces_tokenizer(), [5, 6, 7, 8], before) == expected


def test_words_without_spaces_of_their_own() -> None:
    assert streamed(tiny_tokenizer(), [5, 6, 7, 8], [8]) == [" a", " truly", " good", " film", ""]


def test_only_the_end_is_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = fruit_tokenizer()
    stream, lengths = TextStream(tokenizer, [7] * 1000), []
    decode = tokenizer.decode

    def counted(ids: object) -> str:
        lengths.append(len(given := list(ids)))  # type: ignore[call-overload]
        return decode(given)

    monkeypatch.setattr(tokenizer, "decode", counted)
    for _ in range(500):
        stream.add(69)
    assert max(lengths) <= 5


def test_french_reviews_of_a_sentencepiece_model(shared_data: Path) -> None:
    model = shared_data / "cls-books" / "sentencepiece.french.model"
    tokenizer = Tokenizer.from_sentencepiece(model, model.with_name("dict.txt"))
    text = "Un livre très émouvant, que j'ai relu trois fois. Quel bonheur !"
    ids = tokenizer.encode(text)
    for cut in range(len(ids)):
        pieces = streamed(tokenizer, ids[cut:], [tokenizer.eos, *ids[:cut]])
        assert tokenizer.decode(ids[:cut]) + "".join(pieces) == tokenizer.decode(ids)
        assert all(pieces[:-1])
