"""The texts of a project: a copy as one jsonl file, of which any line is read when it is needed.

Each distinct text is one line, in the order of the user's files: text, where it came from, a suggested label, a label
that it had already. Texts that differ in white space only are one. Labelled texts that are not among those to be
labelled follow at the end; they are never asked.

The copy makes the project whole: it goes on if the files have moved, and standard input can be labelled, too.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.disk import atomic_file
from rehead.errors import DamagedError, UserError
from rehead.text.documents import LabelledData, ReadOptions, location
from rehead.text.labelled import label_name
from rehead.text.records import Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARKS = (b'"given": ', b'"suggested": ')  # in a line that has such a field; inside a text, the quotes are escaped
BLOCK = 1 << 24  # bytes read at once
STEP, STEP_BYTES = 1_000, 1 << 22  # copied between two words about it
WORKING = 50_000  # texts that are read, scored and asked from; of more, a random sample


@dataclass(frozen=True)
class Text:
    """One text."""

    number: int
    text: str
    source: str
    "File and line."
    suggested: tuple[str, ...] | None = None
    confidence: float | None = None
    given: tuple[str, ...] | None = None
    "The label that it had already."


@dataclass
class Copied:
    """What copying has found so far."""

    texts: int = 0
    "Distinct texts to be labelled."
    extra: int = 0
    "Labelled texts that are not among them."
    repeated: int = 0
    empty: int = 0
    file: Path = Path()
    "Where the copy can be read."
    size: int = 0
    "Bytes of it that are there."


def key_of(text: str) -> int:
    """Give a number that texts share which differ in white space only."""
    plain = " ".join(text.split())
    digest = hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def copy_texts(
    sources: Sequence[str],
    options: ReadOptions,
    path: Path,
    *,
    labelled: LabelledData | None = None,
    suggested: str | None = None,
    confidence: str | None = None,
) -> Generator[Copied, None, None]:
    """Copy all texts into one file, which appears whole or not at all; say now and then how far it is."""
    found, said = Copied(), 0
    seen: set[int] = set()
    known = {} if labelled is None else {key_of(example.text): example for example in labelled}
    with atomic_file(path) as found.file, found.file.open("wb") as file:
        for source in sources:
            records = Records(source, options)
            for name in (suggested, confidence):
                if name is not None and name not in (columns := records.columns()):
                    raise UserError(f"{source}: no column {name!r}. There are: {', '.join(map(str, columns))}.")
            for record in records:
                said += 1
                if said % STEP == 0 or file.tell() - found.size >= STEP_BYTES:
                    file.flush()
                    found.size = file.tell()
                    yield found
                if not record.text:
                    found.empty += 1
                    continue
                key = key_of(record.text)
                if key in seen:
                    found.repeated += 1
                    continue
                seen.add(key)
                at = location(record.source, record.line)
                row: dict[str, Any] = {"text": record.text, "source": at}
                if suggested is not None and (names := _names(record.columns.get(suggested), at)):
                    row["suggested"] = names
                if confidence is not None and (number := _number(record.columns.get(confidence), at)) is not None:
                    row["confidence"] = number
                if (example := known.pop(key, None)) is not None:
                    row["given"] = list(example.labels)
                file.write(_line(row))
                found.texts += 1
        for example in known.values():
            at = location(example.source, example.line)
            file.write(_line({"text": example.text, "source": at, "given": list(example.labels), "extra": True}))
            found.extra += 1
        if not found.texts:
            raise UserError(f"{', '.join(sources)}: all texts are empty.")
        found.size = file.tell()
    found.file = path
    yield found


def _line(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(row).encode() + b"\n"


def _names(value: object, at: str) -> list[str]:
    """Read a suggestion: a label, a list of labels, or labels between bars."""
    parts = value if isinstance(value, list) else str(value).split("|") if isinstance(value, str) else [value]
    return [name for each in parts if (name := label_name(each, at))]


def _number(value: object, at: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(str(value))
    except ValueError:
        raise UserError(f"{at}: the confidence is not a number. Give one from 0 to 1, or leave it empty.") from None
    return number if np.isfinite(number) else None


class TextStore:
    """The texts of a project, each read when it is needed."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        """`size`: bytes that count, of a copy that is not whole yet."""
        self.path, self.size = path, size
        self._file, self._lock = path.open("rb"), threading.Lock()
        begins, marked, tail = [np.zeros(1, np.int64)], False, b""
        for offset, block in self._blocks():
            begins.append(np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + (offset + 1))
            marked = marked or any(mark in tail + block for mark in MARKS)
            tail = block[-max(map(len, MARKS)) :]
        self._begins: NDArray[np.int64] = np.concatenate(begins)
        self.given: dict[int, tuple[str, ...]] = {}
        self.extra: set[int] = set()
        self.suggested: set[str] = set()
        "Labels that are suggested for any text."
        if marked:
            self._read_labels()

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """Read the file from its beginning. It is not mapped: pages of it would count as memory of this process."""
        offset = 0
        while block := self._read(offset, BLOCK if self.size is None else min(BLOCK, self.size - offset)):
            yield offset, block
            offset += len(block)

    def _line(self, number: int) -> bytes:
        begin, end = self._begins[number : number + 2].tolist()
        return self._read(begin, end - begin)

    def _read(self, offset: int, size: int) -> bytes:
        with self._lock:
            self._file.seek(offset)
            return self._file.read(size)

    def _read_labels(self) -> None:
        for number in range(len(self)):
            if any(mark in self._line(number) for mark in MARKS):
                row = self._row(number)
                if "given" in row:
                    self.given[number] = tuple(row["given"])
                if row.get("extra"):
                    self.extra.add(number)
                self.suggested.update(row.get("suggested", ()))

    def __len__(self) -> int:
        return len(self._begins) - 1

    def _row(self, number: int) -> dict[str, Any]:
        try:
            row = json.loads(self._line(number))
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise DamagedError(f"{self.path} line {number + 1}: damaged. Restore the file from a copy.")
        return row

    def __getitem__(self, number: int) -> Text:
        """Read one text."""
        row = self._row(number)
        names = {name: tuple(row[name]) if name in row else None for name in ("suggested", "given")}
        return Text(
            number, row["text"], row.get("source", ""), names["suggested"], row.get("confidence"), names["given"]
        )

    def texts(self, numbers: Sequence[int] | NDArray[np.int64]) -> Iterator[str]:
        """Read some texts, one after the other."""
        for number in numbers:
            yield self._row(int(number))["text"]

    def asked(self, seed: int, most: int = WORKING) -> NDArray[np.int64]:
        """Choose the texts that can be asked: all, or a random sample; ascending."""
        found = np.array([each for each in range(len(self)) if each not in self.extra], np.int64)
        return np.sort(np.random.default_rng(seed).permutation(found)[:most]) if len(found) > most else found

    def fingerprint(self) -> str:
        """SHA-256 of all of it."""
        digest = hashlib.sha256()
        for _, block in self._blocks():
            digest.update(block)
        return digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def describe_copied(found: Copied) -> str:
    """Say in one line what there is."""
    counts = Counter({"repeated": found.repeated, "empty": found.empty})
    left = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    more = f", {found.extra:,} more with labels" if found.extra else ""
    return f"{found.texts:,} texts{more}" + (f" ({left} left out)" if left else "")
