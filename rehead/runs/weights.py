"""The weights of a run: read into memory once, checked there, and never looked for on disk again.

`safetensors` maps a file into memory, so what its digest was checked for is not what answers: a file that is replaced
or cut afterwards changes the model under a running server, or ends it with a bus error. Here the bytes that are hashed
are the bytes that are used. It costs the memory of the file for each process, and the time of copying it from the page
cache: docs/security.md has the figures.

Many rows of large matrices are zero: a base has 262,144 rows for n-grams, and 9,000 short texts have 22,729 that occur
twice; of a sparse view, most n-grams may have no weight for any class, as they occur in unlabelled text alone. Such a
matrix (W, K) is stored as its other rows, `….values` (R, K), and which they are, `….rows` (R,). It is loaded as a whole
matrix, of which the operating system gives memory only to what is written.

The n-grams of labelled texts have a weight for every class, and few are small enough to be left out: without those
below a thousandth of the largest, 70 % are left, and probabilities change by 0.013. So a matrix of more than 32 MB,
which takes hundreds of classes, is stored in 16 bits: multiples, `….values`, of a step for each row, `….steps` (R,). A
weight moves by at most 1/65,534 of the largest in its row. 1,000 classes and 110,000 n-grams take 221 MB instead of
441, and no probability of 500 texts moves by more than 0.00005 (half precision: 0.0009; 8 bits: 0.013).

Shapes: W features, K classes, R features that have a weight.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from rehead.disk import machine_memory, parse_json
from rehead.errors import DamagedError, short_repr

ROWS, VALUES, STEPS = ".rows", ".values", ".steps"
LARGE, LEVELS = 2**25, 2**15 - 1  # bytes of a matrix from which on it is stored in 16 bits; the largest multiple
SIZES = {"F32": 4, "I16": 2}  # bytes of the types that a run may hold
MAX_HEADER = 16 * 2**20
BLOCK = 2**24
MAX_GROWTH, FREE_GROWTH = 64, 2**29  # how much larger a loaded matrix may be than the file: times its size, plus bytes

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
        """Give a tensor of type F32 or I16."""
        kind = torch.int16 if self.entries[name].dtype == "I16" else torch.float32
        return self.data[name].view(kind).view(self.entries[name].shape)


def read_weights(path: Path, digest: object) -> Weights:
    """Read a file; refuse it if the SHA-256 of what was read is not `digest`, or if it is no safetensors file."""
    entries: dict[str, Entry] = {}
    data: dict[str, Tensor] = {}
    wrong: Exception | None = None
    found = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if (memory := machine_memory()) is not None and size > memory:
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


def pack(tensors: Mapping[str, Tensor], sparse: Iterable[str], short: Collection[str] = ()) -> dict[str, Tensor]:
    """Store the matrices named `sparse` by those of their rows that are not zero, where that is shorter.

    Those that are also named `short` are stored in 16 bits if they are large.
    """
    packed = dict(tensors)
    grown = 0
    for name in sparse:
        weight = tensors[name]
        rows = weight.any(1).nonzero()[:, 0]
        large = name in short and 4 * len(rows) * weight.shape[1] > LARGE
        if not large and len(rows) * (weight.shape[1] + 1) >= weight.numel():
            continue
        del packed[name]
        grown += 4 * weight.numel()
        values = weight[rows]
        packed[name + ROWS] = rows.float()
        if large:
            steps = (values.abs().amax(1) / LEVELS).clamp_min(torch.finfo(torch.float32).tiny)
            packed[name + STEPS] = steps
            values = values.div_(steps[:, None]).round_().clamp_(-LEVELS, LEVELS).short()
        packed[name + VALUES] = values.contiguous()
    size = sum(each.numel() * each.element_size() for each in packed.values())
    return packed if grown <= MAX_GROWTH * size + FREE_GROWTH else dict(tensors)


def packed_names(weights: Weights, sparse: Iterable[str]) -> list[str]:
    """List the matrices that a file holds by their rows."""
    return [name for name in sparse if name not in weights.entries and name + ROWS in weights.entries]


def packed_shapes(weights: Weights, name: str, shape: Shape) -> dict[str, Shape]:
    """Give the shapes that a matrix (W, K) has where it is stored by its rows: as many as the file says."""
    rows = math.prod(weights.entries[name + ROWS].shape)
    steps: dict[str, Shape] = {name + STEPS: (rows,)} if name + STEPS in weights.entries else {}
    return {name + ROWS: (rows,), name + VALUES: (rows, shape[1]), **steps}


def dtype_of(name: str, entries: Mapping[str, Entry]) -> str:
    """Give the type that a tensor of a file must have: F32, but for values that have steps."""
    return "I16" if name.endswith(VALUES) and name.removesuffix(VALUES) + STEPS in entries else "F32"


def unpack(weights: Weights, names: Iterable[str], shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    """Make whole matrices of those that are stored by their rows; refuse rows that do not fit, before allocating."""
    found = {}
    room = MAX_GROWTH * weights.size + FREE_GROWTH
    for name in names:
        rows, values, (count, columns) = weights.tensor(name + ROWS), weights.tensor(name + VALUES), shapes[name]
        at = f"{weights.path}: {name + ROWS}"
        if not ((rows >= 0) & (rows < count) & (rows == rows.floor())).all() or (rows.diff() <= 0).any():
            raise DamagedError(f"{at} is no ascending list of rows below {count:,}. Restore the file from a copy.")
        steps = weights.tensor(name + STEPS) if name + STEPS in weights.entries else None
        if steps is not None and not (steps * (LEVELS + 1)).isfinite().all():
            raise DamagedError(f"{weights.path}: {name + STEPS} makes infinite weights. Restore the file from a copy.")
        room -= 4 * count * columns
        if room < 0:
            raise DamagedError(
                f"{weights.path}: {name} would take {4 * count * columns:,} bytes of memory, more than {MAX_GROWTH} "
                "times the file. No run that rehead writes does; it is refused."
            )
        found[name] = _untouched_zeros(count, columns)
        found[name][rows.long()] = values if steps is None else values * steps[:, None]
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
    stated = SIZES.get(dtype, 0) * math.prod(shape)
    if entry.end < entry.begin or (dtype in SIZES and entry.end - entry.begin != stated):
        raise ValueError(f"{short_repr(name)} has {entry.end - entry.begin:,} bytes for the shape {entry.shape}")
    return entry
