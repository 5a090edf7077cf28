"""A file that is written piece by piece: whole or not at all under its name, and gone on with after an interruption.

    OUT.partial        the pieces so far
    OUT.partial.json   how many of its bytes count, what was asked for, and where the work was

Pieces are put behind each other; every two seconds what there is goes to the disk, and only then is it said that it
counts. Whatever stops the work, kill -9 and a power cut included, what counts is there: the rest is cut off, and the
work goes on from there. When all is written, OUT.partial becomes OUT.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rehead.disk import flush, read_signed, write_signed
from rehead.errors import DamagedError, UserError, shown

SAVED_EVERY = 2.0  # seconds


class Unfinished:
    """The file while it is written; `state` is what the last piece that counts came with, None at the beginning."""

    def __init__(
        self, out: Path, asked: Mapping[str, Any] | None, *, resume: bool = False, overwrite: bool = False
    ) -> None:
        """Begin, or go on with what was asked the same; `asked` is what decides over the bytes, by name.

        None: it is never gone on with. What is left of it, after kill -9, is begun anew unasked.
        """
        self.out = out
        self.partial = out.with_name(out.name + ".partial")
        self.record = out.with_name(out.name + ".partial.json")
        self.asked, self.replaces = asked if asked is None else dict(asked), overwrite
        self.state: dict[str, Any] | None = None
        self.size = 0
        if resume:
            self._find_again()
        check_out(out, overwrite=self.replaces)
        if not resume and not overwrite and self.record.exists() and read_signed(self.record).get("asked") is not None:
            raise UserError(
                f"{self.partial} is there: this was begun before. Go on with --resume, or begin anew with --overwrite."
            )
        if not self.record.exists() and self.partial.exists() and self.partial.stat().st_size:
            raise UserError(f"{self.partial} is in the way, and was not begun here. Move it, or choose another --out.")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            self.file: IO[bytes] = os.fdopen(os.open(self.partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
            _lock(self.file, self.partial)
            self.saved = -SAVED_EVERY
            self.pending: dict[str, Any] | None = None
            self.save(self.state or {})
            self.file.seek(self.size)
            self.file.truncate()
        except OSError as error:
            raise UserError(f"{self.partial} cannot be written: {error.strerror or error}.") from error

    def __enter__(self) -> Unfinished:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def append(self, piece: bytes, state: dict[str, Any] | None = None) -> None:
        """Add a piece; `state` is what going on behind it needs to know."""
        self.file.write(piece)
        self.size += len(piece)
        self.pending = state
        if time.monotonic() - self.saved >= SAVED_EVERY:
            self.save()

    def save(self, state: dict[str, Any] | None = None) -> None:
        """Have all pieces so far count."""
        state = self.pending if state is None else state
        if state is None:
            return
        self.file.flush()
        os.fsync(self.file.fileno())
        beside = self.record.with_name(self.record.name + ".new")
        write_signed(beside, {"asked": self.asked, "replaces": self.replaces, "bytes": self.size, "state": state})
        flush(beside)
        beside.replace(self.record)
        self.saved, self.pending = time.monotonic(), None

    def finish(self) -> None:
        """Put the file under its name."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        self.partial.replace(self.out)
        flush(self.out.absolute().parent)
        self.record.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file, finished or not; where there is nothing to go on with, nothing is left."""
        if self.file.closed:
            return
        if self.size and self.asked is not None:
            self.file.close()
        else:
            self.discard()

    def discard(self) -> None:
        """Throw away what was written."""
        self.file.close()
        self.partial.unlink(missing_ok=True)
        self.record.unlink(missing_ok=True)

    def _find_again(self) -> None:
        if not self.record.exists() or (self.out.exists() and not self.partial.exists()):
            why = f"{self.out} is finished" if self.out.exists() else f"{self.record} is missing"
            raise UserError(f"there is nothing to resume: {why}. Drop --resume.")
        before = read_signed(self.record)
        was, self.replaces = before.get("asked"), before.get("replaces") is True
        if was is None or self.asked is None:
            raise UserError(f"there is nothing to resume: {self.out} is written in one go. Drop --resume.")
        for name, now in self.asked.items():
            if was.get(name) != now:
                raise UserError(
                    f"{self.partial} was begun with another {name} ({shown(was.get(name))}, now {shown(now)}). "
                    "Go on with the same, or begin anew with --overwrite."
                )
        self.state, self.size = before["state"] or None, before["bytes"]
        if self.size and (not self.partial.exists() or self.partial.stat().st_size < self.size):
            raise DamagedError(f"{self.partial}: shorter than it was. Begin anew with --overwrite.")


def check_out(out: Path, *, overwrite: bool) -> None:
    """Refuse to replace what the user has not given up, or what is no file."""
    if out.is_dir() or (out.exists() and not out.is_file()):
        raise UserError(f"{out} exists already and is not a file. Choose another name.")
    if (out.exists() or out.is_symlink()) and not overwrite:
        raise UserError(f"{out} exists already. Choose another name, or allow overwriting (--overwrite).")


def _lock(file: IO[bytes], path: Path) -> None:
    """Keep two processes from writing the same file; the lock goes with the process."""
    try:
        import fcntl
    except ImportError:  # Windows does not let two open it
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(f"{path} is being written by another process. Wait for it, or choose another --out.") from None
