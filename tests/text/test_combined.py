"""Labelled and unlabelled texts as one corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehead.text.combined import LABELLED, LEFT_OUT, CombinedTexts
from rehead.text.documents import ReadOptions
from rehead.text.readers import Texts

LABELLED_TEXTS = ["a film", "  ", "a book\nof two lines", "a film"]
MORE = ["a film", "seen in validation", "", "new", "new", "a book"]


@pytest.fixture(params=["file", "memory"])
def more(request: pytest.FixtureRequest, tmp_path: Path) -> Texts | list[str]:
    if request.param == "memory":
        return MORE
    (tmp_path / "more.txt").write_text("\n".join(MORE), encoding="utf-8")
    return Texts(str(tmp_path / "more.txt"), ReadOptions(skip_empty=True))


def test_labelled_texts_count_once_and_those_of_validation_never(more: Texts | list[str]) -> None:
    texts = CombinedTexts(LABELLED_TEXTS, more, leave_out=["seen in validation", "elsewhere"])
    for _ in range(2):
        assert [each.text for each in texts] == ["a film", "a book\nof two lines", "a film", "new", "new", "a book"]
        assert texts.skipped == {"empty text": 2, LABELLED: 1, LEFT_OUT: 1}
        assert texts.bytes_read >= sum(map(len, LABELLED_TEXTS)) + sum(map(len, MORE))
        assert texts.bytes_read == texts.total_bytes


def test_labelled_texts_alone() -> None:
    texts = CombinedTexts(["é", "b"])
    assert [each.text for each in texts] == ["é", "b"]
    assert texts.total_bytes == texts.bytes_read == 3


def test_the_fingerprint_is_that_of_all_texts(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a\nb\n", encoding="utf-8")
    (tmp_path / "two.txt").write_text("a\nc\n", encoding="utf-8")
    made = [
        CombinedTexts(["a"], ["b"]),
        CombinedTexts(["a", "b"]),
        CombinedTexts(["a"], ["b"], leave_out=["c"]),
        CombinedTexts(["a"], leave_out=["b"]),
        CombinedTexts(["a"], Texts(str(tmp_path / "one.txt"))),
        CombinedTexts(["a"], Texts(str(tmp_path / "two.txt"))),
    ]
    assert len({each.fingerprint() for each in made}) == len(made)
    assert made[0].fingerprint() == CombinedTexts(["a"], ["b"]).fingerprint()
