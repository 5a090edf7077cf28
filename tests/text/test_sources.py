"""Where the files are: folders, globs, standard input; what cannot be one; options that do not apply."""

from __future__ import annotations

import errno
import gc
import gzip
import io
import os
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rehead.errors import UserError
from rehead.text.documents import ReadOptions
from rehead.text.labelled import read_examples
from rehead.text.readers import Texts
from rehead.text.sources import Source, check_options_apply, spool
from tests.text.reading import error, read, write

pytestmark = pytest.mark.usefixtures("here")


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
    known = "Known: .txt .csv .tsv .jsonl .parquet .spm, each also .gz or .zst"
    assert error("none.txt") == "none.txt: no such file or folder. Check the path."
    assert error("papers.txt") == "papers.txt: no such file or folder. Is it paper.pdf?"
    assert (
        error("a.txt/none.txt") == "a.txt/none.txt: no such file or folder. Check the path: there is no folder a.txt."
    )
    assert error("none*.txt") == "none*.txt: matches no file. Check the pattern and the working directory."
    assert error("x" * 5000).endswith(": cannot be read: File name too long.")
    assert error("emp*") == "emp*: matches folders only. Give the folders, or a pattern for the files in them."
    assert error("empty") == f"empty: no readable file in this folder. {known}."
    assert error("paper.pdf") == f"paper.pdf: unknown extension. {known}. Set the format with --input-format."
    assert error("") == "a file name is empty: give a file, a folder, or - for standard input."
    assert error() == "no file to read: give a file, a folder, or - for standard input."
    assert error("/dev/null", input_format="txt").startswith("/dev/null: is not a file.")
    assert error("a\0b") == "a\\x00b: cannot be read: embedded null byte."


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


def test_standard_input_can_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ReadOptions(input_format="csv")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"text,label\none,x\n")))
    held = spool("-", options)
    assert isinstance(held, Source)
    assert spool(held, options) is held
    for _ in range(2):
        assert list(Texts(held, options)) == [("one", "-", 2)]
        assert list(read_examples([held], options, check=False)) == [("one", ("x",), "-", 2)]
    assert spool("a.csv", options) == "a.csv"


# Options and arguments


@pytest.mark.parametrize(
    ("name", "options", "flag"),
    [
        ("a.txt", {"text_column": "x"}, "--text-column: applies to csv, tsv, jsonl, parquet"),
        ("a.txt", {"label_column": "x"}, "--label-column: applies to csv, tsv, jsonl, parquet"),
        ("a.txt", {"delimiter": ","}, "--delimiter: applies to csv, tsv"),
        ("a.txt", {"no_quotes": True}, "--no-quotes: applies to csv, tsv"),
        ("a.jsonl", {"no_quotes": True}, "--no-quotes: applies to csv, tsv"),
        ("a.csv", {"documents": "line"}, "--documents: applies to txt"),
        ("a.review.spm", {"documents": "block"}, "--documents: applies to txt"),
    ],
)
def test_options_that_do_not_apply(name: str, options: dict[str, Any], flag: str) -> None:
    write("a.txt", "one\n")
    write("a.csv", "text,label,x\none,y,1\n")
    write("a.jsonl", '{"text": "one", "label": "y", "x": "1"}\n')
    write("a.review.spm", "▁one\n")
    write("a.label", "y\n")
    complaint = error(name, **options)
    assert complaint.startswith(f"{flag}, but the input is ")
    assert complaint.endswith(". Leave it out, or set the format of the files with --input-format.")
    assert len(list(Texts(name, ReadOptions(**options), check=False))) == 1
    others = {"a.txt", "a.csv"} | {name}
    if "x" not in options.values():
        assert len(read(*others, **options)) == len(others)
    if name != "a.txt":
        with pytest.raises(UserError, match=f"^{flag}"):
            read_examples(name, ReadOptions(**options))
        assert len(read_examples(name, ReadOptions(**options), check=False)) == 1


def test_which_options_apply_to_what() -> None:
    check_options_apply({"txt", "jsonl"}, ReadOptions(documents="block", text_column="x", label_column="y"))
    check_options_apply([], ReadOptions(documents="block"))
    with pytest.raises(UserError, match=r"^--delimiter: applies to csv, tsv, but the input is jsonl, txt\."):
        check_options_apply({"txt", "jsonl"}, ReadOptions(delimiter=";"))


@pytest.mark.parametrize("read_them", [Texts, read_examples])
@pytest.mark.parametrize("paths", [None, 3, b"a.txt", [None], ["a.txt", 3], [b"a.txt"], {1: 2}])
def test_what_is_no_path(read_them: Any, paths: Any) -> None:
    with pytest.raises(UserError, match=r"^paths is .* \(of type \w+\)\. Expected"):
        read_them(paths)


@pytest.mark.parametrize("read_them", [Texts, read_examples])
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "options is {} (of type dict). Expected a ReadOptions."),
        (
            ReadOptions(documents="page"),  # type: ignore[arg-type]
            "documents is 'page' (of type str). Expected 'line', 'block', 'file', or None.",
        ),
        (
            ReadOptions(input_format="xml"),  # type: ignore[arg-type]
            "input_format is 'xml' (of type str). Expected 'txt', 'csv', 'tsv', 'jsonl', 'parquet', 'spm', or None.",
        ),
        (ReadOptions(text_column=3), "text_column is 3 (of type int). Expected a str, or None."),  # type: ignore[arg-type]
        (ReadOptions(skip_empty="no"), "skip_empty is 'no' (of type str). Expected True or False."),  # type: ignore[arg-type]
        (ReadOptions(max_document_mb="9"), "max_document_mb is '9' (of type str). Expected a number."),  # type: ignore[arg-type]
    ],
)
def test_what_no_option_can_be(read_them: Any, options: Any, complaint: str) -> None:
    write("a.csv", "text,label\none,x\n")
    with pytest.raises(UserError) as caught:
        read_them("a.csv", options)
    assert str(caught.value) == complaint
