"""Parquet files whose pages state more than they hold, or hold more than they seem to."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
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
        metadata = pq.ParquetFile(opened).metadata
        before = opened.tell()
        found = read_pages(opened, metadata, columns).largest
        assert opened.tell() == before
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


def header(size: int, stored: int, values: int) -> bytes:
    """The header of a data page: its type, two sizes, and the number of its values."""
    fields = (b"\x15" + varint(2 * number) for number in (0, size, stored))
    return b"".join(fields) + b"\x2c\x15" + varint(2 * values) + b"\x00\x00"


def chunk_of(data: bytes, values: int) -> Any:
    """The metadata of a file that is one column in one row group."""
    stated = {"path_in_schema": "text", "physical_type": "BYTE_ARRAY", "num_values": values, "data_page_offset": 4}
    chunk = SimpleNamespace(**stated, has_dictionary_page=False, total_compressed_size=len(data))
    group = SimpleNamespace(column=lambda number: chunk)
    schema = SimpleNamespace(column=lambda number: SimpleNamespace(max_repetition_level=0))
    return SimpleNamespace(num_row_groups=1, num_columns=1, row_group=lambda number: group, schema=schema)


@given(st.integers(0, 2**31 - 1), st.integers(0, 1000))
def test_what_a_page_states_is_believed_up_to_a_bound(size: int, stored: int) -> None:
    data = b"PAR1" + 2 * (header(size, stored, 5) + b"x" * stored)
    if size > MAX_GROWTH * stored + FREE_GROWTH:
        with pytest.raises(ValueError, match=f"would become {size:,}"):
            read_pages(io.BytesIO(data), chunk_of(data, 10), ["text"])
    else:
        assert read_pages(io.BytesIO(data), chunk_of(data, 10), ["text"]) == Pages(size)


@given(st.binary(max_size=60), st.integers(0, 40))
def test_any_bytes_for_a_header_are_refused_or_read(data: bytes, values: int) -> None:
    try:
        found = read_pages(io.BytesIO(b"PAR1" + data), chunk_of(data, values), ["text"])
    except ValueError:
        return
    assert found.largest <= MAX_GROWTH * len(data) + FREE_GROWTH


def test_a_header_that_never_ends_is_not_read_to_the_end() -> None:
    endless = b"PAR1" + b"\x18\x00" * 2**20  # a field of an empty string, and another
    with pytest.raises(ValueError, match="does not end"):
        read_pages(io.BytesIO(endless), chunk_of(endless, 1), ["text"])


def test_rows_are_read_in_numbers_that_fit() -> None:
    assert [Pages(size).rows(1024) for size in (0, 1000, 2**20, BATCH, 2 * BATCH)] == [1024, 1024, 64, 1, 1]
