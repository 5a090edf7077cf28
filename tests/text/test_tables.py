"""Tables: every format against a hand-written result, and every mistake against its one line."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rehead.text.documents import ReadOptions, location
from rehead.text.readers import Texts
from tests.text.reading import error, read, write

pytestmark = pytest.mark.usefixtures("here")


def test_csv() -> None:
    write("a.csv", 'id,Review\n1,"one, ""really""\r\nover two lines"\r\n2,two\n3,"three"')
    assert read("a.csv") == [
        ('one, "really"\r\nover two lines', "a.csv", 2),
        ("two", "a.csv", 4),
        ("three", "a.csv", 5),
    ]


def test_csv_with_old_line_ends() -> None:
    write("a.csv", 'text\rone\r"two\rlines"\rthree\r')
    assert read("a.csv") == [("one", "a.csv", 2), ("two\rlines", "a.csv", 3), ("three", "a.csv", 5)]


def test_tsv() -> None:
    write("a.tsv", 'text\tn\none, two\t1\n"three\tfour"\t2\n5" disk\t3\n')
    assert [text for text, _, _ in read("a.tsv")] == ["one, two", "three\tfour", '5" disk']


def test_jsonl() -> None:
    write("a.jsonl", '{"text": "one\\nline", "n": 1}\r\n {"n": 2, "text": "\\ud83d\\ude42 \\u0000"} \n\n')
    assert read("a.jsonl") == [("one\nline", "a.jsonl", 1), ("🙂 \0", "a.jsonl", 2)]


def test_parquet() -> None:
    table = pa.table({"n": list(range(200)), "body": [f"text {number}\r\n" for number in range(200)]})
    pq.write_table(table, "a.parquet", row_group_size=70)
    assert read("a.parquet") == [(f"text {number}\r\n", "a.parquet", number + 1) for number in range(200)]
    assert location("a.parquet", 3) == "a.parquet row 3"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet_types(kind: pa.DataType) -> None:
    pq.write_table(pa.table({"text": pa.array(["é", "漢"]).cast(kind)}), "a.parquet")
    assert [text for text, _, _ in read("a.parquet")] == ["é", "漢"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b"one\ntwo\n"),
        ("a.csv", b"text\none\ntwo\n"),
        ("a.tsv", b"text\none\ntwo\n"),
        ("a.jsonl", b'{"text": "one"}\n{"text": "two"}\n'),
        ("a.parquet", None),
    ],
)
def test_every_format_also_compressed(name: str, data: bytes | None) -> None:
    if data is None:
        pq.write_table(pa.table({"text": ["one", "two"]}), "plain")
        data = Path("plain").read_bytes()
    write(name + ".gz", gzip.compress(data))
    write(name + ".zst", zstandard.ZstdCompressor().compress(data))
    for packed in (name + ".gz", name + ".zst"):
        texts = Texts(packed)
        assert [document.text for document in texts] == ["one", "two"]
        assert texts.bytes_read == texts.total_bytes == Path(packed).stat().st_size


def test_columns_by_priority_and_by_name() -> None:
    write("a.csv", "title,CONTENT, Text ,label\nt,c,x,l\n")
    assert read("a.csv")[0][0] == "x"
    assert read("a.csv", text_column="content")[0][0] == "c"
    assert read("a.csv", text_column="title")[0][0] == "t"
    write("b.csv", "Text,text\nupper,lower\n")
    assert read("b.csv", text_column="text")[0][0] == "lower"
    assert error("b.csv") == (
        "b.csv line 1: 'Text' and 'text' may both hold the text. Choose one of them with --text-column."
    )
    write("c.csv", "text,text\none,two\n")
    for wanted in (None, "text"):
        assert error("c.csv", text_column=wanted) == (
            "c.csv line 1: two columns are called 'text'. Rename one in the file."
        )


def test_columns_that_are_not_there() -> None:
    write("a.csv", "id,words\n1,one\n")
    choose = "There are: id, words. Choose one of them with --text-column."
    assert error("a.csv") == f"a.csv line 1: cannot tell which column holds the text. {choose}"
    assert error("a.csv", text_column="wrods") == f"a.csv line 1: no column 'wrods'. {choose}"
    write("late.csv", "\n\nid,words\n1,one\n")
    assert error("late.csv").startswith("late.csv line 3: cannot tell")
    write("a.jsonl", '{"id": 1, "words": "one"}\n{"id": 2}\n')
    assert error("a.jsonl") == f"a.jsonl line 1: cannot tell which column holds the text. {choose}"
    assert error("a.jsonl", text_column="words") == (
        "a.jsonl line 2: no 'words' in this object. There are: id. Give every object one, or choose with --text-column."
    )
    pq.write_table(pa.table({"id": [1], "words": ["one"]}), "a.parquet")
    assert error("a.parquet", text_column="wrods") == f"a.parquet: no column 'wrods'. {choose}"
    write("b.csv", ",".join(f"column{number}" for number in range(50)) + "\n")
    assert "column18, column19 and 30 more. Choose" in error("b.csv")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ('text,n\none,1\n"two,2\nthree,3\n', 3),  # never closed
        ('text,n\none,1\n"two,2\n"three",3\n', 3),  # closed by the next row's quote
        ('text,n\n"first\nfield","second\nopens\n', 3),  # in a later field of the row
        ('text,n\n"a "quoted" word",1\n', 2),
        ('text,n\n"one","2\n', 2),
    ],
)
def test_unclosed_quotes(data: str, line: int) -> None:
    write("a.csv", data)
    assert error("a.csv") == (
        f"a.csv line {line}: the quote that opens here is not closed properly. "
        'Close it, and double every quote inside a quoted field (""), '
        "or give --no-quotes if quotes are ordinary characters here."
    )


def test_an_unclosed_quote_in_a_long_file() -> None:
    write("a.csv", 'text\none\n"two\n' + "more\n" * 10_000)
    assert error("a.csv", max_document_mb=0.01) == (
        "a.csv line 3: the quote that opens here is not closed, or the row is longer than 0.01 MB. "
        "Close the quote, or give --no-quotes if quotes are ordinary characters here, "
        "or raise the limit with --max-document-mb."
    )


def test_the_limit_of_a_row_is_in_bytes() -> None:
    row = '"' + "é" * 600 + "\n" + "é" * 600 + '"\n'
    write("a.csv", "text\n" + row)
    assert len(row) < 2000 < len(row.encode())
    assert "a.csv line 2: the row is longer than 0.002 MB. " in error("a.csv", max_document_mb=0.002)
    assert read("a.csv", max_document_mb=len(row.encode()) / 1e6)[0][0] == row[1:-2]


@pytest.mark.parametrize(
    ("name", "header", "spelt", "remedy"),
    [
        ("a.csv", "text;label", "semicolon", "';'"),
        ("a.csv", "text\tlabel", "tab", "tab"),
        ("a.csv", "text|label", "bar", "'|'"),
        ("a.tsv", "text,label", "comma", "','"),
    ],
)
@pytest.mark.parametrize("wanted", [None, "text"])
def test_another_delimiter(name: str, header: str, spelt: str, remedy: str, wanted: str | None) -> None:
    write(name, f"{header}\n" + header.replace("text", "one").replace("label", "two, or so") + "\n")
    assert error(name, text_column=wanted) == (
        f"{name} line 1: the header is one column, {header!r}, with a {spelt} in it. "
        f"If that separates the columns, give --delimiter {remedy}."
    )
    if name == "a.csv":
        assert read(name, delimiter=remedy.strip("'")) == [("one", name, 2)]


def test_another_delimiter_after_quotes() -> None:
    write("a.csv", '"text";"label"\n"one; two";"x"\n')
    assert error("a.csv") == (
        "a.csv line 1: a quoted field ends with a semicolon after it. "
        "If that separates the columns, give --delimiter ';'."
    )
    assert read("a.csv", delimiter=";") == [("one; two", "a.csv", 2)]
    assert error("a.csv", delimiter=";", text_column="label", no_quotes=True).startswith("a.csv line 1: no column")


@pytest.mark.parametrize("spelling", ["\t", "\\t", "tab"])
def test_ways_to_write_a_tab(spelling: str) -> None:
    write("a.csv", "text\tn\none, two\t1\n")
    assert read("a.csv", delimiter=spelling) == [("one, two", "a.csv", 2)]


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n", "\r", "\0"])
def test_what_cannot_be_a_delimiter(delimiter: str) -> None:
    write("a.csv", "text\none\n")
    assert error("a.csv", delimiter=delimiter) == (
        f"--delimiter {delimiter!r}: must be one character (not a quote or line end), or tab."
    )


def test_quotes_that_are_ordinary_characters() -> None:
    write("a.tsv", 'text\tlabel\n"Great" film\tpos\r\n"open\tneg\n')
    assert error("a.tsv").endswith("or give --no-quotes if quotes are ordinary characters here.")
    assert read("a.tsv", no_quotes=True) == [('"Great" film', "a.tsv", 2), ('"open', "a.tsv", 3)]
    write("b.csv", 'text,n\n"one, two",1\n')
    assert error("b.csv", no_quotes=True) == (
        "b.csv line 2: 3 fields, but the header names 2 (text, n). With --no-quotes, no field can hold a comma."
    )


def test_a_key_that_comes_late() -> None:
    objects = ['{"id": 1}'] * 99 + ['{"id": 1, "text": "one"}'] * 2
    write("a.jsonl", "\n".join(objects))
    assert error("a.jsonl").startswith("a.jsonl line 1: no 'text' in this object. There are: id.")
    write("a.jsonl", "\n".join(['{"id": 1}', *objects]))
    assert error("a.jsonl").startswith("a.jsonl line 1: cannot tell which column holds the text. There are: id.")


def test_rows_are_rows_by_format_not_by_name() -> None:
    assert location("a.parquet.gz", 3) == "a.parquet.gz row 3"
    assert location("x.parquet.d/a.txt", 3) == "x.parquet.d/a.txt line 3"
    assert location("notes.parquet.txt", 3) == "notes.parquet.txt line 3"
    pq.write_table(pa.table({"text": ["one", ""]}), "a.bin")
    assert error("a.bin", input_format="parquet").startswith("a.bin row 2: empty text.")


def test_ragged_rows() -> None:
    write("a.csv", 'text,n\n"one\nline",1\ntwo, or so,2\n')
    assert error("a.csv") == (
        "a.csv line 4: 3 fields, but the header names 2 (text, n). "
        "Put quotes around a field that holds a comma or a line break."
    )
    write("a.tsv", "text\tn\none\n")
    assert error("a.tsv").startswith("a.tsv line 2: 1 field, but the header names 2")


def test_long_csv_fields() -> None:
    usual = csv.field_size_limit(131_072)
    try:
        write("a.csv", "text\n" + "x" * 300_000 + "\n")
        assert len(read("a.csv")[0][0]) == 300_000
    finally:
        csv.field_size_limit(usual)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", 'text,n\none,1\n"",2\n\nthree,3\n\n'),
        ("a.jsonl", '{"text": "one"}\n{"text": null}\n\n{"text": "three"}\n'),
    ],
)
def test_empty_rows(name: str, data: str) -> None:
    write(name, data)
    empty = 3 if name == "a.csv" else 2
    assert error(name) == f"{name} line {empty}: empty text. Skip empty texts with --skip-empty."
    texts = Texts(name, ReadOptions(skip_empty=True))
    assert [(document.text, document.line) for document in texts] == [("one", empty - 1), ("three", empty + 2)]
    assert texts.skipped == Counter({"empty text": 2})


def test_empty_parquet_cells() -> None:
    pq.write_table(pa.table({"text": ["one", None, " "]}), "a.parquet")
    assert error("a.parquet").startswith("a.parquet row 2: empty text.")
    texts = Texts("a.parquet", ReadOptions(skip_empty=True))
    assert [document.text for document in texts] == ["one"]
    assert texts.skipped == Counter({"empty text": 2})


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"text": "two"', "not JSON: Expecting ',' delimiter at character 15. Write one object per line."),
        ("[" * 100_000, "not JSON: "),
        ('{"text": ' + "9" * 5000 + "}", "not JSON: "),
        ('["two"]', "of type list, not an object. Write one object per line."),
        ('{"text": 2}', "the text is of type int, not a string. Choose with --text-column."),
        (
            '{"text": "two \\uD83D"}',
            "\\ud83d is a lone surrogate, not a character. Write the full surrogate pair, or \\ufffd instead.",
        ),
    ],
)
def test_json_gone_wrong(line: str, complaint: str) -> None:
    write("a.jsonl", '{"text": "one"}\n' + line + "\n")
    assert error("a.jsonl").startswith(f"a.jsonl line 2: {complaint}")


def test_parquet_gone_wrong() -> None:
    write("a.parquet", "not parquet at all")
    assert error("a.parquet").startswith("a.parquet: not a parquet file, or damaged")
    pq.write_table(pa.table({"text": [1, 2]}), "b.parquet")
    assert error("b.parquet") == "b.parquet row 1: the text is of type int, not a string. Choose with --text-column."
    pq.write_table(pa.table({"text": ["one", "x" * 3000]}), "c.parquet")
    assert error("c.parquet", max_document_mb=0.002) == (
        "c.parquet row 2: the text is longer than --max-document-mb allows. Cut it, or allow more."
    )


def test_parquet_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"text": ["one"]}), "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert error("a.parquet") == "a.parquet: parquet needs the pyarrow package: pip install 'rehead[formats]'."


# Whatever Unicode there is comes back as it was, except that csv and txt cannot hold a NUL.

characters = st.characters(exclude_categories=["Cs"])
texts = st.lists(st.text(characters, min_size=1).filter(lambda text: not text.isspace()), min_size=1, max_size=6)
round_trip = settings(max_examples=150, deadline=None)


@round_trip
@given(texts=texts, separator=st.sampled_from([",", "\t"]), ends=st.sampled_from(["\n", "\r\n", "\r"]))
def test_round_trip_through_csv(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], separator: str, ends: str
) -> None:
    texts = [text.replace("\0", "0") for text in texts]
    path = tmp_path_factory.mktemp("csv") / ("a.csv" if separator == "," else "a.tsv")
    with path.open("w", encoding="utf-8", newline="") as file:
        # With any other line end, older writers leave a field with a \r in it unquoted.
        quoting = csv.QUOTE_MINIMAL if ends == "\r\n" else csv.QUOTE_ALL
        writer = csv.writer(file, delimiter=separator, lineterminator=ends, quoting=quoting)
        writer.writerows([["n", "text", "more"], *([number, text, text] for number, text in enumerate(texts))])
    assert [document.text for document in Texts(path)] == texts


@round_trip
@given(texts=texts, ascii_only=st.booleans())
def test_round_trip_through_jsonl(tmp_path_factory: pytest.TempPathFactory, texts: list[str], ascii_only: bool) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    lines = [json.dumps({"text": text}, ensure_ascii=ascii_only) + "\n" for text in texts]
    path.write_text("".join(lines), encoding="utf-8", newline="")
    assert list(Texts(path)) == [(text, str(path), line) for line, text in enumerate(texts, 1)]


@round_trip
@given(texts=texts)
def test_round_trip_through_parquet(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    pq.write_table(pa.table({"text": texts}), path)
    assert list(Texts(path)) == [(text, str(path), row) for row, text in enumerate(texts, 1)]


@round_trip
@given(texts=texts)
def test_round_trip_through_lines(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    texts = [text.translate({0: "0", 10: "n", 13: "r"}) for text in texts]
    path = tmp_path_factory.mktemp("txt") / "a.txt"
    path.write_bytes("\n".join(texts).encode())
    assert list(Texts(path)) == [(text, str(path), line) for line, text in enumerate(texts, 1)]
