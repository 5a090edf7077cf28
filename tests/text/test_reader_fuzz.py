"""Whatever is in a file, reading it gives documents or one line of complaint: never another error."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rehead.errors import UserError
from rehead.text.documents import ReadOptions
from rehead.text.labelled import read_examples
from rehead.text.labelled_files import detect_labels
from rehead.text.readers import Texts

ROWS = [("one, “two”\nthree", "pos"), ('say "x"', "neg"), ("漢字 🙂", "a|b"), ("plain", "pos")]


def valid_files(folder: Path) -> dict[str, bytes]:
    """Make a good file of every format."""
    quoted = "".join('"' + text.replace('"', '""') + f'"{{0}}{label}\n' for text, label in ROWS)
    lists = [label.split("|") for _, label in ROWS]
    objects = [{"text": text, "label": labels, "n": 1.5} for (text, _), labels in zip(ROWS, lists, strict=True)]
    table = pa.table({"text": [text for text, _ in ROWS] * 50, "label": lists * 50})
    pq.write_table(table, folder / "valid.parquet", row_group_size=80)
    lines = "".join(f"{text!r}\n" for text, _ in ROWS).encode()
    return {
        "a.txt": lines,
        "a.csv": ("text,label\n" + quoted.format(",")).encode(),
        "a.tsv": ("text\tlabel\n" + quoted.format("\t")).encode("utf-16"),
        "a.jsonl": "".join(json.dumps(each) + "\n" for each in objects).encode(),
        "a.parquet": (folder / "valid.parquet").read_bytes(),
        "a.review.spm": "▁one ▁tw o\n▁three\n".encode(),
        "a.txt.gz": gzip.compress(lines * 20),
        "a.csv.zst": zstandard.ZstdCompressor().compress(("text,label\n" + quoted.format(",")).encode()),
    }


NAMES = ["a.txt", "a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.review.spm", "a.txt.gz", "a.csv.zst"]


def read_all(path: Path) -> int:
    """Read a file in every way; return how many ways gave something."""
    labelled: list[Callable[[], object]] = [
        lambda options=options, check=check: read_examples(path, options, check=check)  # type: ignore[misc]
        for options in (
            ReadOptions(),
            ReadOptions(skip_empty=True, max_document_mb=0.0001),
            ReadOptions(no_quotes=True, delimiter="|", single_label=True),
        )
        for check in (True, False)
    ]
    labelled.append(lambda: detect_labels(path, ReadOptions()))
    unlabelled: list[Callable[[], object]] = [
        lambda options=options: list(Texts(path, options, check=False))  # type: ignore[misc]
        for options in (
            ReadOptions(),
            ReadOptions(skip_empty=True, documents="block"),
            ReadOptions(documents="file", max_document_mb=0.0001),
            ReadOptions(no_quotes=True),
        )
    ]
    return sum(reads_well(read) for read in labelled + unlabelled)


def reads_well(read: Callable[[], object]) -> bool:
    try:
        read()
    except UserError as error:
        complaint = str(error)
    else:
        return True
    assert 0 < len(complaint) < 3000
    assert len(complaint.splitlines()) == 1
    return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_good_before_they_are_harmed(folder: Path, name: str) -> None:
    files = valid_files(folder)
    assert list(files) == NAMES
    (folder / name).write_bytes(files[name])
    (folder / "a.label").write_text("0\n1\n", encoding="utf-8")
    assert read_all(folder / name) >= 2


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.one_of(st.binary(max_size=300), st.text(max_size=100).map(str.encode)))
def test_any_bytes(folder: Path, name: str, data: bytes) -> None:
    (folder / "a.label").write_bytes(data[::-1])
    (folder / name).write_bytes(data)
    read_all(folder / name)


@pytest.mark.parametrize("name", NAMES)
def test_harmed_files(folder: Path, name: str) -> None:
    original = valid_files(folder)[name]
    (folder / "a.label").write_bytes(b"1\n0\n")
    dice = random.Random(name)
    for _ in range(250):
        (folder / name).write_bytes(harmed(original, dice))
        read_all(folder / name)


def harmed(data: bytes, dice: random.Random) -> bytes:
    """Change, drop, repeat or insert a few bytes, or cut the end off."""
    changed = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 5, 20])):
        at, length = dice.randrange(len(changed) + 1), dice.choice([1, 1, 2, 8])
        match dice.randrange(6):
            case 0:
                changed[at : at + length] = dice.randbytes(length)
            case 1:
                del changed[at : at + length]
            case 2:
                changed[at:at] = changed[at : at + length]
            case 3:
                changed[at:at] = dice.choice([b'"', b",", b"\r", b"\n", b"\0", b"\\", b"{", b"]", b"\xff", b"|", b"\t"])
            case 4:
                del changed[at:]
            case 5:
                changed[at : at + 1] = bytes([changed[at] ^ (1 << dice.randrange(8))]) if at < len(changed) else b""
    return bytes(changed)
