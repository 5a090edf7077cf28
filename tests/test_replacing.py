"""Replacing a directory: the old one is in its place until the new one is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehead.disk import OLD, beside
from rehead.errors import UserError
from rehead.replacing import MARK, NEW, begin, begin_steps, discard, publish, put_back, working_directory, writing

OURS = ("file", MARK)


def named(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.fixture(params=["swap", "two renames"])
def out(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with something old in it, on a disk that can swap directories, or cannot."""
    if request.param != "swap":
        monkeypatch.setattr("rehead.disk.exchange", lambda one, other: False)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("old")
    return tmp_path / "out"


def test_the_old_one_stays_until_the_new_one_is_published(out: Path) -> None:
    with writing(out):
        work = begin(out, OURS)
        assert work == working_directory(out) == beside(out, NEW)
        (work / "file").write_text("new")
        assert (out / "file").read_text() == "old"
        publish(out, OURS)
    assert working_directory(out) == out
    assert (out / "file").read_text() == "new"
    assert named(out) == ["file"]
    assert named(out.parent) == ["out"]


def test_where_there_is_nothing_to_replace_it_is_made_in_place(tmp_path: Path) -> None:
    for name in ("none", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert begin(tmp_path / name, None) == tmp_path / name == working_directory(tmp_path / name)
        publish(tmp_path / name, OURS)
    assert named(tmp_path) == ["empty", "none"]


def test_an_empty_directory_may_be_a_link_or_a_mount_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path / "empty")
    with writing(tmp_path / "link"):
        assert named(tmp_path / "empty") == [".rehead-lock"]
        assert begin(tmp_path / "link", None) == tmp_path / "link"
    assert named(tmp_path / "empty") == []


def test_a_link_is_followed(out: Path) -> None:
    """What replaces a directory is made beside it, on its own file system, and not beside the link."""
    link = out.parent / "elsewhere" / "link"
    link.parent.mkdir()
    link.symlink_to(out)
    with writing(link):
        new = begin(link, OURS)
        assert new.parent == out.parent
        (new / "file").write_text("new")
        publish(link, OURS)
    assert link.is_symlink()
    assert (out / "file").read_text() == "new"


def test_what_is_unfinished_can_be_given_up(out: Path) -> None:
    begin(out, OURS)
    discard(out)
    assert working_directory(out) == out
    assert named(out.parent) == ["out"]
    first = begin(out, OURS)
    (first / "half").touch()
    assert named(begin(out, OURS)) == [MARK]  # the one before is given up


def test_what_is_put_there_meanwhile_is_not_lost(out: Path) -> None:
    begin(out, OURS)
    (out / "thesis.txt").write_text("years")
    with pytest.raises(UserError, match="thesis"):
        publish(out, OURS)
    assert named(out) == ["file", "thesis.txt"]


def test_a_mount_point_cannot_be_replaced(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda path: path == out)
    with pytest.raises(UserError, match="mount point"):
        begin(out, OURS)
    assert (out / "file").read_text() == "old"


def test_killed_between_two_renames_it_is_put_back(out: Path) -> None:
    begin(out, OURS)
    out.rename(beside(out, OLD))
    put_back(out)
    assert (out / "file").read_text() == "old"
    assert working_directory(out) != out  # the new one can be resumed
    assert named(out.parent) == [beside(out, NEW).name, "out"]


def test_nothing_is_put_back_while_a_writer_lives(out: Path) -> None:
    with writing(out):
        out.rename(beside(out, OLD))
        put_back(out)
        assert not out.exists()


def test_what_was_replaced_is_cleared_away_by_the_next_writer(out: Path) -> None:
    """Killed after the swap: the directory beside it is the old one, whatever it holds."""
    begin(out, OURS)
    (beside(out, NEW) / MARK).rename(out / MARK)
    (beside(out, NEW) / "finetune.json").touch()
    beside(out, OLD).mkdir()
    others = [".out.2.abcdefgh.partial", ".out.abcdefghi.partial", ".other.abcdefgh.partial"]
    for name in (".out.abcd_fg1.partial", *others):
        (out.parent / name).mkdir()
    with writing(out):
        assert named(out) == ["file"]
    assert named(out.parent) == sorted(["out", *others])


@pytest.mark.parametrize("renames", [True, False])
def test_of_several_outputs_nothing_is_left(renames: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of themselves, nor of the commands that were killed while they wrote them."""
    out, link = tmp_path / "out", tmp_path / "link"
    for name in ("run/old", "data/old", ".run.rehead-new/old", ".run.abcd_123.partial/old"):
        (out / name).mkdir(parents=True)
    for name in (".run.rehead-lock", ".facts.json.partial", "facts.json"):
        (out / name).touch()
    link.symlink_to("out")
    if not renames:  # as of a mount point

        def refused(path: Path, target: Path) -> None:
            raise OSError(16, "Device or resource busy")

        monkeypatch.setattr(Path, "rename", refused)
    ours = ("run", "data", "facts.json")
    with pytest.raises(UserError, match="exists already"):
        begin_steps(link, None)
    with pytest.raises(UserError, match="which would be lost"):
        begin_steps(link, ours[:2])
    assert (out / "run/old").exists()
    begin_steps(link, ours)
    assert named(tmp_path) == ["link", "out"]
    assert link.is_symlink()
    assert named(out) == []
    begin_steps(tmp_path / "new", None)
    assert named(tmp_path / "new") == []
