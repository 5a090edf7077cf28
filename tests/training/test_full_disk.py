"""A disk that fills up: one line, exit code 2, and the last good checkpoint can be resumed once there is room."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rehead.cli import main
from rehead.training import checkpoint
from tests.faults import faulty_disk, on
from tests.training.running import end_of, fork, fork_command, left, needs_fork, straight, words

pytestmark = [pytest.mark.usefixtures("quick"), needs_fork]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB in memory, where one may mount."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = getattr(ctypes.CDLL(None, use_errno=True), "mount", None)
    if mount is None or mount(b"tmpfs", bytes(place), b"tmpfs", 0, b"size=2m") != 0:
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    ctypes.CDLL(None).umount2(bytes(place), 2)


def test_a_full_disk(small_disk: Path, text: Path, tmp_path: Path) -> None:
    """Something else grows on the disk until a checkpoint finds no room."""
    expected = straight(text, tmp_path / "straight")
    out, log = small_disk / "run", tmp_path / "log"
    arguments = [*words(text, out), "--checkpoint-steps", "1"]
    growing = small_disk / "growing"

    def crowded() -> int:
        plain = checkpoint.save

        def save(saved: checkpoint.Checkpoint, folder: Path) -> Path:
            if saved.state["step"] == 6:
                room = os.statvfs(small_disk)
                growing.write_bytes(bytes(room.f_bavail * room.f_bsize - 20_000))
            return plain(saved, folder)

        checkpoint.save = save
        return main(arguments)

    assert end_of(fork(crowded, log)) == 2, log.read_text()
    (line,) = log.read_text().splitlines()
    assert line.startswith("rehead: error: ")
    assert "step-000006 cannot be written: No space left on device" in line
    assert "--resume" in line
    found = checkpoint.newest(out / "checkpoints", pytest.fail)
    assert found is not None
    assert found.state["step"] == 5
    assert not list((out / "checkpoints").glob(".*"))  # half a checkpoint would take the room that is left
    assert end_of(fork_command([*arguments, "--resume"], log)) == 2, "there is still no room"
    growing.unlink()
    assert end_of(fork_command([*arguments, "--resume"], log)) == 0, log.read_text()
    assert left(out) == expected


def test_a_limit_on_the_size_of_files(text: Path, tmp_path: Path) -> None:
    """What a quota does: the write fails, not the process."""
    out, log = tmp_path / "run", tmp_path / "log"
    arguments = [*words(text, out), "--checkpoint-steps", "2"]

    def limited() -> int:
        plain = checkpoint.save

        def save(saved: checkpoint.Checkpoint, folder: Path) -> Path:
            if saved.state["step"] == 8:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            return plain(saved, folder)

        checkpoint.save = save
        return main(arguments)

    assert end_of(fork(limited, log)) == 2, log.read_text()
    assert "cannot be written: File too large" in log.read_text()
    assert "Traceback" not in log.read_text()
    found = checkpoint.newest(out / "checkpoints", pytest.fail)
    assert found is not None
    assert found.state["step"] == 6
    assert end_of(fork_command([*arguments, "--resume"], log)) == 0, log.read_text()
    assert left(out) == straight(text, tmp_path / "straight")


def test_a_disk_that_is_full_before_the_first_step(small_disk: Path, text: Path, tmp_path: Path) -> None:
    """Nothing is left behind that would keep the same command from beginning."""
    out, log = small_disk / "run", tmp_path / "log"
    room = os.statvfs(small_disk)
    (small_disk / "growing").write_bytes(bytes(room.f_bavail * room.f_bsize - 16_384))
    assert end_of(fork_command(words(text, out), log)) == 2
    assert "No space left on device" in log.read_text()
    assert "Traceback" not in log.read_text()
    (small_disk / "growing").unlink()
    assert end_of(fork_command(words(text, out), log)) == 0, log.read_text()


def test_a_directory_that_goes_away(text: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log"

    def robbed() -> int:
        plain = checkpoint.save

        def save(saved: checkpoint.Checkpoint, folder: Path) -> Path:
            shutil.rmtree(out)
            out.write_text("a file")
            return plain(saved, folder)

        checkpoint.save = save
        return main([*words(text, out), "--checkpoint-steps", "2", "--validations", "0"])

    assert end_of(fork(robbed, log)) == 2, log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    "full", [on("metrics.jsonl", "write"), on("config.json", "write")], ids=["metrics.jsonl", "config.json"]
)
def test_no_room_for_a_line_or_for_the_run(
    full: Callable[[str, str], bool], text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user is told what is kept, and how to go on."""
    out = tmp_path / "run"
    with faulty_disk(tmp_path, full, "full"):
        assert main(words(text, out)) == 2
    said = capsys.readouterr().err
    assert "cannot be written: No space left on device. " in said
    assert "--resume" in said
    assert main([*words(text, out), "--resume"]) == 0
    assert left(out) == straight(text, tmp_path / "straight")
