"""Unlabelled text: what a document is, progress, fingerprints."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rehead.options import field_docs
from rehead.text.documents import Document, ReadOptions, describe_skipped
from rehead.text.readers import Texts, join_pieces
from tests.text.reading import error, read, write

pytestmark = pytest.mark.usefixtures("here")


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
        "a.txt line 2: empty text. Skip empty texts with --skip-empty; "
        "if blank lines separate documents, give --documents block."
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
        "a.txt: the file is empty. Leave it out, or skip empty files with --skip-empty."
    )
    texts = Texts(["a.txt", "b.txt"], ReadOptions(documents=documents, skip_empty=True))  # type: ignore[arg-type]
    assert list(texts) == [("one", "b.txt", 1)]
    assert texts.skipped == Counter({"empty file": 1})
    assert error("a.txt", skip_empty=True) == "a.txt: all texts are empty."


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("line", "a.txt line 2: the line is longer than 0.002 MB."),
        ("block", "a.txt line 2: the line is longer than 0.002 MB."),
        ("file", "a.txt line 2: the line is longer than 0.002 MB."),
    ],
)
def test_a_line_too_long(documents: str, message: str) -> None:
    write("a.txt", "one\n" + "x" * 3000 + "\n")
    assert error("a.txt", documents=documents, max_document_mb=0.002).startswith(message)


def test_a_block_or_file_too_long() -> None:
    write("a.txt", "one\n\n" + "x\n" * 3000)
    assert error("a.txt", documents="block", max_document_mb=0.002) == (
        "a.txt line 3: the block is longer than 0.002 MB. "
        "Split it into documents (see --documents), or raise the limit with --max-document-mb."
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
    ]
    assert len({base, *(each.fingerprint() for each in others)}) == 1 + len(others)


def test_every_option_that_changes_what_is_read_changes_the_fingerprint() -> None:
    write("a.csv", "text,b\none,two\n")
    write("a.txt", "one\n")
    changed: dict[str, object] = {
        "documents": "block",
        "text_column": "b",
        "delimiter": ";",
        "no_quotes": True,
        "skip_empty": True,
        "input_format": "csv",
    }
    # Labels are not read here, and what is too long is an error.
    same: dict[str, object] = {"label_column": "b", "single_label": True, "max_document_mb": 1}
    assert {each.name for each in dataclasses.fields(ReadOptions)} == changed.keys() | same.keys()
    base = Texts(["a.csv", "a.txt"]).fingerprint()
    for options in (changed, same):
        for name, value in options.items():
            texts = Texts(["a.csv", "a.txt"], ReadOptions(**{name: value}), check=False)  # type: ignore[arg-type]
            assert (texts.fingerprint() == base) == (options is same), name
    # Ways to say the same.
    tabs = {Texts("a.csv", ReadOptions(delimiter=each)).fingerprint() for each in ("tab", "\\t", "\t")}
    assert len(tabs) == 1
    assert Texts(["a.csv", "a.txt"], ReadOptions(delimiter=",")).fingerprint() == base


def test_every_option_has_its_help() -> None:
    assert field_docs(ReadOptions).keys() == {each.name for each in dataclasses.fields(ReadOptions)}
