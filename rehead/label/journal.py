"""The journal: everything that people decided, one JSON line each, synced to disk before it is acknowledged.

    journal = Journal.open(path)
    journal.append({"kind": "label", "text": 17, "labels": [0], "by": "anna"})   # on disk when this returns

Lines are only ever added. Each has a number, the time, and a checksum of itself. A line that a killed process left
unfinished is the last one; it was never acknowledged, and is cut off when the journal is opened. A broken line
anywhere else is damage, and is reported. If a line cannot be written (a full disk), what there is of it is cut off
again, and the journal goes on as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import zlib
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rehead.disk import fsync
from rehead.errors import DamagedError, UserError

Event = dict[str, Any]


class JournalError(UserError):
    """An event could not be written; nothing of it counts."""


class Journal:
    """An append-only file of events. One process at a time; any number of its threads."""

    def __init__(self, path: Path, events: list[Event], length: int) -> None:
        self.path, self.events = path, events
        self._length = length
        "Bytes of the file that count."
        self._lock = threading.Lock()
        self._file: int | None = None

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Read a journal, or begin one; cut off an unfinished last line."""
        if not path.exists():
            with path.open("ab"):
                pass
            fsync(path.parent)
        data = path.read_bytes()
        events, length = _parse(data, path)
        journal = cls(path, events, length)
        if length < len(data):
            os.truncate(path, length)
            fsync(path)
        return journal

    def append(self, event: Event) -> Event:
        """Write an event with its number and time; return it when it is on disk."""
        with self._lock:
            at = datetime.now(timezone.utc).isoformat(timespec="seconds")
            whole = {"seq": len(self.events) + 1, "at": at, **event}
            line = _line(whole)
            try:
                if self._file is None:
                    self._file = os.open(self.path, os.O_RDWR | getattr(os, "O_BINARY", 0))
                    self._cut()
                _write(self._file, line, self._length)
                os.fsync(self._file)
            except OSError as error:
                self._give_up()
                raise JournalError(f"{self.path}: not saved: {error.strerror or error}.") from error
            self._length += len(line)
            self.events.append(whole)
            return whole

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _cut(self) -> None:
        """Cut off what does not count: of a line that could not be written, and could not be cut off then."""
        assert self._file is not None  # noqa: S101 (it was opened just now)
        if os.fstat(self._file).st_size != self._length:
            os.ftruncate(self._file, self._length)

    def _give_up(self) -> None:
        """Take back what was written of a line; where even that fails, the next one begins with it."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            self._cut()
        os.close(self._file)
        self._file = None


def _write(file: int, line: bytes, offset: int) -> None:
    """Write all of a line at its place."""
    while line:
        written = os.pwrite(file, line, offset)
        line, offset = line[written:], offset + written


def _line(event: Event) -> bytes:
    """Write an event as a line of JSON, with a checksum as its last field."""
    text = json.dumps(event, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f'{text[:-1]},"crc":"{zlib.crc32(text.encode()):08x}"}}\n'.encode()


def _parse(data: bytes, path: Path) -> tuple[list[Event], int]:
    """Read all whole lines: the events, and how many bytes they take."""
    events: list[Event] = []
    length = 0
    while length < len(data):
        end = data.find(b"\n", length)
        event = None if end < 0 else _event(data[length:end], len(events) + 1)
        if event is None:
            if end >= 0 and data.find(b"\n", end + 1) >= 0:
                raise DamagedError(f"{path} line {len(events) + 1}: damaged. Restore the file from a copy.")
            break
        events.append(event)
        length = end + 1
    return events, length


def _event(line: bytes, number: int) -> Event | None:
    """Read a line; None if it is not what was written."""
    text, mark, check = line.rpartition(b',"crc":"')
    if not mark or check != b'%08x"}' % zlib.crc32(text + b"}"):
        return None
    event = json.loads(text + b"}")
    return event if isinstance(event, dict) and event.get("seq") == number else None
