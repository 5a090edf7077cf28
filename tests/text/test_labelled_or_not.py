"""What is taken for a labelled set, why something is not, and what is neither: a mistake."""

from __future__ import annotations

import io
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from rehead.errors import UserError
from rehead.text.documents import ReadOptions
from rehead.text.labelled import read_examples
from rehead.text.labelled_files import detect_labels
from rehead.text.readers import Texts
from rehead.text.sources import spool
from tests.text.reading import write

pytestmark = pytest.mark.usefixtures("here")


def test_why_something_is_read_without_labels() -> None:
    options = ReadOptions()
    write("data/a.csv", "text,label\none,x\n")
    assert detect_labels("data", options) == (True, "", {"csv"})
    write("data/more.csv", "text,date\none,x\n")
    why = "data/more.csv has no label column (there are: text, date), so {} is read without labels."
    assert detect_labels("data/more.csv", options) == (False, why.format("it"), {"csv"})
    assert detect_labels("data", options) == (False, why.format("all of data"), {"csv"})
    assert detect_labels("data/*.csv", options) == (False, why.format("all of data/*.csv"), {"csv"})
    assert detect_labels("data/more.csv", ReadOptions(label_column="date")) == (True, "", {"csv"})
    write("a.txt", "one\n")
    write("alone.spm", "▁one\n")
    assert detect_labels("a.txt", options) == (False, "", {"txt"})
    assert detect_labels("alone.spm", options) == (False, "", {"spm"})
    write("b.csv", "label,body\none,two\n")
    assert detect_labels("b.csv", ReadOptions(text_column="label")).reason.startswith("b.csv has no label column")


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("a.csv", "text,label,Label\none,x,y\n", "a.csv line 1: 'label' and 'Label' may both hold the label."),
        ("a.csv", "text;label\none;x\n", "a.csv line 1: the header is one column, 'text;label'"),
        ("a.csv", 'text,label\n"one,x\n', "a.csv line 2: the quote that opens here is not closed"),
        ("a.jsonl", '{"text": "one"}\n{"text": "two", "label": "x"}\n', "a.jsonl line 1: no 'label' in this object."),
        ("none.csv", None, "none.csv: no such file or folder."),
    ],
)
def test_mistakes_are_not_taken_for_no_labels(name: str, data: str | None, complaint: str) -> None:
    if data is not None:
        write(name, data)
    with pytest.raises(UserError) as caught:
        detect_labels(name, ReadOptions())
    assert str(caught.value).startswith(complaint)


def test_labels_that_begin_late() -> None:
    bare, labelled = '{"text": "one"}\n', '{"text": "two", "label": "x"}\n'
    skip = ReadOptions(skip_empty=True)
    assert detect_labels(write("a.jsonl", bare * 99 + labelled), skip).labelled
    assert read_examples("a.jsonl", skip, check=False).skipped == Counter({"empty label": 99})
    assert detect_labels(write("b.jsonl", bare * 100 + labelled), skip).reason == (
        "b.jsonl has no label column (there are: text), so it is read without labels."
    )


@pytest.mark.parametrize(
    ("kind", "data", "labelled"),
    [
        ("csv", b"text,label\none,x\n", True),
        ("csv", b"text,date\none,x\n", False),
        ("jsonl", b'{"text": "one", "label": "x"}\n', True),
        (None, b"one\n", False),
    ],
)
def test_standard_input_is_looked_at_when_held(
    monkeypatch: pytest.MonkeyPatch, kind: Any, data: bytes, labelled: bool
) -> None:
    options = ReadOptions(input_format=kind)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert not detect_labels("-", options).labelled, "by name, it is not read"
    held = spool("-", options)
    assert detect_labels(held, options).labelled == labelled
    if labelled:
        assert next(iter(read_examples(held, options, check=False)))[:3] == ("one", ("x",), "-")
    else:
        assert [document.text for document in Texts(held, options)] == ["one"]
