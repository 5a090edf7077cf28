"""Directories that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rehead.disk import (
    atomic_directory,
    file_inside,
    read_checksummed_json,
    read_json,
    write_checksummed_json,
    write_json,
)
from rehead.errors import DamagedError, UserError


def test_it_appears_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "target"
    with atomic_directory(target) as directory:
        (directory / "file").write_text("content")
        assert not target.exists()
    assert (target / "file").read_text() == "content"
    assert [each.name for each in target.parent.iterdir()] == ["target"]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with atomic_directory(target) as directory:
        (directory / "file").write_text("old")
    with contextlib.suppress(RuntimeError), atomic_directory(target, replace=["file"]) as directory:
        (directory / "file").write_text("new")
        raise RuntimeError("midway")
    assert (target / "file").read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, OSError])
def test_stopped_between_the_renames_the_old_one_comes_back(
    stop: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    with atomic_directory(target) as directory:
        (directory / "file").write_text("old")
    rename = Path.rename

    def stopped(path: Path, to: Path) -> Path:
        if path.name.endswith(".partial"):
            raise stop
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", stopped)
    monkeypatch.setattr("rehead.disk.exchange", lambda one, other: False)

    def replace() -> None:
        with atomic_directory(target, replace=["file"]) as directory:
            (directory / "file").write_text("new")

    with pytest.raises(UserError if stop is OSError else stop):
        replace()
    assert (target / "file").read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["target"]


def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with atomic_directory(tmp_path / "target") as directory:
            (directory / "file").touch(0o600)
            (directory / "inner").mkdir(0o700)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "target" / "file").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "target" / "inner").stat().st_mode) == 0o755


def test_an_empty_directory_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    with atomic_directory(tmp_path / "target") as directory:
        (directory / "file").touch()
    assert (tmp_path / "target" / "file").exists()


def test_a_link_to_an_empty_directory_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "target").symlink_to("real")
    with atomic_directory(tmp_path / "target") as directory:
        (directory / "file").touch()
    assert (tmp_path / "target").is_symlink()
    assert [each.name for each in (tmp_path / "real").iterdir()] == ["file"]
    with (
        pytest.raises(UserError, match=r"target exists already. .*\(--overwrite\)"),
        atomic_directory(tmp_path / "target"),
    ):
        pass


@pytest.mark.parametrize("kind", ["file", "directory", "dangling link"])
def test_what_exists_is_refused(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    if kind == "file":
        target.write_text("mine")
    elif kind == "directory":
        target.mkdir()
        (target / "mine").touch()
    else:
        target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="exists already"), atomic_directory(target):
        pass
    assert kind != "file" or target.read_text() == "mine"


def test_a_file_is_not_replaced_by_a_directory_even_when_told(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    with pytest.raises(UserError, match="not a directory"), atomic_directory(tmp_path / "target", replace=["target"]):
        pass
    assert (tmp_path / "target").read_text() == "mine"


def test_what_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "ours").touch()
    (tmp_path / "target" / "thesis.txt").write_text("years")
    with (
        pytest.raises(UserError, match=r"'thesis\.txt', which would be lost"),
        atomic_directory(tmp_path / "target", replace=["ours"]),
    ):
        pass
    assert (tmp_path / "target" / "thesis.txt").read_text() == "years"


def test_what_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"

    def overtaken() -> None:
        with atomic_directory(target):
            target.mkdir()
            (target / "mine").write_text("faster")

    with pytest.raises(UserError, match="exists already"):
        overtaken()
    assert (target / "mine").read_text() == "faster"
    assert [each.name for each in tmp_path.iterdir()] == ["target"]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "target", tmp_path / ("x" * 300)):
        with pytest.raises(UserError, match="cannot be written"), atomic_directory(place):
            pass


def test_the_files_are_flushed_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    rename = Path.rename
    monkeypatch.setattr("rehead.disk.fsync", lambda path: happened.append(path.name))
    monkeypatch.setattr(Path, "rename", lambda path, to: (happened.append("rename"), rename(path, to))[1])
    with atomic_directory(tmp_path / "target") as directory:
        (directory / "file").touch()
        made = directory.name
    assert happened == ["file", made, "rename", tmp_path.name]


WRITER = """
import sys
from pathlib import Path
from rehead.disk import atomic_directory
for number in range(10**6):
    with atomic_directory(Path(sys.argv[1]), replace="abc") as directory:
        for name in "abc":
            (directory / name).write_text(str(number) * 1000)
    if number == 0:
        print("ready", flush=True)
"""


def test_killed_at_any_moment_the_directory_is_whole(tmp_path: Path) -> None:
    """A writer that overwrites without pause, killed ten times: three equal files."""
    target = tmp_path / "target"
    for attempt in range(10):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.003 * attempt)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        contents = [(target / name).read_text() for name in "abc"]
        assert len(set(contents)) == 1
        assert len(contents[0]) >= 1000


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "..", ".", "", "a\0b", "C:x", "a\\b", 3, None])
def test_only_plain_names(name: object, tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="plain file name"):
        file_inside(tmp_path, name)


def test_a_link_inside_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert file_inside(tmp_path, "link").read_text() == "x"


def test_a_signed_object_is_what_was_signed(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_checksummed_json(path, {"é": [1, 2.5], "b": None})
    assert read_checksummed_json(path) == {"é": [1, 2.5], "b": None}
    path.write_text(path.read_text().replace("2.5", "2.6"))
    with pytest.raises(DamagedError, match="SHA-256"):
        read_checksummed_json(path)


def test_a_name_twice_is_found_at_once(tmp_path: Path) -> None:
    names = ", ".join(f'"{n}": 0' for n in range(100_000))
    (tmp_path / "x.json").write_text("{" + names + ', "7": 1}')
    with pytest.raises(DamagedError, match="'7'"):
        read_json(tmp_path / "x.json")


def test_json_comes_back(tmp_path: Path) -> None:
    value = {"é": [1, 2.5, None, True], "b": {"c": "d"}}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "y.json", float("nan"))
