"""The weights of a run: read into memory once, checked there, and never looked for on disk again.

`safetensors` maps a file into memory, so what its digest was checked for is not what answers: a file that is replaced
or cut afterwards changes the model under a running server, or ends it with a bus error. Here the bytes that are hashed
are the bytes that are used. It costs the memory of the file for each process, and the time of copying it from the page
cache: docs/security.md has the figures.

Of a sparse view, most n-grams may have no weight for any class: they occur in unlabelled text alone. Such a matrix
(W, K) is stored as its other rows, `….values` (R, K), and which they are, `….rows` (R,). It is loaded as a whole
matrix, of which the operating system gives memory only to what is written.

Shapes: W features, K classes, R features that have a weight.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from rehead.disk import parse_json
from rehead.errors import DamagedError, short_repr

ROWS, VALUES = ".rows", ".values"
MAX_HEADER = 16 * 2**20
BLOCK = 2**24
MAX_GROWTH, FREE_GROWTH = 64, 2**26  # how much larger a loaded matrix may be than the file: times its size, plus bytes

Shape = tuple[int, ...]


class _Hash(Protocol):
    def update(self, data: bytes | bytearray | memoryview, /) -> None: ...


@dataclass(frozen=True)
class Entry:
    """A tensor of the file."""

    dtype: str
    shape: Shape
    begin: int
    end: int


@dataclass(frozen=True)
class Weights:
    """A safetensors file in memory."""

    path: Path
    entries: dict[str, Entry]
    data: dict[str, Tensor]
    "The bytes of each tensor, in memory of its own."
    size: int
    "Bytes of the file."

    def tensor(self, name: str) -> Tensor:
        """Give a tensor of type F32."""
        return self.data[name].view(torch.float32).view(self.entries[name].shape)


def read_weights(path: Path, digest: object) -> Weights:
    """Read a file; refuse it if the SHA-256 of what was read is not `digest`, or if it is no safetensors file."""
    entries: dict[str, Entry] = {}
    data: dict[str, Tensor] = {}
    wrong: Exception | None = None
    found = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if (memory := _memory()) is not None and size > memory:
            raise DamagedError(f"{path}: {size:,} bytes, but this machine has a memory of {memory:,}.")
        try:
            entries = _header(file, size, found, path)
        except (ValueError, DamagedError) as error:
            wrong = error
        for name, entry in sorted(entries.items(), key=lambda each: each[1].begin):
            data[name] = torch.empty(entry.end - entry.begin, dtype=torch.uint8)
            _fill(file, memoryview(data[name].numpy().data), found)
        while block := file.read(BLOCK):  # of a file that is none, for its digest
            found.update(block)
    if found.hexdigest() != digest:
        raise DamagedError(f"{path}: not the file that was saved (its SHA-256 differs). Restore it from a copy.")
    if wrong is not None:
        raise DamagedError(f"{path}: not a whole safetensors file ({wrong}). Restore it from a copy.")
    return Weights(path, entries, data, size)


def pack(tensors: Mapping[str, Tensor], sparse: Iterable[str]) -> dict[str, Tensor]:
    """Store the matrices named `sparse` by those of their rows that are not zero, where that is shorter."""
    packed = dict(tensors)
    for name in sparse:
        weight = tensors[name]
        rows = weight.any(1).nonzero()[:, 0]
        if len(rows) * (weight.shape[1] + 1) < weight.numel():
            del packed[name]
            packed |= {name + ROWS: rows.float(), name + VALUES: weight[rows].contiguous()}
    return packed


def packed_names(weights: Weights, sparse: Iterable[str]) -> list[str]:
    """List the matrices that a file holds by their rows."""
    return [name for name in sparse if name not in weights.entries and name + ROWS in weights.entries]


def packed_shapes(weights: Weights, name: str, shape: Shape) -> dict[str, Shape]:
    """Give the shapes that a matrix (W, K) has where it is stored by its rows: as many as the file says."""
    rows = math.prod(weights.entries[name + ROWS].shape)
    return {name + ROWS: (rows,), name + VALUES: (rows, shape[1])}


def unpack(weights: Weights, names: Iterable[str], shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    """Make whole matrices of those that are stored by their rows; refuse rows that do not fit, before allocating."""
    found = {}
    room = MAX_GROWTH * weights.size + FREE_GROWTH
    for name in names:
        rows, values, (count, columns) = weights.tensor(name + ROWS), weights.tensor(name + VALUES), shapes[name]
        at = f"{weights.path}: {name + ROWS}"
        if not ((rows >= 0) & (rows < count) & (rows == rows.floor())).all() or (rows.diff() <= 0).any():
            raise DamagedError(f"{at} is no ascending list of rows below {count:,}. Restore the file from a copy.")
        room -= 4 * count * columns
        if room < 0:
            raise DamagedError(
                f"{weights.path}: {name} would take {4 * count * columns:,} bytes of memory, more than {MAX_GROWTH} "
                "times the file. No classifier that rehead writes does; it is refused."
            )
        found[name] = _untouched_zeros(count, columns)
        found[name][rows.long()] = values
    return found


def _fill(file: RawIOBase, view: memoryview, digest: _Hash) -> None:
    """Read into memory, and hash what was read. A file that was cut meanwhile ends early: its digest will tell."""
    at = 0
    while at < len(view) and (count := file.readinto(view[at : at + BLOCK])):
        digest.update(view[at : at + count])
        at += count


def _untouched_zeros(rows: int, columns: int) -> Tensor:
    """Make a matrix of zeros that takes no memory where it is not written; torch's and numpy's own do."""
    if not rows * columns:
        return torch.zeros(rows, columns)
    pages = mmap.mmap(-1, 4 * rows * columns, access=mmap.ACCESS_COPY)
    return torch.frombuffer(pages, dtype=torch.float32).view(rows, columns)


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def _header(file: RawIOBase, size: int, digest: _Hash, path: Path) -> dict[str, Entry]:
    """Parse the header: which tensors there are, without gaps or overlaps."""
    first = bytearray(8)
    _fill(file, memoryview(first), digest)
    (length,) = struct.unpack("<Q", first)
    if length > min(MAX_HEADER, size - 8):
        raise ValueError(f"a header of {length:,} bytes")
    header = bytearray(length)
    _fill(file, memoryview(header), digest)
    fields = parse_json(bytes(header), path)
    if not isinstance(fields, dict):
        raise ValueError("its header is not an object")
    entries = {name: _entry(name, value) for name, value in fields.items() if name != "__metadata__"}
    at = 0
    for name, entry in sorted(entries.items(), key=lambda each: (each[1].begin, each[1].end)):
        if entry.begin != at:
            raise ValueError(f"{short_repr(name)} does not begin where the tensor before it ends")
        at = entry.end
    if at != size - 8 - length:
        raise ValueError(f"{size - 8 - length:,} bytes of tensors, but {at:,} in its header")
    return entries


def _entry(name: str, value: object) -> Entry:
    fields = value if isinstance(value, dict) else {}
    dtype, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    whole = all(isinstance(each, list) and all(type(x) is int and x >= 0 for x in each) for each in (shape, offsets))
    if not isinstance(dtype, str) or not whole or len(offsets or ()) != 2:
        raise ValueError(f"the entry of {short_repr(name)} is {short_repr(value)}")
    assert isinstance(shape, list)  # noqa: S101 (for the type checker)
    assert isinstance(offsets, list)  # noqa: S101 (for the type checker)
    entry = Entry(dtype, tuple(shape), *offsets)
    if entry.end < entry.begin or (dtype == "F32" and entry.end - entry.begin != 4 * math.prod(shape)):
        raise ValueError(f"{short_repr(name)} has {entry.end - entry.begin:,} bytes for the shape {entry.shape}")
    return entry
