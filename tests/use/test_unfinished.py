"""A file that appears whole, and can be gone on with after anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rehead.errors import DamagedError, UserError
from rehead.use.unfinished import Unfinished


def there(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if not each.name.endswith(".rehead-lock"))


def test_it_appears_when_it_is_finished(tmp_path: Path) -> None:
    with Unfinished(tmp_path / "new" / "a.csv", {}) as file:
        file.append(b"one\n", {"rows": 1})
        assert there(tmp_path / "new") == ["a.csv.partial", "a.csv.partial.json"]
        file.append(b"two\n", {"rows": 2})
        file.finish()
    assert there(tmp_path / "new") == ["a.csv"]
    assert (tmp_path / "new" / "a.csv").read_bytes() == b"one\ntwo\n"


def test_what_was_not_saved_is_cut_off(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    with Unfinished(out, {"x": 1}) as file:
        file.append(b"one\n", {"rows": 1})
        file.save()
        file.append(b"tw", {"rows": 2})
    assert (tmp_path / "a.csv.partial").read_bytes() == b"one\ntw"
    with Unfinished(out, {"x": 1}, resume=True) as file:
        assert file.state == {"rows": 1}
        file.append(b"two\n", {"rows": 2})
        file.finish()
    assert out.read_bytes() == b"one\ntwo\n"


def test_where_nothing_was_written_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Unfinished(tmp_path / "a.csv", {}):
        raise RuntimeError
    assert there(tmp_path) == []


def test_killed_before_the_first_piece_it_can_go_on(tmp_path: Path) -> None:
    Unfinished(tmp_path / "a.csv", {}).file.close()
    with Unfinished(tmp_path / "a.csv", {}, resume=True) as file:
        assert file.state is None
        file.append(b"one\n", {})
        file.finish()
    assert there(tmp_path) == ["a.csv"]


def test_what_is_asked_must_be_the_same(tmp_path: Path) -> None:
    with Unfinished(tmp_path / "a.csv", {"run": "abc", "--threshold": None}) as file:
        file.append(b"one\n", {"rows": 1})
    with pytest.raises(UserError, match=r"another --threshold \(None, now 0\.5\)"):
        Unfinished(tmp_path / "a.csv", {"run": "abc", "--threshold": 0.5}, resume=True)
    with pytest.raises(UserError, match=r"another run \('abc', now 'def'\)"):
        Unfinished(tmp_path / "a.csv", {"run": "def", "--threshold": None}, resume=True)


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    out.write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        Unfinished(out, {})
    with Unfinished(out, {}, overwrite=True) as file:
        file.append(b"x", {"rows": 1})
        file.save()
        assert out.read_text() == "mine"
    with pytest.raises(UserError, match="exists already"):
        Unfinished(out, {})
    with Unfinished(out, {}, resume=True) as file:  # that it may be replaced was said in the beginning
        file.finish()
    assert out.read_bytes() == b"x"
    with pytest.raises(UserError, match="exists already and is not a file"):
        Unfinished(tmp_path, {}, overwrite=True)


def test_one_that_was_begun_is_not_begun_again_unasked(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    with Unfinished(out, {}) as file:
        file.append(b"one", {"rows": 1})
    with pytest.raises(UserError, match=r"partial exists.*--resume"):
        Unfinished(out, {})
    with Unfinished(out, {}, overwrite=True) as file:
        file.append(b"x", {"rows": 1})
        file.finish()
    assert out.read_bytes() == b"x"


def test_one_that_is_written_in_one_go_is_begun_anew_unasked(tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    killed = Unfinished(out, None)
    killed.append(b"one")
    killed.file.close()
    killed.close()
    assert (tmp_path / "a.html.partial").read_bytes() == b"one"
    with pytest.raises(UserError, match=r"nothing to resume: .*a.html .*--resume"):
        Unfinished(out, {"run": "abc"}, resume=True)
    with Unfinished(out, None) as file:
        file.append(b"x")
        file.finish()
    assert out.read_bytes() == b"x"
    with Unfinished(out, None, overwrite=True) as file:
        file.append(b"y")
    assert there(tmp_path) == ["a.html"]


def test_nothing_to_resume(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    with pytest.raises(UserError, match=r"nothing to resume: .*partial.json is missing. Drop --resume"):
        Unfinished(out, {}, resume=True)
    with Unfinished(out, {}) as file:
        file.append(b"x", {"rows": 1})
        checkpoint = file.checkpoint.read_bytes()
        file.finish()
    with pytest.raises(UserError, match=r"nothing to resume: .*a.csv is finished"):
        Unfinished(out, {}, resume=True)
    (tmp_path / "a.csv.partial.json").write_bytes(checkpoint)  # killed between its last two steps
    with pytest.raises(UserError, match=r"nothing to resume: .*a.csv is finished"):
        Unfinished(out, {}, resume=True)


def test_damage_is_seen(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    with Unfinished(out, {}) as file:
        file.append(b"one", {"rows": 1})
        file.save()
    (tmp_path / "a.csv.partial").write_bytes(b"o")
    with pytest.raises(DamagedError, match=r"a\.csv\.partial: truncated"):
        Unfinished(out, {}, resume=True)
    (tmp_path / "a.csv.partial.json").write_text("{}")
    with pytest.raises(DamagedError, match="SHA-256"):
        Unfinished(out, {}, resume=True)


def test_a_stranger_s_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv.partial").write_text("mine")
    with pytest.raises(UserError, match=r"a\.csv\.partial exists"):
        Unfinished(tmp_path / "a.csv", {}, overwrite=True)
    assert (tmp_path / "a.csv.partial").read_text() == "mine"


def test_two_cannot_write_one_file(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with Unfinished(tmp_path / "a.csv", {}) as file:
        file.append(b"one", {"rows": 1})
        with pytest.raises(UserError, match=rf"being written by process {os.getpid()} on "):
            Unfinished(tmp_path / "a.csv", {}, overwrite=True)
        file.finish()
    assert (tmp_path / "a.csv").read_bytes() == b"one"
    assert [each.name for each in tmp_path.iterdir()] == ["a.csv"]
