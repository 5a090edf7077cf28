"""Labelled text: every kind of set against a hand-written result, and every mistake against its one line."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rehead.errors import UserError
from rehead.text.documents import Example, ReadOptions
from rehead.text.labelled import check_classes, read_examples, sort_names
from rehead.text.labelled_files import detect_labels
from tests.text.reading import write

pytestmark = pytest.mark.usefixtures("here")


def read(*paths: str, check: bool = False, **options: object) -> list[tuple[str, tuple[str, ...], str, int]]:
    return [tuple(each) for each in read_examples(paths, ReadOptions(**options), check=check)]  # type: ignore[misc]


def error(*paths: str, check: bool = True, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        read(*paths, check=check, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The kinds of sets


def test_csv() -> None:
    write("a.csv", 'label,text\npos,"good,\nvery"\nneg,bad\npos,fine\nneg,poor\n')
    data = read_examples("a.csv")
    assert data.texts == ["good,\nvery", "bad", "fine", "poor"]
    assert data.labels == [("pos",), ("neg",), ("pos",), ("neg",)]
    assert data.names == ["neg", "pos"]
    assert data.multilabel is False
    assert data.sources == [("a.csv", 2), ("a.csv", 4), ("a.csv", 5), ("a.csv", 6)]
    assert data.skipped == Counter()
    assert len(data) == 4
    assert list(data)[1] == Example(text="bad", labels=("neg",), source="a.csv", line=4)


def test_tsv_with_given_columns() -> None:
    write("a.tsv", "phrase\tverdict\tlabel\none\tyes\tx\ntwo\tno\ty\n")
    assert read("a.tsv", text_column="phrase", label_column="Verdict") == [
        ("one", ("yes",), "a.tsv", 2),
        ("two", ("no",), "a.tsv", 3),
    ]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ('"pos"', "pos"),
        ('" pos "', "pos"),
        ('"1"', "1"),
        ("1", "1"),
        ("1.0", "1.0"),
        ("-2", "-2"),
        ("3.5", "3.5"),
        ("true", "true"),
        ("false", "false"),
        ("1e300", "1e+300"),
    ],
)
def test_label_names_in_jsonl(value: str, name: str) -> None:
    write("a.jsonl", f'{{"sentence": "one", "class": {value}}}\n')
    assert read("a.jsonl") == [("one", (name,), "a.jsonl", 1)]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["pos", "neg"], ["pos", "neg"]),
        ([1, 0], ["1", "0"]),
        ([1.0, 2.5], ["1.0", "2.5"]),
        ([True, False], ["true", "false"]),
    ],
)
def test_label_names_in_parquet(labels: list[Any], names: list[str]) -> None:
    pq.write_table(pa.table({"label": labels, "text": ["one", "two"]}), "a.parquet")
    assert read("a.parquet") == [("one", (names[0],), "a.parquet", 1), ("two", (names[1],), "a.parquet", 2)]


def test_label_columns_by_priority() -> None:
    write("a.csv", "target,Label,text\nt,l,x\n")
    assert read("a.csv") == [("x", ("l",), "a.csv", 2)]
    write("b.csv", "Sentiment,text,id\ns,x,1\n")
    assert read("b.csv") == [("x", ("s",), "b.csv", 2)]


def test_a_folder_per_class() -> None:
    write("set/pos/1.txt", "good\nbook\n")
    write("set/pos/deep/2.txt.gz", gzip.compress(b"fine"))
    write("set/neg/1", "bad\n")
    write("set/neg/.hidden", "no")
    write("set/neg/cover.png", b"\x89PNG")
    write("set/README.txt", "about")
    data = read_examples("set", check=False)
    assert list(data) == [
        ("bad", ("neg",), "set/neg/1", 1),
        ("good\nbook", ("pos",), "set/pos/1.txt", 1),
        ("fine", ("pos",), "set/pos/deep/2.txt.gz", 1),
    ]
    assert data.skipped == Counter(
        {"hidden file": 1, "file with the extension .png": 1, "file beside the class folders": 1}
    )
    assert [text for text, *_ in read("set", documents="line")] == ["bad", "good", "book", "fine"]


def test_a_folder_of_parts_is_not_one_of_classes() -> None:
    for part in ("test", "train"):
        for name in ("neg", "pos"):
            write(f"set/{part}/{name}/1.txt", "text")
    assert error("set") == (
        "set: its subfolders all have the same subfolders, so they look like splits, not classes. "
        "Name one of them, such as set/test."
    )


def test_a_folder_of_tables() -> None:
    write("set/b.jsonl", '{"text": "two", "label": "y"}\n')
    write("set/a.csv", "text,label\none,x\n")
    write("set/notes.txt", "n")
    data = read_examples("set", check=False)
    assert list(data) == [("one", ("x",), "set/a.csv", 2), ("two", ("y",), "set/b.jsonl", 1)]
    assert data.skipped == Counter({"file with the extension .txt": 1})


@pytest.mark.parametrize("given", ["a.review.spm", "a.label", "a", "b.spm", "b", "b.label.gz"])
def test_pieces_with_labels(given: str) -> None:
    write("a.review.spm", "▁good ▁book s\n▁bad\n")
    write("a.label", "1\r\n0\n\n")
    write("b.spm", "▁good ▁book s\n▁bad\n")
    write("b.label.gz", gzip.compress(b"1\n0\n"))
    file = "a.review.spm" if given.startswith("a") else "b.spm"
    assert read(given) == [("good books", ("1",), file, 1), ("bad", ("0",), file, 2)]


def test_several_sets_at_once() -> None:
    write("a.csv", "text,label\none,1\n")
    write("b.csv", "text,label\ntwo,10\nthree,9\n")
    data = read_examples(["b.csv", "a.csv"], check=False)
    assert data.texts == ["two", "three", "one"]
    assert data.names == ["1", "9", "10"]


def test_the_same_file_twice() -> None:
    write("a.csv", "text,label\none,1\n")
    data = read_examples(["a.csv", "./a.csv", "*.csv"], check=False)
    assert data.texts == ["one"]
    assert data.skipped == Counter({"file named twice": 2})


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"text,label\none,x\n")))
    assert read("-", input_format="csv") == [("one", ("x",), "-", 2)]
    assert error("-") == "-: txt files have no labels. Give csv, tsv, jsonl, parquet, or set --input-format."


def test_real_pairs(shared_data: Path) -> None:
    for part, size in (("train", 1600), ("valid", 400)):
        data = read_examples(shared_data / "cls-books" / part)
        assert len(data) == size
        assert Counter(data.labels) == {("0",): size // 2, ("1",): size // 2}
        assert data.names == ["0", "1"]
        assert not any("▁" in text for text in data.texts)
    assert data.labels[:3] == [
        (line,) for line in (shared_data / "cls-books/valid.label").read_text(encoding="utf-8").split()[:3]
    ]


def test_real_pairs_in_a_folder_or_glob(shared_data: Path) -> None:
    folder = shared_data / "cls-books"
    for name, left_out in ((folder, 2), (f"{folder}/*.spm", 0), (f"{folder}/*.label", 0), (f"{folder}/*", 2)):
        assert detect_labels(name, ReadOptions()).labelled
        data = read_examples([name])
        assert (len(data), data.skipped.total()) == (2000, left_out)
    assert data.skipped == Counter({"file with the extension .txt": 1, "file with the extension .model": 1})


def test_pairs_in_a_folder() -> None:
    write("set/a.review.spm.gz", gzip.compress("▁one\n".encode()))
    write("set/a.label", "x\n")
    write("set/b.csv", "text,label\ntwo,y\n")
    write("set/c.spm", "▁three\n")
    write("set/c.label", "z\n")
    write("set/alone.spm", "▁no\n")
    write("set/dict.txt", "no\n")
    for name in ("set", "set/*"):
        data = read_examples(name, check=False)
        assert list(data) == [
            ("one", ("x",), "set/a.review.spm.gz", 1),
            ("two", ("y",), "set/b.csv", 2),
            ("three", ("z",), "set/c.spm", 1),
        ]
        assert data.skipped == Counter({"half of a pair": 1, "file with the extension .txt": 1})
        assert detect_labels(name, ReadOptions()) == (True, "", {"spm", "csv"})
    data = read_examples(["set/a.label", "set/a.review.spm.gz", "set/*.spm"], check=False)
    assert data.texts == ["one", "three"], "a pair named by both of its files counts once"
    assert data.skipped == Counter({"half of a pair": 1})


# Several labels


def test_a_single_label_may_hold_a_bar() -> None:
    write("a.csv", "text,label\none,a|b\ntwo,a\n")
    data = read_examples("a.csv", ReadOptions(single_label=True), check=False)
    assert (data.multilabel, data.labels, data.names) == (False, [("a|b",), ("a",)], ["a", "a|b"])
    write("a.jsonl", '{"text": "1", "label": ["a|b"]}\n{"text": "2", "label": "c"}\n')
    data = read_examples("a.jsonl", ReadOptions(single_label=True), check=False)
    assert (data.multilabel, data.labels) == (False, [("a|b",), ("c",)])
    write("b.jsonl", '{"text": "1", "label": ["a"]}\n{"text": "2", "label": ["a", "b"]}\n')
    assert error("b.jsonl", single_label=True) == ("b.jsonl line 2: 2 labels. Keep one, or leave --single-label out.")
    write("c.jsonl", '{"text": "1", "label": []}\n')
    assert error("c.jsonl", single_label=True).startswith("c.jsonl line 1: label is empty.")


def test_labels_in_a_list() -> None:
    write(
        "a.jsonl",
        '{"text": "1", "labels": ["b", "a", "b"]}\n{"text": "2", "labels": []}\n{"text": "3", "labels": "c"}\n',
    )
    data = read_examples("a.jsonl", check=False)
    assert data.multilabel
    assert data.labels == [("b", "a"), (), ("c",)]
    assert data.names == ["a", "b", "c"]


def test_labels_in_a_parquet_list() -> None:
    pq.write_table(pa.table({"text": ["one", "two"], "labels": [[2, 10], []]}), "a.parquet")
    data = read_examples("a.parquet", check=False)
    assert (data.multilabel, data.labels, data.names) == (True, [("2", "10"), ()], ["2", "10"])


def test_labels_with_a_bar_between() -> None:
    write("a.csv", "text,label\none,a| b\ntwo,a\nthree,b|b\n")
    data = read_examples("a.csv")
    assert (data.multilabel, data.labels, data.names) == (True, [("a", "b"), ("a",), ("b",)], ["a", "b"])


@pytest.mark.parametrize("label", ['["a", ""]', '["a", null]', '"a|"', '"|"'])
def test_an_empty_label_among_several(label: str) -> None:
    write("a.jsonl", f'{{"text": "one", "label": {label}}}\n')
    assert error("a.jsonl") == "a.jsonl line 1: one of the labels is empty. Name it, or remove it."


# Mistakes


@pytest.mark.parametrize("label", ['""', '"  "', "null", "NaN"])
def test_empty_labels(label: str) -> None:
    write("a.jsonl", f'{{"text": "one", "label": "x"}}\n{{"text": "two", "label": {label}}}\n')
    assert error("a.jsonl") == (
        "a.jsonl line 2: label is empty. Give every text a label, or drop those without with --skip-empty."
    )
    data = read_examples("a.jsonl", ReadOptions(skip_empty=True), check=False)
    assert data.texts == ["one"]
    assert data.skipped == Counter({"empty label": 1})


def test_empty_texts() -> None:
    write("a.csv", "text,label\n ,x\none,y\n,\n")
    assert error("a.csv").startswith("a.csv line 2: empty text.")
    data = read_examples("a.csv", ReadOptions(skip_empty=True), check=False)
    assert data.texts == ["one"]
    assert data.skipped == Counter({"empty text": 2})
    write("b.csv", "text,label\n ,x\n")
    assert error("b.csv", skip_empty=True) == "b.csv: all texts are empty, so there are no examples."


@pytest.mark.parametrize("label", ['{"a": 1}', "[[1]]"])
def test_labels_that_are_none(label: str) -> None:
    write("a.jsonl", f'{{"text": "one", "label": {label}}}\n')
    assert error("a.jsonl").startswith("a.jsonl line 1: a label is of type ")


def test_half_a_character_in_a_label() -> None:
    write("a.jsonl", '{"text": "one", "label": "\\udc00"}\n')
    assert error("a.jsonl").startswith("a.jsonl line 1: \\udc00 is a lone surrogate")


def test_columns_that_are_not_there() -> None:
    write("a.csv", "text,verdict\none,x\n")
    choose = "There are: text, verdict. Choose one of them with --label-column."
    assert error("a.csv") == f"a.csv line 1: cannot tell which column holds the label. {choose}"
    assert error("a.csv", label_column="x") == f"a.csv line 1: no column 'x'. {choose}"
    assert error("a.csv", label_column="text") == (
        "a.csv line 1: 'text' cannot be both text and label: see --text-column, --label-column."
    )
    write("a.jsonl", '{"text": "one", "label": "x"}\n{"text": "two"}\n')
    assert error("a.jsonl") == (
        "a.jsonl line 2: no 'label' in this object. There are: text. "
        "Give every object one, or drop those without with --skip-empty."
    )
    data = read_examples("a.jsonl", ReadOptions(skip_empty=True), check=False)
    assert (data.texts, data.skipped) == (["one"], Counter({"empty label": 1}))


def test_one_class_only() -> None:
    write("a.csv", "text,label\none,x\ntwo,x\n")
    assert error("a.csv") == "a.csv: all 2 examples have the same label, 'x'. Give at least two classes."
    write("b.csv", "text,label\nthree,x\n")
    assert error("a.csv", "b.csv").startswith("a.csv and 1 more: all 3 examples have the same label, 'x'.")
    assert len(read("a.csv", check=False)) == 2
    write("a.jsonl", '{"text": "one", "label": ["x"]}\n{"text": "two", "label": []}\n{"text": "two", "label": ["x"]}\n')
    assert len(read("a.jsonl", check=True)) == 3, "with or without the one label: two classes"
    write("b.jsonl", '{"text": "one", "label": []}\n')
    assert error("b.jsonl") == "b.jsonl: no example has a label. Give at least two classes."


def test_a_class_with_a_single_example() -> None:
    write("a.csv", "text,label\none,x\ntwo,y\nthree,x\n")
    message = error("a.csv")
    assert message.startswith("a.csv line 3: the only example of the class 'y'")
    with pytest.raises(UserError) as caught:
        check_classes(read_examples("a.csv", check=False))
    assert str(caught.value) == message


def test_pairs_of_different_lengths() -> None:
    write("a.review.spm", "▁one\n▁two\n▁three\n")
    write("a.label", "1\n0\n")
    assert error("a") == (
        "a.review.spm has 3 texts, but a.label has 2 labels: a.review.spm line 3 has no counterpart. "
        "Line counts must agree."
    )
    write("a.label", "1\n0\n1\n0\n")
    assert "a.label line 4" in error("a")


def test_blanks_in_pairs_keep_their_place() -> None:
    write("a.review.spm", "▁one\n\n▁three\n▁four\n")
    write("a.label", "1\n0\n\n4\n")
    assert error("a").startswith("a.review.spm line 2: empty text.")
    data = read_examples("a", ReadOptions(skip_empty=True), check=False)
    assert list(data) == [("one", ("1",), "a.review.spm", 1), ("four", ("4",), "a.review.spm", 4)]
    assert data.skipped == Counter({"empty text": 1, "empty label": 1})


def test_half_a_pair() -> None:
    write("a.review.spm", "▁one\n")
    write("b.label", "1\n")
    for name in ("a", "a.review.spm", "a.label"):
        assert error(name) == ("a.review.spm: needs a.label, which does not exist. Add it, or leave a.review.spm out.")
    assert error("b").startswith("b.label: needs b.review.spm, which does not exist.")
    assert error("cc.label") == "cc.label: no such file or folder. Check the path."


def test_files_that_hold_no_labels() -> None:
    write("a.txt", "one\n")
    assert error("a.txt") == "a.txt: txt files have no labels. Give csv, tsv, jsonl, parquet, or set --input-format."
    assert error("none.csv") == "none.csv: no such file or folder. Check the path."
    write("texts/a.txt", "one\n")
    for name in ("texts", "texts/*"):
        assert error(name) == (
            f"{name}: contains no labelled text. "
            "Give csv, tsv, jsonl, parquet, a subfolder for each class, or X.review.spm with X.label."
        )
    assert error("") == "a file name is empty: give a file, a folder, or - for standard input."
    assert error() == "no file to read: give a file, a folder, or - for standard input."
    write("set/x/1.pdf", "one")
    assert error("set") == "set/x: no text in this class folder. Add examples, or remove it."


# Names and fingerprints


@pytest.mark.parametrize(
    ("names", "order"),
    [
        ({"10", "9", "-1", "2.5"}, ["-1", "2.5", "9", "10"]),
        ({"10", "9", "b"}, ["10", "9", "b"]),
        ({"1", "1.0"}, ["1", "1.0"]),
        ({"nan", "1", "-2"}, ["-2", "1", "nan"]),
        (set(), []),
    ],
)
def test_the_order_of_names(names: set[str], order: list[str]) -> None:
    assert sort_names(names) == order


def test_the_fingerprint_follows_texts_and_labels() -> None:
    contents = ["one,x\ntwo,y\n", "two,y\none,x\n", "one,y\ntwo,x\n", "one,x\ntwo!,y\n"]
    prints = [read_examples(write("a.csv", "text,label\n" + each), check=False).fingerprint() for each in contents]
    assert len(set(prints)) == len(contents)
    same = read_examples(write("b.jsonl", '{"text":"one","label":"x"}\n{"text":"two","label":"y"}\n'), check=False)
    assert same.fingerprint() == prints[0]


names = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="|"), min_size=1).map(str.strip).filter(bool)
)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: not text.isspace())


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.tuples(texts, st.lists(names, max_size=3, unique=True)), min_size=1, max_size=5))
def test_any_label_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, list[str]]]) -> None:
    folder = tmp_path_factory.mktemp("labels")
    (folder / "a.jsonl").write_text(
        "".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows), encoding="utf-8"
    )
    pq.write_table(
        pa.table(
            {"text": [text for text, _ in rows], "labels": pa.array([each for _, each in rows], pa.list_(pa.string()))}
        ),
        folder / "a.parquet",
    )
    for file in ("a.jsonl", "a.parquet"):
        data = read_examples(folder / file, check=False)
        assert list(zip(data.texts, data.labels, strict=True)) == [(text, tuple(labels)) for text, labels in rows]
        assert set(data.names) == {name for _, labels in rows for name in labels}
