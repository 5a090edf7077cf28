"""Predictions as csv and jsonl: what is written can be read back, by our own reader and by Python's."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehead.errors import UserError
from rehead.text.documents import ReadOptions
from rehead.text.records import Record, Records
from rehead.use.predictions import Layout, Prediction, encoded, format_of_output


def record(**own: Any) -> Record:
    return Record(own.get("text", ""), own, "x.csv", 2)


def test_one_label_each() -> None:
    layout = Layout("csv", ["id", "text"], ["neg", "pos"], multilabel=False)
    row = layout.row(record(id=7, text='a "b", c'), Prediction(("pos",), [0.25, 0.75]))
    assert layout.header() + row == 'id,text,label,p_neg,p_pos\n7,"a ""b"", c",pos,0.250000,0.750000\n'
    assert layout.row(record(id=8, text=""), Prediction(None, None)) == "8,,,,\n"
    layout = Layout("jsonl", ["id", "text"], ["neg", "pos"], multilabel=False)
    assert layout.header() == ""
    assert json.loads(layout.row(record(id=7, text="é"), Prediction(("pos",), [0.25, 0.75]))) == {
        "id": 7,
        "text": "é",
        "label": "pos",
        "probabilities": {"neg": 0.25, "pos": 0.75},
    }
    empty = json.loads(layout.row(record(text=""), Prediction(None, None)))
    assert empty == {"text": "", "label": None, "probabilities": None}


def test_formulas_are_neutralised_for_a_spreadsheet() -> None:
    """In every cell that comes from the user: texts, labels, columns and their names."""
    given = record(id=-7, text="=cmd()", **{"@x": "\t=1"}), Prediction(("+a",), [0.25, 0.75])
    layout = Layout("csv", ["id", "text", "@x"], ["+a", "b"], multilabel=False, spreadsheet=True)
    assert layout.header() == "id,text,'@x,label,p_+a,p_b\n"
    assert layout.row(*given) == "-7,'=cmd(),'\t=1,'+a,0.250000,0.750000\n"
    layout = Layout("csv", ["id", "text", "@x"], ["+a", "b"], multilabel=False)
    assert layout.row(*given) == "-7,=cmd(),\t=1,+a,0.250000,0.750000\n"


def test_several_labels() -> None:
    said = [
        Prediction(("a", "c"), [0.9, 0.1, 0.8]),
        Prediction((), [0.1, 0.1, 0.1]),
        Prediction(("unsure",), [0.5] * 3),
    ]
    layout = Layout("csv", ["text"], ["a", "b", "c"], multilabel=True)
    assert layout.header() == "text,labels,p_a,p_b,p_c\n"
    assert [layout.row(record(text="x"), each).split(",")[1] for each in said] == ["a|c", "", "unsure"]
    layout = Layout("jsonl", ["text"], ["a", "b", "c"], multilabel=True)
    found = [json.loads(layout.row(record(text="x"), each))["labels"] for each in said]
    assert found == [["a", "c"], [], ["unsure"]]


def test_the_input_keeps_its_names() -> None:
    layout = Layout("csv", ["label", "predicted_label", "p_a", "text"], ["a", "b"], multilabel=False)
    assert layout.header() == "label,predicted_label,p_a,text,predicted_predicted_label,predicted_p_a,p_b\n"
    assert layout.renamed() == {"label": "predicted_predicted_label", "p_a": "predicted_p_a"}
    layout = Layout("jsonl", ["text", "label"], ["a", "b"], multilabel=False)
    row = json.loads(layout.row(record(text="x", label="old"), Prediction(("a",), [1.0, 0.0])))
    assert (row["label"], row["predicted_label"]) == ("old", "a")


def test_values_of_any_type_become_text() -> None:
    own = {
        "none": None,
        "yes": True,
        "list": [1, "é"],
        "day": datetime.date(2020, 2, 29),
        "bytes": b"a\xff",
        "nan": float("nan"),
        "text": "x",
    }
    layout = Layout("csv", list(own), ["a"], multilabel=False)
    (row,) = csv.reader([layout.row(record(**own), Prediction(("a",), [1.0]))])
    assert row == ["", "true", '[1, "é"]', "2020-02-29", "a\\xff", "nan", "x", "a", "1.000000"]
    layout = Layout("jsonl", list(own), ["a"], multilabel=False)
    found = json.loads(layout.row(record(**own), Prediction(("a",), [1.0])), parse_constant=pytest.fail)
    assert found["day"] == "2020-02-29"
    assert found["nan"] is None
    assert found["list"] == [1, "é"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_csv_can_be_read_back(cells: list[str]) -> None:
    layout = Layout("csv", [str(place) for place in range(len(cells))], ["a"], multilabel=False)
    own = {str(place): cell for place, cell in enumerate(cells)}
    row = layout.row(record(**own), Prediction(("a",), [1.0]))
    assert list(csv.reader(io.StringIO(row, newline=""), strict=True)) == [[*cells, "a", "1.000000"]]


def test_half_a_character_can_be_written(tmp_path: Path) -> None:
    own = {"text": "x", "name": "\ud83d!"}
    for format_ in ("csv", "jsonl"):
        layout = Layout(format_, list(own), ["a"], multilabel=False)  # type: ignore[arg-type]
        row = layout.header() + layout.row(record(**own), Prediction(("a",), [1.0]))
        (tmp_path / f"a.{format_}").write_bytes(encoded(row, compressed=False))
        (back,) = Records(tmp_path / f"a.{format_}", ReadOptions())
        assert back.columns["name"] == ("\ud83d!" if format_ == "jsonl" else "\\ud83d!")


def test_compressed_pieces_stand_behind_each_other() -> None:
    pieces = [encoded(each, compressed=True) for each in ("ab\n", "", "c\n")]
    assert gzip.decompress(b"".join(pieces)) == b"ab\nc\n"
    assert pieces[0] == encoded("ab\n", compressed=True)


def test_what_to_write_is_told_by_the_ending() -> None:
    assert format_of_output(Path("a.csv"), None, {"jsonl"}) == ("csv", False)
    assert format_of_output(Path("a.JSONL.gz"), None, {"csv"}) == ("jsonl", True)
    assert format_of_output(Path("a.out"), "csv", set()) == ("csv", False)
    assert format_of_output(None, None, {"jsonl"}) == ("jsonl", False)
    assert format_of_output(None, None, {"jsonl", "csv"}) == ("csv", False)
    with pytest.raises(UserError, match=r"--out a\.xlsx: .*--format"):
        format_of_output(Path("a.xlsx"), None, {"csv"})
