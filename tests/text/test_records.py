"""Rows keep their own columns, their order and their number."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from rehead.errors import UserError
from rehead.text.documents import ReadOptions
from rehead.text.records import Records


def read(path: Path, **options: object) -> list[tuple[str, dict[str, object]]]:
    return [(each.text, each.columns) for each in Records(path, ReadOptions(**options))]  # type: ignore[arg-type]


def test_a_table_keeps_its_columns(tmp_path: Path) -> None:
    rows = [{"id": "1", "text": "one, two", "note": ""}, {"id": "2", "text": 'a "b"\r\nc', "note": "n"}]
    (tmp_path / "a.csv").write_bytes(b'id,text,note\n1,"one, two",\n2,"a ""b""\r\nc",n\n')
    (tmp_path / "a.tsv").write_bytes(b'id\ttext\tnote\n1\tone, two\t\n2\t"a ""b""\r\nc"\tn\n')
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    for name in ("a.csv", "a.tsv", "a.jsonl.gz"):
        assert read(tmp_path / name) == [(row["text"], row) for row in rows], name
        assert Records(tmp_path / name, ReadOptions()).columns() == ["id", "text", "note"]


def test_parquet_keeps_values_of_any_type(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"text": ["x", None], "n": [1, 2], "tags": [["a"], []], "bytes": [b"\xff", b""]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [
        ("x", {"text": "x", "n": 1, "tags": ["a"], "bytes": b"\xff"}),
        ("", {"text": None, "n": 2, "tags": [], "bytes": b""}),
    ]
    assert Records(tmp_path / "a.parquet", ReadOptions()).columns() == list(columns)


def test_an_empty_text_is_a_row_and_a_blank_line_of_a_table_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,x\n\n2,  \n3,y\n\n")
    records = Records(tmp_path / "a.csv", ReadOptions())
    assert [(each.text, each.columns["id"], each.line) for each in records] == [
        ("x", "1", 2),
        ("", "2", 4),
        ("y", "3", 5),
    ]
    assert records.skipped == {"blank line": 2}
    records = Records(tmp_path / "a.csv", ReadOptions(skip_empty=True))
    assert [each.columns["id"] for each in records] == ["1", "3"]
    assert records.skipped == {"blank line": 2, "empty text": 1}


def test_lines_stay_side_by_side_with_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n \ntwo\n\n\n")
    records = list(Records(tmp_path / "a.txt", ReadOptions()))
    assert [(each.line, each.text, each.columns) for each in records] == [
        (1, "one", {"text": "one"}),
        (2, "", {"text": ""}),
        (3, "", {"text": ""}),
        (4, "two", {"text": "two"}),
    ]
    assert read(tmp_path / "a.txt", skip_empty=True) == [("one", {"text": "one"}), ("two", {"text": "two"})]


def test_no_row_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "a.csv").write_text("id,text\n")
    assert read(tmp_path / "a.txt") == read(tmp_path / "a.csv") == []
    assert Records(tmp_path / "a.csv", ReadOptions()).columns() == ["id", "text"]


def test_columns_of_jsonl_are_those_of_all_objects(tmp_path: Path) -> None:
    lines = [json.dumps({"text": "x"})] * 300 + [json.dumps({"late": 1, "text": "y"})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert Records(tmp_path / "a.jsonl", ReadOptions()).columns() == ["text", "late"]


def test_of_several_files_each_row_names_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,x\n")
    (tmp_path / "b.txt").write_text("y\n\nz\n")
    records = Records(tmp_path, ReadOptions())
    a, b = str(tmp_path / "a.csv"), str(tmp_path / "b.txt")
    assert [(each.text, each.columns) for each in records] == [
        ("x", {"file": a, "id": "1", "text": "x"}),
        ("y", {"file": b, "text": "y"}),
        ("", {"file": b, "text": ""}),
        ("z", {"file": b, "text": "z"}),
    ]
    assert records.columns() == ["file", "id", "text"]
    (tmp_path / "c.csv").write_text("file,text\n1,x\n")
    with pytest.raises(UserError, match=r"c\.csv: has a column 'file'"):
        list(records := Records(tmp_path, ReadOptions()))


def test_columns_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,,\nx,1,2\n")
    with pytest.raises(UserError, match="line 1: two columns are called ''"):
        read(tmp_path / "a.csv")


def test_a_missing_text_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,words\n1,x\n")
    with pytest.raises(UserError, match="cannot tell which column holds the text"):
        read(tmp_path / "a.csv")
    assert read(tmp_path / "a.csv", text_column="words") == [("x", {"id": "1", "words": "x"})]
