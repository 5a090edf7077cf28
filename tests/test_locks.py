"""One writer per directory: the second is told who has it, and a dead owner holds nothing."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rehead.errors import UserError
from rehead.locks import SUFFIX, locked
from rehead.runs.run import load

fcntl = pytest.importorskip("fcntl")

HOLDER = """
import sys
from pathlib import Path
from rehead.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Hold the lock in another process."""
    words = [sys.executable, "-c", HOLDER, str(path)]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    try:
        yield holder
    finally:
        holder.communicate()


def take(path: Path) -> None:
    with locked(path):
        pass


def test_the_second_is_told_who_has_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with held_elsewhere(run) as holder:
        with pytest.raises(UserError) as refused:
            take(run)
        said = str(refused.value)
        assert said.startswith(f"{run} is being written by process {holder.pid} on {socket.gethostname()} since ")
        assert str(run) in said.partition("since")[2], "the command of the owner"
        take(tmp_path / "other")
    take(run)
    assert list(tmp_path.iterdir()) == []


def test_a_dead_owner_holds_nothing(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path / "run") as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert [each.name for each in tmp_path.iterdir()] == [f".run{SUFFIX}"]
    take(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_two_names_of_one_directory_have_one_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    monkeypatch.chdir(tmp_path)
    for other in (Path("link"), Path("run"), tmp_path / "run" / ".." / "link"):
        with locked(tmp_path / "run"), pytest.raises(UserError, match="is being written by"):
            take(other)


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    for name, to in {"a": "b", "b": "a", "c": "c"}.items():
        (tmp_path / name).symlink_to(to)
    for name in "abc":
        with pytest.raises(UserError), locked(tmp_path / name):
            pass
        with pytest.raises(UserError):
            load(tmp_path / name)


def test_a_lock_that_is_taken_while_it_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was opened is deleted before it is locked: it would protect nobody."""
    plain, opened = os.open, []

    def overtaken(path: Path, *more: int) -> int:
        handle = plain(path, *more)
        if not opened:
            path.unlink()
        opened.append(handle)
        return handle

    monkeypatch.setattr(os, "open", overtaken)
    with locked(tmp_path / "run"):
        assert len(opened) == 2
        assert json.loads((tmp_path / f".run{SUFFIX}").read_text())["pid"] == os.getpid()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has none."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize(
    ("host", "pid", "taken"),
    [
        (socket.gethostname(), os.getpid(), False),
        (socket.gethostname(), 2**22 + 1, True),  # above every process number
        (socket.gethostname(), "x", True),
        ("elsewhere", 2**22 + 1, False),
    ],
    ids=["alive", "dead", "damaged", "on another host"],
)
def test_without_locks_it_goes_by_what_the_file_says(host: str, pid: object, taken: bool, tmp_path: Path) -> None:
    file = tmp_path / f".run{SUFFIX}"
    file.write_text(json.dumps({"host": host, "pid": pid, "command": "rehead pretrain", "since": "today"}))
    if taken:
        take(tmp_path / "run")
        assert not file.exists()
        return
    with pytest.raises(UserError, match=rf"by process {pid} on {host} since today \(rehead pretrain\).*delete .*lock"):
        take(tmp_path / "run")
    assert file.exists()


@pytest.mark.usefixtures("no_locks")
def test_without_locks_two_of_one_host_are_kept_apart(tmp_path: Path) -> None:
    with locked(tmp_path / "run"), pytest.raises(UserError, match="is being written by"):
        take(tmp_path / "run")
    take(tmp_path / "run")


def test_a_mount_point_is_locked_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beside it may be another file system, of this container alone."""
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path)
    with locked(tmp_path):
        assert [each.name for each in tmp_path.iterdir()] == [SUFFIX]


def test_a_directory_in_one_that_cannot_be_written_is_locked_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with locked(tmp_path / "run"):
        assert [str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")] == ["run", f"run/{SUFFIX}"]


def test_a_place_that_cannot_be_locked_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(UserError, match="cannot be written"):
            take(place)
