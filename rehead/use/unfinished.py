"""Atomic, resumable output: a file that appears complete or not at all, and can be resumed after an interruption.

    OUT.partial        what was written so far
    OUT.partial.json   the checkpoint: valid bytes, options, and the state to resume from

Data is appended; every two seconds it is flushed to disk (fsync), and then the checkpoint is replaced. After any
interruption, kill -9 and power loss included, all bytes up to the checkpoint are on disk; the rest is truncated on
resume. When everything is written, OUT.partial is renamed to OUT.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from rehead.disk import atomic_file, fsync, read_checksummed_json, write_checksummed_json
from rehead.errors import DamagedError, UserError, short_repr
from rehead.locks import locked

CHECKPOINT_SECONDS = 2.0


class Unfinished:
    """The file while it is written; `state` is that of the last checkpoint, None at the beginning."""

    def __init__(
        self, out: Path, asked: Mapping[str, Any] | None, *, resume: bool = False, overwrite: bool = False
    ) -> None:
        """Start, or resume with the same options; `asked` holds, by name, all that the output depends on.

        None: the file cannot be resumed, and a partial one left by kill -9 is overwritten without asking.
        """
        self.out = out
        self.partial = out.with_name(out.name + ".partial")
        self.checkpoint = out.with_name(out.name + ".partial.json")
        self.asked, self.replaces = asked if asked is None else dict(asked), overwrite
        self.state: dict[str, Any] | None = None
        self.size = 0
        self.held = ExitStack()
        try:
            self.held.enter_context(locked(out))
            self._begin(resume=resume, overwrite=overwrite)
        except BaseException:
            self.held.close()
            raise

    def _begin(self, *, resume: bool, overwrite: bool) -> None:
        """Open the file, and cut off what was written after the checkpoint."""
        if resume:
            self._load_checkpoint()
        check_out(self.out, overwrite=self.replaces)
        if (
            not resume
            and not overwrite
            and self.checkpoint.exists()
            and read_checksummed_json(self.checkpoint).get("asked") is not None
        ):
            raise UserError(
                f"{self.partial} exists: an earlier run was interrupted. Continue it with --resume, or start over with "
                f"--overwrite."
            )
        if not self.checkpoint.exists() and self.partial.exists() and self.partial.stat().st_size:
            raise UserError(
                f"{self.partial} exists, but is not a partial output of rehead. Move it, or choose another --out."
            )
        try:
            self.file: IO[bytes] = os.fdopen(os.open(self.partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
            self.saved = -CHECKPOINT_SECONDS
            self.pending: dict[str, Any] | None = None
            self.save(self.state or {})
            self.file.seek(self.size)
            self.file.truncate()
        except OSError as error:
            if self.state is None and hasattr(self, "file"):
                self.discard()
            raise UserError(f"{self.partial} cannot be written: {error.strerror or error}.") from error

    def __enter__(self) -> Unfinished:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def append(self, data: bytes, state: dict[str, Any] | None = None) -> None:
        """Append data; `state` is what resuming after it needs."""
        self.file.write(data)
        self.size += len(data)
        self.pending = state
        if time.monotonic() - self.saved >= CHECKPOINT_SECONDS:
            self.save()

    def save(self, state: dict[str, Any] | None = None) -> None:
        """Flush everything to disk, and write a checkpoint."""
        state = self.pending if state is None else state
        if state is None:
            return
        self.file.flush()
        os.fsync(self.file.fileno())
        saved = {"asked": self.asked, "replaces": self.replaces, "bytes": self.size, "state": state}
        with atomic_file(self.checkpoint) as partial:
            write_checksummed_json(partial, saved)
        self.saved, self.pending = time.monotonic(), None

    def finish(self) -> None:
        """Rename the complete file to its final name."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        self.partial.replace(self.out)
        fsync(self.out.absolute().parent)
        self.checkpoint.unlink(missing_ok=True)
        self.held.close()

    def close(self) -> None:
        """Close the file, finished or not; delete it if there is nothing to resume."""
        if not self.file.closed:
            if self.size and self.asked is not None:
                self._close_file()
            else:
                self.discard()
        self.held.close()

    def discard(self) -> None:
        """Delete what was written."""
        self._close_file()
        self.partial.unlink(missing_ok=True)
        self.checkpoint.unlink(missing_ok=True)

    def _close_file(self) -> None:
        with suppress(OSError):  # a full disk: what does not fit comes after the last checkpoint
            self.file.close()

    def _load_checkpoint(self) -> None:
        if not self.checkpoint.exists() or (self.out.exists() and not self.partial.exists()):
            why = f"{self.out} is finished" if self.out.exists() else f"{self.checkpoint} is missing"
            raise UserError(f"there is nothing to resume: {why}. Drop --resume.")
        before = read_checksummed_json(self.checkpoint)
        was, self.replaces = before.get("asked"), before.get("replaces") is True
        if was is None or self.asked is None:
            raise UserError(f"there is nothing to resume: {self.out} cannot be resumed. Drop --resume.")
        for name, now in self.asked.items():
            if was.get(name) != now:
                raise UserError(
                    f"{self.partial} was started with another {name} ({short_repr(was.get(name))}, now "
                    f"{short_repr(now)}). Resume with the same, or start over with --overwrite."
                )
        self.state, self.size = before["state"] or None, before["bytes"]
        if self.size and (not self.partial.exists() or self.partial.stat().st_size < self.size):
            raise DamagedError(f"{self.partial}: truncated, shorter than its checkpoint. Start over with --overwrite.")


def check_out(out: Path, *, overwrite: bool) -> None:
    """Raise an error if the output exists and may not be overwritten, or is not a file."""
    if out.is_dir() or (out.exists() and not out.is_file()):
        raise UserError(f"{out} exists already and is not a file. Choose another name.")
    if (out.exists() or out.is_symlink()) and not overwrite:
        raise UserError(f"{out} exists already. Choose another name, or allow overwriting (--overwrite).")
