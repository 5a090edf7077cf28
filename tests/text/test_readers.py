"""Unlabelled text: every format against a hand-written result, and every mistake against its one line."""

from __future__ import annotations

import csv
import errno
import gc
import gzip
import io
import json
import os
import sys
import threading
import tracemalloc
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rehead.errors import UserError
from rehead.text.documents import Document, ReadOptions, describe_skipped, place
from rehead.text.readers import Texts, join_pieces


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, so that files have short names in messages."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, data: str | bytes) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return name


def read(*paths: str, **options: object) -> list[tuple[str, str, int]]:
    return [tuple(document) for document in Texts(paths, ReadOptions(**options))]  # type: ignore[misc]


def error(*paths: str, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        read(*paths, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Plain text


def test_a_document_per_line() -> None:
    write("a.txt", " one \r\ntwo, with “quotes”\nthree")
    assert read("a.txt") == [(" one ", "a.txt", 1), ("two, with “quotes”", "a.txt", 2), ("three", "a.txt", 3)]


def test_documents_are_documents() -> None:
    write("a.txt", "one\n")
    assert next(iter(Texts("a.txt"))) == Document(text="one", source="a.txt", line=1)


def test_a_document_per_block() -> None:
    write("a.txt", "\n\none\n  still one\n\n \t\n\ntwo\n\n\n")
    assert read("a.txt", documents="block") == [("one\n  still one", "a.txt", 3), ("two", "a.txt", 8)]


def test_a_document_per_file() -> None:
    write("a.txt", "\n one\r\n\r\ntwo\n\n")
    write("b.txt", "three")
    assert read("a.txt", "b.txt", documents="file") == [("\n one\n\ntwo", "a.txt", 1), ("three", "b.txt", 1)]


def test_pieces_are_put_together() -> None:
    write("a.review.spm", "▁the ▁cat s , ▁l ' été\n▁two\n")
    assert read("a.review.spm") == [("the cats, l'été", "a.review.spm", 1), ("two", "a.review.spm", 2)]


def test_pieces_against_sentencepiece(shared_data: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = sentencepiece.SentencePieceProcessor(str(shared_data / "cls-books/sentencepiece.french.model"))
    lines = (shared_data / "cls-books/train.review.spm").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1600
    for line in lines:
        assert join_pieces(line) == model.decode_pieces(line.split(" ")).strip()


def test_blank_lines() -> None:
    write("a.txt", "one\n\n  \ntwo\n\n\n")
    assert error("a.txt") == (
        "a.txt line 2: empty text. Drop such texts with --skip-empty; "
        "if blank lines separate documents, say --documents block."
    )
    texts = Texts("a.txt", ReadOptions(skip_empty=True))
    assert list(texts) == [("one", "a.txt", 1), ("two", "a.txt", 4)]
    assert texts.skipped == Counter({"empty text": 2})
    assert describe_skipped(texts.skipped) == "empty text: 2"
    assert len(list(texts)) == 2
    assert texts.skipped == Counter({"empty text": 2}), "counted once per iteration"


@pytest.mark.parametrize("content", ["", "\n\n \n"])
@pytest.mark.parametrize("documents", ["line", "block"])
def test_files_without_text(content: str, documents: str) -> None:
    write("a.txt", content)
    write("b.txt", "one")
    assert error("b.txt", "a.txt", documents=documents) == (
        "a.txt: there is no text in it. Leave it out, or pass over such files with --skip-empty."
    )
    texts = Texts(["a.txt", "b.txt"], ReadOptions(documents=documents, skip_empty=True))  # type: ignore[arg-type]
    assert list(texts) == [("one", "b.txt", 1)]
    assert texts.skipped == Counter({"empty file": 1})
    assert error("a.txt", skip_empty=True) == "a.txt: no text is left: all that was found is empty."


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("line", "a.txt line 2: the line goes on for more than 0.002 MB."),
        ("block", "a.txt line 2: the line goes on for more than 0.002 MB."),
        ("file", "a.txt line 2: the line goes on for more than 0.002 MB."),
    ],
)
def test_a_line_too_long(documents: str, message: str) -> None:
    write("a.txt", "one\n" + "x" * 3000 + "\n")
    assert error("a.txt", documents=documents, max_document_mb=0.002).startswith(message)


def test_a_block_or_file_too_long() -> None:
    write("a.txt", "one\n\n" + "x\n" * 3000)
    assert error("a.txt", documents="block", max_document_mb=0.002) == (
        "a.txt line 3: the block is longer than 0.002 MB. "
        "Cut it into documents (see --documents), or allow longer ones with --max-document-mb."
    )
    assert error("a.txt", documents="file", max_document_mb=0.002).startswith("a.txt line 1: the file is longer")


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_that_makes_no_sense(limit: float) -> None:
    write("a.txt", "one\n")
    assert "must be above 0" in error("a.txt", max_document_mb=limit)


def test_memory_is_bounded() -> None:
    write("a.txt", b"some words of a review, again and again and again\n" * 100_000)
    write("a.csv", b'text,n\n"some words\nof a review",1\n' * 1 + b'"some words\nof a review",1\n' * 50_000)
    for name in ("a.txt", "a.csv"):
        tracemalloc.start()
        count = sum(1 for _ in Texts(name))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count >= 50_000
        assert peak < 2_000_000


# Tables


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
    assert place("a.parquet", 3) == "a.parquet row 3"


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
    assert error("b.csv") == "b.csv: two columns are called 'text'. Choose with --text-column, or rename one."
    write("c.csv", "text,text\none,two\n")
    assert error("c.csv", text_column="text").startswith("c.csv: two columns are called 'text'.")


def test_columns_that_are_not_there() -> None:
    write("a.csv", "id,words\n1,one\n")
    assert error("a.csv") == (
        "a.csv: cannot tell which column holds the text. Choose with --text-column; there are: id, words."
    )
    assert error("a.csv", text_column="wrods") == "a.csv: no column 'wrods'. There are: id, words."
    write("a.jsonl", '{"id": 1, "words": "one"}\n{"id": 2}\n')
    assert error("a.jsonl") == (
        "a.jsonl line 1: cannot tell which column holds the text. Choose with --text-column; there are: id, words."
    )
    assert error("a.jsonl", text_column="words") == "a.jsonl line 2: no 'words' in this object. There are: id."
    pq.write_table(pa.table({"id": [1], "words": ["one"]}), "a.parquet")
    assert error("a.parquet", text_column="wrods") == "a.parquet: no column 'wrods'. There are: id, words."
    write("b.csv", ",".join(f"column{number}" for number in range(50)) + "\n")
    assert error("b.csv").endswith("column18, column19 and 30 more.")


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
        f"a.csv line {line}: the quote that opens here is not closed as it should be. "
        'Close it, and double every quote inside a quoted field ("").'
    )


def test_an_unclosed_quote_in_a_long_file() -> None:
    write("a.csv", 'text\none\n"two\n' + "more\n" * 10_000)
    assert error("a.csv", max_document_mb=0.01) == (
        "a.csv line 3: the quote that opens here is not closed, or the row goes on for more than 0.01 MB. "
        "Close the quote, or allow longer rows with --max-document-mb."
    )


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
    assert error(name).startswith(f"{name} line {empty}: empty text.")
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
            "\\ud83d is half a character (a surrogate without its other half). "
            "Write the character whole, or \\ufffd in its place.",
        ),
    ],
)
def test_json_gone_wrong(line: str, complaint: str) -> None:
    write("a.jsonl", '{"text": "one"}\n' + line + "\n")
    assert error("a.jsonl").startswith(f"a.jsonl line 2: {complaint}")


def test_parquet_gone_wrong() -> None:
    write("a.parquet", "not parquet at all")
    assert error("a.parquet").startswith("a.parquet: not a parquet file, or a damaged one")
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


# Where the files are


def test_folders_globs_and_several_paths() -> None:
    write("corpus/b.txt", "b\n")
    write("corpus/a.txt", "a\n")
    write("corpus/deep/c.csv", "text\nc\n")
    write("corpus/deep/README", "r\n")
    write("corpus/.hidden.txt", "no\n")
    write("corpus/.git/config.txt", "no\n")
    write("corpus/paper.pdf", b"%PDF\0")
    write("x1.txt", "x1\n")
    write("x2.txt", "x2\n")
    texts = Texts(["x?.txt", "corpus"])
    assert [document.source for document in texts] == [
        "x1.txt",
        "x2.txt",
        "corpus/a.txt",
        "corpus/b.txt",
        "corpus/deep/README",
        "corpus/deep/c.csv",
    ]
    assert texts.skipped == Counter({"hidden file": 2, "file with the extension .pdf": 1})
    assert [source.name for source in Texts("corpus/**/*.csv").files] == ["corpus/deep/c.csv"]


def test_the_same_file_twice() -> None:
    write("a.txt", "a\n")
    Path("link.txt").symlink_to("a.txt")
    texts = Texts(["a.txt", "./a.txt", "*.txt"])
    assert [document.text for document in texts] == ["a"]
    assert texts.skipped == Counter({"file named twice": 3})


def test_links_in_a_circle() -> None:
    write("corpus/a.txt", "a\n")
    Path("corpus/loop").symlink_to(".")
    Path("corpus/nowhere.txt").symlink_to("none")
    texts = Texts("corpus")
    assert [document.text for document in texts] == ["a"]
    assert texts.skipped == Counter({"folder linked twice": 1, "not a regular file": 1})


def test_paths_that_lead_nowhere() -> None:
    Path("empty").mkdir()
    write("paper.pdf", b"%PDF\0")
    write("a.txt", "one\n")
    known = "Known are .txt .csv .tsv .jsonl .parquet .spm, each also .gz or .zst"
    assert error("none.txt") == "none.txt: no such file or folder."
    assert error("a.txt/none.txt") == "a.txt/none.txt: no such file or folder."
    assert error("none*.txt") == "none*.txt: matches no file."
    assert error("emp*") == "emp*: matches folders only. Name them, or match the files in them."
    assert error("empty") == f"empty: no file to read in this folder. {known}."
    assert error("paper.pdf") == f"paper.pdf: unknown extension. {known}; or say what it is with --input-format."
    assert error("") == "an empty file name: name a file, or a folder, or - for standard input."
    assert error() == "no file to read: name one, or a folder, or - for standard input."
    assert error("/dev/null", input_format="txt").startswith("/dev/null: is not a file.")
    assert error("a\0b").startswith("a b: ") or error("a\0b").startswith("a\0b: ")


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.txt", "one\n")

    def refuse(path: Path, mode: str) -> None:  # root may read anything, so taking rights away would not show it
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    assert error("a.txt") == "a.txt: cannot be read: Permission denied."


def test_the_format_may_be_said() -> None:
    write("a.log", "one\n")
    write("b.dat", '{"text": "two"}\n')
    assert read("a.log", input_format="txt") == [("one", "a.log", 1)]
    assert read("b.dat", input_format="jsonl") == [("two", "b.dat", 1)]


def test_standard_input_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(gzip.compress(b"one\ntwo\n"))))
    texts = Texts("-")
    assert list(texts) == list(texts) == [("one", "-", 1), ("two", "-", 2)]
    assert texts.fingerprint() == texts.fingerprint()
    assert texts.bytes_read == texts.total_bytes > 0
    copy = texts.files[0].path
    assert copy.exists()
    del texts
    gc.collect()
    assert not copy.exists()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"text\none\n")))
    assert read("-", input_format="csv") == [("one", "-", 2)]


def test_a_named_pipe() -> None:
    os.mkfifo("pipe.csv")
    writer = threading.Thread(target=lambda: Path("pipe.csv").write_text("text\none\n", encoding="utf-8"))
    writer.start()
    assert read("pipe.csv") == [("one", "pipe.csv", 2)]
    writer.join()


# Progress and fingerprints


def test_bytes_read_grow_to_the_total() -> None:
    write("a.txt", "line\n" * 200_000)
    pq.write_table(pa.table({"text": ["text"] * 5000}), "b.parquet")
    texts = Texts(["a.txt", "b.parquet"])
    for _ in range(2):
        seen = [texts.bytes_read for _ in texts]
        assert seen == sorted(seen)
        assert len(set(seen)) > 10
        assert texts.bytes_read == texts.total_bytes
    next(iter(texts))
    assert texts.bytes_read < texts.total_bytes


def test_the_fingerprint_follows_content_and_options() -> None:
    write("a.txt", "one\ntwo\n")
    write("same.txt", "one\ntwo\n")
    write("other.txt", "one\ntwo!\n")
    write("a.csv", "one\ntwo\n")
    base = Texts("a.txt").fingerprint()
    assert Texts("same.txt").fingerprint() == base
    assert Texts("a.txt", ReadOptions(documents="line")).fingerprint() == base
    others = [
        Texts("other.txt"),
        Texts("a.csv"),
        Texts(["a.txt", "same.txt"]),
        Texts("a.txt", ReadOptions(documents="block")),
        Texts("a.txt", ReadOptions(skip_empty=True)),
        Texts("a.txt", ReadOptions(text_column="text")),
    ]
    assert len({base, *(each.fingerprint() for each in others)}) == 1 + len(others)
