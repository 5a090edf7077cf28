"""Texts are copied once, read one by one, and never mistaken for anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rehead.errors import DamagedError, UserError
from rehead.label.texts import TextStore, copy_texts
from rehead.text.documents import ReadOptions
from rehead.text.labelled import read_examples


def stored(folder: Path, content: str, name: str = "a.csv", **options: str) -> TextStore:
    (folder / name).write_text(content, encoding="utf-8")
    for _ in copy_texts([str(folder / name)], ReadOptions(), folder / "texts.jsonl", **options):  # type: ignore[arg-type]
        pass
    return TextStore(folder / "texts.jsonl")


def test_every_distinct_text_is_there_with_its_place(tmp_path: Path) -> None:
    store = stored(tmp_path, 'text\none\ntwo\n"one"\n" two  "\n"three\nlines"\n')
    assert [store[number].text for number in range(len(store))] == ["one", "two", "three\nlines"]
    assert store[1].source.endswith("a.csv line 3")


@pytest.mark.parametrize("text", ["<b>x</b>", '"given": ["good"]', "=1+1", "\u2028 line", "🎬 \\u0041", "a\\nb"])
def test_a_text_is_only_text(tmp_path: Path, text: str) -> None:
    store = stored(tmp_path, json.dumps({"text": text}) + "\n", "a.jsonl")
    assert store[0].text == text
    assert store.given == {}


def test_suggestions_and_labels_come_along(tmp_path: Path) -> None:
    (tmp_path / "known.csv").write_text("text,label\ntwo,good\nelsewhere,bad\n", encoding="utf-8")
    known = read_examples(str(tmp_path / "known.csv"), check=False)
    (tmp_path / "a.csv").write_text("text,rule,sure\none,good,0.8\ntwo,,\n", encoding="utf-8")
    *_, found = copy_texts(
        [str(tmp_path / "a.csv")],
        ReadOptions(),
        tmp_path / "t",
        labelled=known,
        suggested="rule",
        confidence="sure",
    )
    store = TextStore(tmp_path / "t")
    assert (found.texts, found.extra) == (2, 1)
    assert (store[0].suggested, store[0].confidence) == (("good",), 0.8)
    assert store[1].suggested is None
    assert store.given == {1: ("good",), 2: ("bad",)}
    assert store.extra == {2}
    assert store.suggested == {"good"}
    assert store.asked(0).tolist() == [0, 1]


def test_a_random_sample_of_many_is_asked(tmp_path: Path) -> None:
    store = stored(tmp_path, "text\n" + "\n".join(f"text {each}" for each in range(200)) + "\n")
    some = store.asked(0, most=50)
    assert len(set(some.tolist())) == 50
    assert (store.asked(0, most=50) == some).all()
    assert not (store.asked(1, most=50) == some).all()


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no column 'rule'\. There are: text"):
        stored(tmp_path, "text\none\n", suggested="rule")
    with pytest.raises(UserError, match="confidence is not a number"):
        stored(tmp_path, "text,rule,sure\none,good,very\n", suggested="rule", confidence="sure")
    with pytest.raises(UserError, match="all texts are empty"):
        stored(tmp_path, "text\n \n")


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    store = stored(tmp_path, "text\none\ntwo\n")
    data = (tmp_path / "texts.jsonl").read_bytes().replace(b'"two"', b'"two ')
    (tmp_path / "texts.jsonl").write_bytes(data)
    with pytest.raises(DamagedError, match="line 2"):
        TextStore(tmp_path / "texts.jsonl")[1]
    store.close()
