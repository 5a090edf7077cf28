"""What a parquet file says about its pages, read before pyarrow believes it.

A column is stored in pages, and pyarrow allocates as many bytes for each as its header states: a file of a few hundred
bytes can ask for 2 GB. A page that is honest may still grow when it is decoded: with a dictionary, or if values are
stored as what they add to the one before, a long text takes a few bits for every row that repeats it. So the headers
are read here first:

- a page may become `MAX_GROWTH` times as large as it is in the file, plus `FREE_GROWTH`; so may a list of values;
- no bytes belong to two pages: a footer may list the same pages a hundred thousand times, each of which would be read;
- `Pages.rows` is how many rows can be decoded at once: each may be as long as the longest page.

What reading takes is then bounded by the size of the file, whatever it holds. Headers and footer are Thrift (compact
protocol). They are parsed here, since pyarrow gives no access to the headers, and aborts the process on some forged
footers when asked for the metadata of a column. Thrift ignores a field of a type that it does not expect; here, such a
field is an error, and so is one that is there twice, or both would read different files.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import IO, Any

MAX_GROWTH, FREE_GROWTH = 100, 2**26
BATCH = 2**26  # bytes that the rows decoded at once may take
MAX_HEADER, MAX_FOOTER = 2**24, 2**26  # bytes; the former as pyarrow has it
MAX_VALUES = 2**21  # numbers, texts and structures in a header or footer
DEPTH = 12  # of nested structures
DATA_PAGES = {0: 5, 3: 8}  # the types of pages that hold values, and the field with their details
INT32, INT64, TEXT, LIST, STRUCT = 5, 6, 8, 9, 12  # types of Thrift
FIXED_WIDTH = (0, 1, 2, 3, 4, 5)  # columns of truth values and numbers

Struct = dict[int, tuple[int, Any]]
"Type and value of each field, by its number."


@dataclass(frozen=True)
class Pages:
    """The pages of some columns."""

    largest: int
    "Bytes of the largest, decompressed; of all columns of texts together, since a row has one value of each."

    def rows(self, at_most: int) -> int:
        """Tell how many rows can be decoded at once."""
        return max(1, min(at_most, BATCH // max(1, self.largest)))


def read_pages(file: IO[bytes], columns: Collection[str]) -> Pages:
    """Read the headers of all pages of the columns; raise ValueError for a page that would grow too much.

    The file is left where it was.
    """
    before = file.tell()
    largest: dict[tuple[str, ...], int] = {}
    try:
        footer, left = _footer(file)
        for group in _field(footer, 4, LIST):
            for chunk in _field(group, 1, LIST):
                column = _field(chunk, 3, STRUCT)
                path = tuple(_name(each) for each in _field(column, 3, LIST))
                if path[:1] and path[0] in columns:
                    size, length = _largest_page(file, column, left, nested=len(path) > 1)
                    left -= length
                    if len(path) > 1 or _field(column, 1, INT32) not in FIXED_WIDTH:
                        largest[path] = max(size, largest.get(path, 0))
    finally:
        file.seek(before)
    return Pages(sum(largest.values()))


def _footer(file: IO[bytes]) -> tuple[Struct, int]:
    """Parse the footer, which lists the columns of each row group; give the place where it begins, too."""
    end = file.seek(0, io.SEEK_END) - 8
    file.seek(max(0, end))
    tail = file.read(8)
    length = struct.unpack("<I", tail[:4])[0] if len(tail) == 8 else 0
    if not 0 < length <= min(end, MAX_FOOTER):
        raise ValueError(f"a footer of {length:,} bytes")
    file.seek(end - length)
    return _Thrift(file, length).struct(), end - length


def _largest_page(file: IO[bytes], column: Struct, left: int, *, nested: bool) -> tuple[int, int]:
    """Check the pages of one column in one row group; give the bytes of the largest, and those of all in the file.

    `left` is how many of the file's bytes belong to no pages yet.
    """
    values, stored, at = (_field(column, field, INT64) for field in (5, 7, 9))
    if 11 in column and 0 < (dictionary := _field(column, 11, INT64)) < at:
        at = dictionary
    if at < 0:
        raise ValueError("a page before the file begins")
    begin, end = at, at + stored
    largest = seen = 0
    while seen < values or at < end:
        file.seek(at)
        header = _Thrift(file, MAX_HEADER).struct()
        kind, size, length = (_field(header, field, INT32) for field in (1, 2, 3))
        if size < 0 or length < 0:
            raise ValueError("a page of a negative size")
        if size > MAX_GROWTH * length + FREE_GROWTH:
            raise ValueError(f"a page of {length:,} bytes that would become {size:,}")
        largest = max(largest, size)
        if kind in DATA_PAGES:
            count = _field(_field(header, DATA_PAGES[kind], STRUCT), 1, INT32)
            if count < 0:
                raise ValueError("a page with a negative number of values")
            seen += count
        at = file.tell() + length
        if at - begin > left:
            raise ValueError("pages that overlap")
        if nested and seen > MAX_GROWTH * stored + FREE_GROWTH // 4:
            raise ValueError(f"{seen:,} values in {stored:,} bytes")
    return largest, at - begin


def _field(fields: Any, number: int, kind: int) -> Any:  # noqa: ANN401 (of any type)
    """Take a field that must be there, and of this type."""
    found, value = fields.get(number, (None, None)) if isinstance(fields, dict) else (None, None)
    if found != kind:
        raise ValueError(f"field {number} is missing, or of another type")
    return value


def _name(value: object) -> str:
    if not isinstance(value, bytes):
        raise ValueError("a name that is no text")
    return value.decode("utf-8", "replace")


class _Thrift:
    """A structure in Thrift's compact protocol."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self.file, self.left, self.values = file, limit, MAX_VALUES

    def struct(self, depth: int = DEPTH) -> Struct:
        """Read a structure."""
        fields: Struct = {}
        number = 0
        while kind := (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._integer()
            if number in fields:
                raise ValueError(f"field {number} is there twice")
            fields[number] = kind, kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:  # noqa: ANN401 (a value of any type)
        self.values -= 1
        if self.values < 0:
            raise ValueError("too many values in a header")
        if kind in (1, 2, 3):  # a truth value in a list, a byte
            return self._byte()
        if kind in (4, INT32, INT64):
            return self._integer()
        if kind == 7:
            return self._bytes(8)
        if kind == TEXT:
            return self._bytes(self._varint())
        if kind in (LIST, 10) and depth:
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            return [self._value(head & 15, depth - 1) for _ in range(count)]
        if kind == STRUCT and depth:
            return self.struct(depth - 1)
        raise ValueError("a header that cannot be read")  # a map, which no header has

    def _integer(self) -> int:
        """Read a signed number (zigzag)."""
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a header that cannot be read")

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, count: int) -> bytes:
        self.left -= count
        data = self.file.read(count) if self.left >= 0 else b""
        if len(data) < count:
            raise ValueError("a header that does not end")
        return data
