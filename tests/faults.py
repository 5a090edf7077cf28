"""Faults of the disk, for all tests that need one: the n-th operation fails, finds the disk full, or is the last.

    with faulty_disk(folder) as disk: ...            what is done to files below the folder is listed in `disk.done`
    with faulty_disk(folder, 7, "full"): ...         as if the disk were full from operation 7 on
    with faulty_disk(folder, 7, "kill"): ...         the process dies (SIGKILL) before operation 7
    with faulty_disk(folder, on("metrics.jsonl")): ...   the first operation on a file of this name fails

An operation creates, writes, truncates, syncs, renames, swaps or removes a file or directory. Python tells of most by
itself (audit events); those of writing are seen by files that count, those of safetensors by writing its bytes here.
Nothing waits for a disk: a sync is counted, not done.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import io
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import safetensors.torch
from safetensors import SafetensorError

import rehead.disk
import rehead.runs.run
import rehead.training.checkpoint

Fault = Literal["fail", "short", "full", "kill"]
FAULTS: tuple[Fault, ...] = ("fail", "short", "full", "kill")
NEEDS_ROOM = ("create", "write", "mkdir")  # what a full disk refuses
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
EVENTS = {  # of Python's audit events: the operation
    "os.rename": "rename",
    "os.mkdir": "mkdir",
    "os.remove": "remove",
    "os.rmdir": "remove",
    "os.truncate": "truncate",
}


At = int | Callable[[str, str], bool] | None
"Which operation goes wrong: its number, or the first of some kind on some name."


def on(wanted: str, kind: str = "", *, times: int = 1) -> Callable[[str, str], bool]:
    """Choose the `times`-th operation on files of this name, of this kind if one is given."""
    seen = itertools.count(1)
    return lambda what, name: name == wanted and kind in ("", what) and next(seen) == times


@dataclass
class FaultyDisk:
    """What has been done, and what is to go wrong."""

    root: Path
    at: At
    fault: Fault
    done: list[tuple[str, str]] = field(default_factory=list)
    "Operations so far, and the names of the files."

    def covers(self, path: object, folder: object = -1) -> bool:
        """Tell whether a path, or a name in an open folder, is below the root."""
        return self.root in self.path_of(path, folder).parents

    @staticmethod
    def path_of(path: object, folder: object = -1) -> Path:
        if isinstance(path, int):
            return Path(f"/proc/self/fd/{path}").readlink()
        given = Path(os.fsdecode(path))  # type: ignore[arg-type] # what Python takes for a path
        if isinstance(folder, int) and folder >= 0:
            return Path(f"/proc/self/fd/{folder}").readlink() / given
        return given.absolute()

    def operate(self, what: str, path: object, half: Callable[[], object] = lambda: None) -> None:
        """Count an operation, and let it go wrong if its turn has come; `half` does a part of a write."""
        number, name = len(self.done), self.path_of(path).name
        self.done.append((what, name))
        if callable(self.at) and self.at(what, name):
            self.at = number
        if not isinstance(self.at, int) or number < self.at:
            return
        if self.fault == "kill":
            half()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "full" and what in NEEDS_ROOM:
            half()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if number == self.at and self.fault in ("fail", "short"):
            if self.fault == "short":
                half()
            code = errno.ENOSPC if self.fault == "short" else errno.EIO
            raise OSError(code, os.strerror(code), str(path))


_active: list[FaultyDisk] = []  # an audit hook stays for ever: it asks whether there is something to do


def _audit(event: str, given: tuple[Any, ...]) -> None:
    if not _active or (event != "open" and event not in EVENTS):
        return
    disk = _active[-1]
    folder = given[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
    if event == "open" and (isinstance(given[0], int) or not given[2] & WRITING):
        return
    if disk.covers(given[0], folder):
        disk.operate(EVENTS.get(event, "create"), given[0])


@functools.cache
def _watch() -> None:
    sys.addaudithook(_audit)


class _CountingFile(io.FileIO):
    """A file whose writes are operations."""

    disk: FaultyDisk

    def write(self, data: Any) -> int:
        half = memoryview(data).cast("B")[: memoryview(data).nbytes // 2]
        self.disk.operate("write", self.name, lambda: io.FileIO.write(self, half))
        return super().write(data)


def _opened(disk: FaultyDisk, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Make `open` give files that count, below the root and for writing."""

    def opened(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if not set(mode) & set("wax+") or opener is not None or not disk.covers(file):
            return plain(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _CountingFile(file, mode.replace("b", "").replace("t", ""), closefd)
        raw.disk = disk
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline)

    return opened


def _save_file(tensors: Any, path: Any, metadata: Any = None) -> None:
    """Do what safetensors does, with its errors, in operations that are seen here."""
    try:
        with io.open(path, "wb", 0) as file:  # noqa: UP020 (the one that is replaced)
            file.write(safetensors.torch.save(tensors, metadata))
    except OSError as error:
        raise SafetensorError(f"I/O error: {error.strerror} (os error {error.errno})") from error


def _counted(disk: FaultyDisk, what: str, plain: Callable[..., Any], *, done: bool = True) -> Callable[..., Any]:
    def call(path: Any, *more: Any) -> Any:
        if disk.covers(path):
            disk.operate(what, path)
            if not done:
                return None
        return plain(path, *more)

    return call


@contextlib.contextmanager
def faulty_disk(root: Path, at: At = None, fault: Fault = "fail", *, swaps: bool = True) -> Iterator[FaultyDisk]:
    """Watch what is done below `root`; the operation `at`, counted from 0, goes wrong.

    `swaps`: whether this disk can swap two directories in one step.
    """
    _watch()
    disk = FaultyDisk(root.resolve(), at, fault)
    swap = _counted(disk, "swap", rehead.disk.exchange) if swaps else lambda one, other: False
    patches = [
        mock.patch.object(io, "open", _opened(disk, io.open)),
        mock.patch.object(builtins, "open", _opened(disk, builtins.open)),
        mock.patch.object(os, "fsync", _counted(disk, "sync", os.fsync, done=False)),
        mock.patch.object(os, "pwrite", _counted(disk, "write", os.pwrite)),
        mock.patch.object(rehead.disk, "exchange", swap),
        mock.patch.object(rehead.runs.run, "save_file", _save_file),
        mock.patch.object(rehead.training.checkpoint, "save_file", _save_file),
    ]
    with contextlib.ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        _active.append(disk)
        try:
            yield disk
        finally:
            _active.remove(disk)
