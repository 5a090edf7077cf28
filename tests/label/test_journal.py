"""What is acknowledged is on disk, whatever happens; what is not leaves no trace."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from rehead.errors import DamagedError
from rehead.label.journal import Journal, JournalError
from tests.faults import faulty_disk, on


def events(path: Path) -> list[int]:
    journal = Journal.open(path)
    journal.close()
    return [event["text"] for event in journal.events]


def test_events_come_back_with_number_and_time(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j")
    assert [journal.append({"kind": "skip", "text": each})["seq"] for each in (5, 6)] == [1, 2]
    journal.close()
    again = Journal.open(tmp_path / "j")
    assert again.events == journal.events
    assert again.append({"kind": "skip", "text": 7})["seq"] == 3
    lines = [json.loads(line) for line in (tmp_path / "j").read_bytes().splitlines()]
    assert [line["text"] for line in lines] == [5, 6, 7], "every line is JSON for other programs, too"


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_an_unfinished_line_is_cut_off(tmp_path: Path, cut: int) -> None:
    journal = Journal.open(tmp_path / "j")
    for each in range(3):
        journal.append({"kind": "skip", "text": each, "note": "ünïcode " * 3})
    journal.close()
    data = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(data[:-cut])
    assert events(tmp_path / "j") == [0, 1]
    assert len((tmp_path / "j").read_bytes().splitlines()) == 2


def test_damage_in_the_middle_is_reported(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j")
    for each in range(4):
        journal.append({"kind": "skip", "text": each})
    journal.close()
    data = bytearray((tmp_path / "j").read_bytes())
    data[data.index(b'"text":1') + 7] = ord("9")
    (tmp_path / "j").write_bytes(bytes(data))
    with pytest.raises(DamagedError, match="line 2"):
        Journal.open(tmp_path / "j")


@pytest.mark.parametrize("fault", ["full", "fail", "short"])
@pytest.mark.parametrize("kind", ["write", "sync"])
def test_what_cannot_be_written_does_not_count(tmp_path: Path, fault: str, kind: str) -> None:
    journal = Journal.open(tmp_path / "j")
    journal.append({"kind": "skip", "text": 0})
    if (kind, fault) == ("sync", "full"):
        pytest.skip("a full disk is met when writing")
    with faulty_disk(tmp_path, on("j", kind), fault), pytest.raises(JournalError, match="not saved"):  # type: ignore[arg-type]
        journal.append({"kind": "skip", "text": 1})
    assert [event["text"] for event in journal.events] == [0]
    journal.append({"kind": "skip", "text": 2})
    journal.close()
    assert events(tmp_path / "j") == [0, 2]


def test_a_line_is_synced_before_it_is_acknowledged(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j")
    with faulty_disk(tmp_path) as disk:
        journal.append({"kind": "skip", "text": 0})
    assert [what for what, _ in disk.done if what in ("write", "sync")] == ["write", "sync"]


def test_a_process_killed_at_any_operation_loses_only_what_was_not_acknowledged(tmp_path: Path) -> None:
    """Every operation on the disk in turn is the last one of a process that writes ten events."""
    for number in range(40):
        path, told = tmp_path / f"{number}" / "j", tmp_path / f"{number}.told"
        path.parent.mkdir()
        child = os.fork()
        if not child:
            with faulty_disk(path.parent, number, "kill"), told.open("ab", buffering=0) as out:
                journal = Journal.open(path)
                for each in range(10):
                    journal.append({"kind": "skip", "text": each})
                    out.write(b"%d\n" % each)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        acknowledged = len(told.read_bytes().splitlines()) if told.exists() else 0
        found = events(path)
        assert found == list(range(len(found)))
        assert acknowledged <= len(found) <= acknowledged + 1
        if not os.WIFSIGNALED(status):
            assert number > 15, "some operations were killed"
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError("it never ended by itself")
