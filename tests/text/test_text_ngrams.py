"""N-grams of texts as hashes, against lists of strings."""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehead.text import text_ngrams
from rehead.text.spans import normalised_places, word_spans
from rehead.text.text_ngrams import (
    BEGIN,
    END,
    HASH_BITS,
    TextNgrams,
    character_ngrams,
    code_points,
    normalised,
    word_ngrams,
)
from tests.finetune.sets import reviews

Found = tuple[tuple[str, ...], int, int]
"What an n-gram is made of, and where it is in the normalised text."

TEXTS = {
    "plain": "What a film, what a FILM! It's 7.5/10.",
    "empty": "",
    "blank": " \t\n\u3000\u2028 ",
    "one character": "x",
    "one word": "film",
    "white space": "  a\t\tb \n c  ",
    "Chinese": "这部电影非常好看，我很喜欢。Good",
    "Japanese": "この映画はとても良かった。ﾃﾚﾋﾞ テレビ",
    "Thai": "ภาพยนตร์เรื่องนี้สนุกมาก",
    "Arabic": "هَذَا الفِيلْمُ رَائِعٌ جِدًّا",
    "Hindi": "यह फ़िल्म बहुत अच्छी है",
    "Korean": "이 영화는 정말 재미있다",
    "Greek": "Ο ΟΔΥΣΣΕΥΣ, ΟΔΟΣ.",
    "emoji": "👍🏽 👩‍👩‍👧 ❤️ great",
    "surrogates": "a \ud83d b \udc4d\ud800",
    "NUL": "a\x00b \x00",
    "marks": "\x02a film\x03\x02 \x03",
    "markup": "<p>A <b>dull</b> film&nbsp;&#8212;</p>",
    "compatibility": "ﬁlm ½ ① Ｈ´ello ﷺ",
}


def words_of(text: str) -> list[tuple[str, int, int]]:
    """Letters, digits and combining marks that stand together, or any other character that is not white space."""
    found: list[tuple[str, int, int]] = []
    inside = False
    for place, each in enumerate(text):
        unspaced = any(
            low <= ord(each) <= high
            for low, high in [
                (0xE00, 0xEFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF),
                (0xF900, 0xFAFF), (0x20000, 0x3FFFF),
            ]
        )  # fmt: skip
        letter = each.isalnum() or each == "_" or unicodedata.category(each) in ("Mn", "Mc", "Me")
        if letter and not unspaced:
            if inside:
                word, begin, _ = found.pop()
                found.append((word + each, begin, place + 1))
            else:
                found.append((each, place, place + 1))
            inside = True
            continue
        inside = False
        if not each.isspace():
            found.append((each, place, place + 1))
    return found


def words_reference(text: str) -> list[Found]:
    """Words, and pairs of neighbours, the marks of beginning and end among them."""
    plain = normalised(text)
    words = words_of(plain)
    marked = [("BEGIN", -1, 0), *words, ("END", len(plain), len(plain) + 1)]
    pairs = [((left[0], right[0]), left[1], right[2]) for left, right in itertools.pairwise(marked)]
    return [((word,), begin, end) for word, begin, end in words] + pairs


def characters_reference(text: str) -> list[Found]:
    """Runs of 2 to 5 characters, the marks of beginning and end among them."""
    marked = ["BEGIN", *normalised(text), "END"]
    return [
        (tuple(marked[begin : begin + n]), begin - 1, begin - 1 + n)
        for n in range(2, 6)
        for begin in range(len(marked) - n + 1)
    ]


WAYS: dict[str, Any] = {
    "words": (word_ngrams, words_reference),
    "characters": (character_ngrams, characters_reference),
}


def each_text(found: TextNgrams, texts: int) -> list[list[tuple[int, int, int]]]:
    """Hashes and places, text by text."""
    assert len({len(each) for each in found}) == 1
    assert (np.diff(found.document) >= 0).all()
    rows: list[list[tuple[int, int, int]]] = [[] for _ in range(texts)]
    for key, document, start, end in zip(*(each.tolist() for each in found), strict=True):
        rows[document].append((key, start, end))
    return rows


def check(way: str, texts: list[str]) -> dict[tuple[str, ...], int]:
    """Compare with strings: the same places, and one hash for each string. Give the hash of each string."""
    find, reference = WAYS[way]
    found = find(code_points(texts))
    assert ((found.key >= 0) & (found.key < 1 << HASH_BITS)).all()
    hashes: dict[tuple[str, ...], int] = {}
    for text, rows in zip(texts, each_text(found, len(texts)), strict=True):
        expected: list[Found] = reference(text)
        assert Counter((start, end) for _, start, end in rows) == Counter((start, end) for _, start, end in expected)
        places: dict[tuple[int, int], set[int]] = {}
        for key, start, end in rows:
            places.setdefault((start, end), set()).add(key)
        for string, start, end in expected:
            there = places[start, end]
            if string in hashes:
                assert hashes[string] in there, string
            elif len(there) == 1:
                [hashes[string]] = there
    return hashes


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TEXTS)
def test_places_and_strings_are_those_of_plain_python(way: str, name: str) -> None:
    hashes = check(way, [TEXTS[name]])
    assert len(set(hashes.values())) == len(hashes), "different n-grams differ"


@pytest.mark.parametrize("way", WAYS)
def test_an_ngram_has_one_hash_wherever_it_stands_and_others_have_others(way: str) -> None:
    """In all of these texts together, with real-looking ones before and after."""
    texts = [*reviews(200, 1).texts, *TEXTS.values(), *reviews(50, 2).texts]
    hashes = check(way, texts)
    assert len(hashes) > 700
    assert len(set(hashes.values())) == len(hashes)


@pytest.mark.parametrize("way", WAYS)
def test_read_together_or_one_by_one_it_is_the_same(way: str) -> None:
    find, _ = WAYS[way]
    texts = [*TEXTS.values(), *reviews(5).texts]
    together = each_text(find(code_points(texts)), len(texts))
    assert together == [each_text(find(code_points([each])), 1)[0] for each in texts]
    assert each_text(find(code_points(texts[::-1])), len(texts)) == together[::-1]


@pytest.mark.parametrize("way", WAYS)
def test_no_text_has_no_ngrams(way: str) -> None:
    assert [each.tolist() for each in WAYS[way][0](code_points([]))] == [[], [], [], []]


def test_an_empty_text_is_its_two_marks() -> None:
    for find, _ in WAYS.values():
        found = find(code_points(["", "  ", "\x02"]))
        assert found.document.tolist() == [0, 1, 2]
        assert len(set(found.key.tolist())) == 1
        assert (found.start.tolist(), found.end.tolist()) == ([-1] * 3, [1] * 3)


def test_the_vocabulary_of_a_run_would_no_longer_fit_if_hashes_changed() -> None:
    """Hashes are kept in runs: these are what they were when the first was written."""
    words, characters = word_ngrams(code_points(["good film"])), character_ngrams(code_points(["ok"]))
    assert words.key.tolist() == [13624678437049, 278121680246988, 42595838140613, 60584902284182, 260155615206064]
    assert characters.key.tolist() == [
        254067678259683, 81281894061481, 44148019670596, 256607538363047, 153967934295875, 147697513534204,
    ]  # fmt: skip


def keys(text: str) -> list[list[int]]:
    return [find(code_points([text])).key.tolist() for find, _ in WAYS.values()]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("caf\u00e9", "cafe\u0301"),
        ("Great FILM", "great film"),
        ("  a \t film\n", "a film"),
        ("a\u3000film\u2028", "a film"),
        ("STRASSE straße", "strasse STRASSE"),
        ("ΟΔΟΣ οδος", "οδοσ ΟΔΟΣ"),
        ("H\u0331", "\u1e96"),
        ("ﬁlm Ｈ", "film h"),
        ("か\u3099", "が"),
        ("ﾃﾚﾋﾞ", "テレビ"),
        ("\u1112\u1161\u11ab", "한"),
        ("a\x02b\x03", "a b"),
    ],
)
def test_spellings_of_one_text_are_one_text(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
    assert keys(one) == keys(other)


def test_marks_inside_a_text_cannot_be_taken_for_its_own() -> None:
    (plain, _), (forged, _) = keys("film"), keys(f"a{BEGIN}film{END}b")
    begin_film, film_end = plain[1], plain[2]
    assert plain[0] in forged
    assert begin_film not in forged
    assert film_end not in forged


@pytest.mark.parametrize(("one", "other"), [("a b", "ab"), ("good film", "film good"), ("cafe", "café"), ("1", "2")])
def test_different_texts_differ(one: str, other: str) -> None:
    for mine, yours in zip(keys(one), keys(other), strict=True):
        assert set(mine) != set(yours)


def test_a_long_batch_after_a_short_one_has_the_same_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of powers grows with the longest batch."""
    monkeypatch.setattr(text_ngrams, "_grown", {})
    before = keys("good film")
    many = ["a" * 70_000, "good film"]
    for (find, _), expected in zip(WAYS.values(), before, strict=True):
        found = find(code_points(many))
        assert found.key[found.document == 1].tolist() == expected


anything = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("aAbB .,'\t\n\x02\x03\x00\u0301\u3099かｶﾞ´ΣςİıßﬁÅ\u1100\u1161\u11a8\ud800"),
    ),
    max_size=30,
)


@given(st.lists(anything, max_size=4))
def test_any_texts_are_read_as_lists_of_strings(texts: list[str]) -> None:
    for way in WAYS:
        check(way, texts)
        find, _ = WAYS[way]
        found = each_text(find(code_points(texts)), len(texts))
        assert found == [each_text(find(code_points([each])), 1)[0] for each in texts]


@given(anything)
def test_what_is_normalised_stays_as_it_is(text: str) -> None:
    plain = normalised(text)
    assert normalised(plain) == plain
    assert plain == " ".join(plain.split())
    assert BEGIN not in plain
    assert END not in plain
    assert unicodedata.is_normalized("NFKC", plain)


@given(anything)
def test_every_character_is_found_in_the_normalised_text(text: str) -> None:
    plain, places = normalised_places(text)
    assert plain == normalised(text)
    assert len(places) == len(text) + 1
    assert (np.diff(places) >= 0).all()
    assert (places[0], places[-1]) == (0, len(plain))
    covered = {at for begin, end in word_spans(text) for at in range(places[begin], places[end])}
    assert {at for at, each in enumerate(plain) if each != " "} <= covered, "every character belongs to a word"


def test_places_are_those_of_the_words() -> None:
    text = " Le CAFE\u0301  ﬁlm か\u3099 a´b\x02c"
    plain, places = normalised_places(text)
    found = [plain[places[begin] : places[end]] for begin, end in word_spans(text)]
    assert found == ["le", "café", "film", "が", "", "a", " \u0301", "b", " ", "c"]
