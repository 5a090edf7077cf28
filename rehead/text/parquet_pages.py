"""What a parquet file says about its pages, read before pyarrow believes it.

A column is stored in pages, and pyarrow allocates as many bytes for each as its header states: a file of a few hundred
bytes can ask for 2 GB. A page that is honest may still grow when it is decoded: with a dictionary, or if values are
stored as what they add to the one before, a long text takes a few bits for every row that repeats it. So the headers
are read here first:

- a page may become `MAX_GROWTH` times as large as it is in the file, plus `FREE_GROWTH`; so may a list of values;
- `Pages.rows` is how many rows can be decoded at once: each may be as long as the longest page.

What reading takes is then bounded by the size of the file, whatever it holds. The headers are Thrift (compact
protocol), which pyarrow does not give access to. A page has about a megabyte, so there are few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

MAX_GROWTH, FREE_GROWTH = 100, 2**26
BATCH = 2**26  # bytes that the rows decoded at once may take
DATA_PAGES = (0, 3)  # the types of pages that hold values: those of version 1 and 2
MAX_HEADER, DEPTH = 2**24, 8  # bytes of a header, as pyarrow has it, and nested structures, of which there are three


@dataclass(frozen=True)
class Pages:
    """The pages of some columns."""

    largest: int
    "Bytes of the largest, decompressed; of all columns of texts together, since a row has one value of each."

    def rows(self, at_most: int) -> int:
        """Tell how many rows can be decoded at once."""
        return max(1, min(at_most, BATCH // max(1, self.largest)))


def read_pages(file: IO[bytes], metadata: Any, columns: Sequence[str]) -> Pages:  # noqa: ANN401 (pyarrow's FileMetaData)
    """Read the headers of all pages of the columns; raise ValueError for a page that would grow too much.

    The file is left where it was.
    """
    before = file.tell()
    largest: dict[int, int] = {}
    try:
        for group in range(metadata.num_row_groups):
            for number in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(number)
                if chunk.path_in_schema.partition(".")[0] in columns or chunk.path_in_schema in columns:
                    repeated = metadata.schema.column(number).max_repetition_level > 0
                    size = _largest_page(file, chunk, repeated=repeated)
                    if chunk.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY") or repeated:
                        largest[number] = max(size, largest.get(number, 0))
    finally:
        file.seek(before)
    return Pages(sum(largest.values()))


def _largest_page(file: IO[bytes], chunk: Any, *, repeated: bool) -> int:  # noqa: ANN401 (pyarrow's ColumnChunkMetaData)
    """Check the pages of one column in one row group; give the bytes of the largest."""
    starts = (chunk.data_page_offset, chunk.dictionary_page_offset if chunk.has_dictionary_page else None)
    at = min(each for each in starts if each)
    largest = seen = 0
    if repeated and chunk.num_values > MAX_GROWTH * chunk.total_compressed_size + FREE_GROWTH // 4:
        raise ValueError(f"{chunk.num_values:,} values in {chunk.total_compressed_size:,} bytes")
    while seen < chunk.num_values:
        file.seek(at)
        header = _Thrift(file).struct()
        kind, size, stored = (header.get(field) for field in (1, 2, 3))
        if not isinstance(size, int) or not isinstance(stored, int) or size < 0 or stored < 0:
            raise ValueError("a page without a size")
        if size > MAX_GROWTH * stored + FREE_GROWTH:
            raise ValueError(f"a page of {stored:,} bytes that would become {size:,}")
        largest = max(largest, size)
        if kind in DATA_PAGES:
            details = header.get(5) or header.get(8)
            count = details.get(1) if isinstance(details, dict) else None
            if not isinstance(count, int) or count < 0:
                raise ValueError("a page without a number of values")
            seen += count
        at = file.tell() + stored
    return largest


class _Thrift:
    """A header in Thrift's compact protocol."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.left = file, MAX_HEADER

    def struct(self, depth: int = DEPTH) -> dict[int, Any]:
        """Read a structure: the value of each field, by its number."""
        fields: dict[int, Any] = {}
        number = 0
        while kind := (head := self._bytes(1)[0]) & 15:
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:  # noqa: ANN401 (a value of any type)
        if kind == 3:
            return self._bytes(1)
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind == 12 and depth:
            return self.struct(depth - 1)
        raise ValueError("a page header that cannot be read")  # lists and maps, which no page header has

    def _integer(self) -> int:
        """Read a signed number (zigzag)."""
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._bytes(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a page header that cannot be read")

    def _bytes(self, count: int) -> bytes:
        self.left -= max(count, 1024)  # many small values take time, long ones take memory
        data = self.file.read(count) if self.left >= 0 else b""
        if len(data) < count:
            raise ValueError("a page header that does not end")
        return data
