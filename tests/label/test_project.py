"""A project is begun once, goes on with the same command, and is nobody else's meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rehead.errors import DamagedError, UserError
from rehead.label.opening import open_project
from rehead.label.options import LabelOptions, check_label
from tests.faults import faulty_disk
from tests.label.running import made_up, write_texts


def options(folder: Path, **more: Any) -> LabelOptions:
    if not (folder / "texts.txt").exists():
        write_texts(folder, made_up(20))
    given: dict[str, Any] = {"texts": [str(folder / "texts.txt")], "out": folder / "p", "quiet": True, **more}
    return LabelOptions(**given)


def begin(folder: Path, **more: Any) -> list[str]:
    with open_project(options(folder, **more), lambda line: None) as project:
        return list(project.labels.classes)


def test_classes_can_be_added_by_the_command(tmp_path: Path) -> None:
    assert begin(tmp_path, labels=("a", "b")) == ["a", "b"]
    assert begin(tmp_path, labels=("b", "c")) == ["a", "b", "c"]
    assert begin(tmp_path) == ["a", "b", "c"]


def test_a_renamed_class_does_not_come_back(tmp_path: Path) -> None:
    with open_project(options(tmp_path, labels=("a", "b")), lambda line: None) as project:
        project.rename_class(0, "alpha", "anna")
    assert begin(tmp_path, labels=("a", "b")) == ["alpha", "b"]


@pytest.mark.parametrize(
    ("more", "said"),
    [({"multilabel": True}, "--multilabel False, not True"), ({"seed": 3}, "--seed 0, not 3")],
)
def test_other_options_are_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    begin(tmp_path)
    with pytest.raises(UserError, match=said):
        begin(tmp_path, **more)


def test_other_texts_are_refused(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / "other.txt").write_text("another text\n", encoding="utf-8")
    with pytest.raises(UserError, match="was begun with"):
        begin(tmp_path, texts=[str(tmp_path / "other.txt")])


def test_it_goes_on_without_the_files(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / "texts.txt").rename(tmp_path / "moved.txt")
    given = LabelOptions(texts=[str(tmp_path / "texts.txt")], out=tmp_path / "p", quiet=True)
    with open_project(given, lambda line: None) as project:
        assert len(project.store) == 20


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "mine.txt").write_text("x", encoding="utf-8")
    with pytest.raises(UserError, match="not a labelling project"):
        begin(tmp_path)
    assert [each.name for each in (tmp_path / "p").iterdir()] == ["mine.txt"]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with open_project(options(tmp_path), lambda line: None), pytest.raises(UserError, match="is being written by"):
        begin(tmp_path)


@pytest.mark.parametrize("file", ["project.json", "texts.jsonl"])
def test_damage_is_named(tmp_path: Path, file: str) -> None:
    begin(tmp_path)
    path = tmp_path / "p" / file
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedError, match=file):
        begin(tmp_path)


def test_a_newer_project_is_refused(tmp_path: Path) -> None:
    begin(tmp_path)
    path = tmp_path / "p" / "project.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}), encoding="utf-8")
    with pytest.raises(UserError, match="Upgrade rehead"):
        begin(tmp_path)


@pytest.mark.parametrize("fault", ["fail", "full"])
def test_it_is_begun_or_not_whatever_the_disk_does(tmp_path: Path, fault: str) -> None:
    """Every operation of beginning a project fails in turn; the same command then succeeds."""
    for number in range(60):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        write_texts(folder, made_up(20))
        try:
            with faulty_disk(folder / "p", number, fault) as disk:  # type: ignore[arg-type]
                begin(folder, labels=("a", "b"))
        except UserError:
            pass
        done = len(disk.done)
        assert begin(folder, labels=("a", "b")) == ["a", "b"]
        if done <= number:
            assert number > 5
            return
    raise AssertionError("it always failed")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"confidence": "x"}, "--suggested COLUMN, too"),
        ({"labels": ("a", "a")}, "names 'a' twice"),
        ({"labels": ("a|b",), "multilabel": True}, "separates labels"),
        ({"multilabel": True, "single_label": True}, "contradict"),
        ({"host": "0.0.0.0"}, "needs a token"),
        ({"port": 70000}, "--port=70000"),
        ({"body_bytes": 0}, "--body-bytes=0"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_label(options(tmp_path, **more), None)


def test_the_page_does_not_wait_for_torch() -> None:
    code = """
import sys, rehead.label.app, rehead.label.project, rehead.label.service, rehead.use.serve.server
assert not [name for name in ("torch", "sklearn", "scipy", "tokenizers", "fastapi") if name in sys.modules]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
