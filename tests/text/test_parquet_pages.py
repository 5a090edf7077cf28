"""Parquet files whose pages state more than they hold, or hold more than they seem to."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehead.errors import UserError
from rehead.text.documents import ReadOptions
from rehead.text.parquet_pages import BATCH, FREE_GROWTH, MAX_GROWTH, Pages, read_pages
from rehead.text.readers import Texts
from rehead.text.records import Records

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LONG = "a" * 4_000_000  # under the limit of a document


def written(file: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), file, **options)
    return file


def repeated(text: str, rows: int) -> Any:
    """A column of one value, as a dictionary and references to it."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


def pages_of(file: Path, *columns: str) -> int:
    with file.open("rb") as opened:
        opened.seek(3)
        found = read_pages(opened, columns).largest
        assert opened.tell() == 3
    return found


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("nested", [False, True])
def test_pages_are_found_as_they_were_written(version: str, compression: str, nested: bool, tmp_path: Path) -> None:
    texts = [f"text {number} " * (number % 50) for number in range(20_000)]
    more = [[text, text] for text in texts] if nested else texts
    options = {"data_page_version": version, "compression": compression, "row_group_size": 7_000}
    file = written(tmp_path / "x.parquet", {"text": texts, "more": more}, **options, data_page_size=10_000)
    assert 5_000 < pages_of(file, "text") < 2**21
    assert pages_of(file, "text", "more") > pages_of(file, "text")
    assert pages_of(file) == 0
    assert [each.text for each in Texts([str(file)], ReadOptions(skip_empty=True))] == [text for text in texts if text]


BOMBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "compressed": ({"text": ["a" * 80_000_000]}, {"use_dictionary": False}),
    "in a dictionary": ({"text": ["a" * 80_000_000]}, {"dictionary_pagesize_limit": 2**30}),
    "a list": ({"text": ["a"], "more": pa.array([[None] * 17_000_000], pa.list_(pa.string()))}, {}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_page_that_would_grow_without_measure_is_refused(name: str, tmp_path: Path) -> None:
    columns, options = BOMBS[name]
    file = written(tmp_path / "x.parquet", columns, compression="zstd", **options)
    assert file.stat().st_size < 100_000
    with pytest.raises(UserError, match=r"x\.parquet: .*(would become|values in)"):
        list(Records(str(file), ReadOptions()))


READING = """
import resource, sys
import pyarrow.parquet
from rehead.text.readers import Texts
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert sum(1 for _ in Texts([sys.argv[1]])) == 200
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory in kilobytes")
@pytest.mark.parametrize("kind", ["dictionary", "prefixes"])
def test_rows_that_repeat_a_long_text_are_not_decoded_at_once(kind: str, tmp_path: Path) -> None:
    """200 rows of 4 MB in a file of a kilobyte: 800 MB of text."""
    if kind == "dictionary":
        columns, options = {"text": repeated(LONG, 200)}, {"dictionary_pagesize_limit": 2**30}
    else:
        columns = {"text": [LONG] * 200}
        options = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    file = written(tmp_path / "x.parquet", columns, compression="zstd", store_schema=False, **options)
    assert file.stat().st_size < 10_000
    done = subprocess.run([sys.executable, "-c", READING, str(file)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 400


def varint(number: int) -> bytes:
    low = number & 127
    return bytes([low | 128]) + varint(number >> 7) if number >> 7 else bytes([low])


def numbers(kind: int, values: dict[int, int]) -> bytes:
    """Fields of one type, each with its number written out."""
    return b"".join(bytes([kind]) + varint(2 * field) + varint(2 * value) for field, value in values.items())


def header(size: int, stored: int, values: int) -> bytes:
    """The header of a data page: its type, two sizes, and the number of its values."""
    return numbers(5, {1: 0, 2: size, 3: stored}) + b"\x2c" + numbers(5, {1: values}) + b"\x00\x00"


def parquet(pages: bytes, values: int, more: bytes = b"", stored: int | None = None, groups: int = 1) -> io.BytesIO:
    """A file with one column of texts, in one row group or so many that are alike; `more`: fields of its metadata."""
    column = numbers(5, {1: 6}) + b"\x29\x18\x04text"
    column += numbers(6, {5: values, 7: len(pages) if stored is None else stored, 9: 4}) + more + b"\x00"
    group = b"\x19\x1c\x3c" + column + b"\x00\x00"
    footer = b"\x49" + (b"\x1c" if groups == 1 else b"\xfc" + varint(groups)) + groups * group + b"\x00"
    return io.BytesIO(b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1")


@given(st.integers(0, 2**31 - 1), st.integers(0, 1000))
def test_what_a_page_states_is_believed_up_to_a_bound(size: int, stored: int) -> None:
    file = parquet(2 * (header(size, stored, 5) + b"x" * stored), 10)
    if size > MAX_GROWTH * stored + FREE_GROWTH:
        with pytest.raises(ValueError, match=f"would become {size:,}"):
            read_pages(file, ["text"])
    else:
        assert read_pages(file, ["text"]) == Pages(size)


BOMB = header(2**31 - 1, 10, 5) + b"x" * 10
DECOY = header(10, 10, 5) + b"x" * 10


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (parquet(BOMB, 0), "would become"),
        (parquet(DECOY + BOMB + bytes(200), 5), "would become"),
        (parquet(DECOY + BOMB, 10, stored=len(DECOY)), "would become"),
        (parquet(DECOY, 5, numbers(6, {9: 4})), "field 9 is there twice"),
        (parquet(DECOY, 5, numbers(5, {11: 4})), "field 11 is missing, or of another type"),
        (parquet(numbers(6, {1: 0, 2: 10, 3: 10}) + b"\x00", 5), "of another type"),
        (parquet(b"\x18\x00" * 2**22, 5), "too many values|field .* twice|does not end"),
        (parquet(100 * DECOY, 500, groups=10**4), "pages that overlap"),
        (parquet(DECOY, 5, groups=16), "pages that overlap"),
        (io.BytesIO(b"PAR1"), "a footer of"),
        (io.BytesIO(b"PAR1" + b"\xff\xff\xff\xffPAR1"), "a footer of 4,294,967,295 bytes"),
    ],
    ids=[
        "no values",
        "behind",
        "beyond",
        "twice",
        "a type",
        "types of a header",
        "endless",
        "again",
        "a few",
        "short",
        "a long footer",
    ],
)
def test_pages_do_not_hide(file: io.BytesIO, said: str) -> None:
    """What Thrift would ignore, or read as something else, is refused."""
    with pytest.raises(ValueError, match=said):
        read_pages(file, ["text"])


@given(st.binary(max_size=60), st.integers(0, 40))
def test_any_bytes_for_pages_are_refused_or_read(data: bytes, values: int) -> None:
    with contextlib.suppress(ValueError):
        assert read_pages(parquet(data, values), ["text"]).largest <= MAX_GROWTH * 2**31 + FREE_GROWTH


def test_a_forged_footer_does_not_abort_the_process(tmp_path: Path) -> None:
    """One bit of a sound file: pyarrow throws where nobody catches, if it is asked for the metadata of a column."""
    data = bytearray(written(tmp_path / "x.parquet", {"text": ["a", "b"], "label": ["x", "y"]}).read_bytes())
    for at in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data) - 8):
        forged = tmp_path / "forged.parquet"
        forged.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with contextlib.suppress(UserError):
            list(Records(str(forged), ReadOptions()))


def test_rows_are_read_in_numbers_that_fit() -> None:
    assert [Pages(size).rows(1024) for size in (0, 1000, 2**20, BATCH, 2 * BATCH)] == [1024, 1024, 64, 1, 1]
