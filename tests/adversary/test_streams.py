"""Streams as a careless or hostile surrounding gives them: closed, of another encoding, or a terminal."""

from __future__ import annotations

import copy
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rehead.runs.run import save
from rehead.use.export.folder import export_run
from tests.use.text_classifiers import text_classifier

ORDER = "\x1b]0;owned\x07\x1b[2J"  # sets the title of the window, and clears the screen
LABELS = ["schön", f"{ORDER}fair", "good"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = copy.deepcopy(text_classifier("all"))
    made.labels = LABELS
    return save(made, tmp_path_factory.mktemp("streams") / "run")


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams") / "labelled.csv"
    path.write_text(f"text,label\ngood film,schön\na {ORDER}dull film,{LABELS[1]}\n", encoding="utf-8")
    return path


def rehead(*arguments: object, text: bytes | None = b"good film\n", **environment: str) -> tuple[int, bytes, str]:
    """Run a command with a text as its standard input; None: with a closed one."""
    command = [sys.executable, "-m", "rehead", *map(str, arguments)]
    if text is None:
        command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    done = subprocess.run(command, input=text, capture_output=True, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("arguments", [("predict", "-"), ("evaluate", "-", "--input-format", "csv")])
def test_a_closed_standard_input_is_one_line(arguments: tuple[str, ...], run: Path) -> None:
    code, _, error = rehead(arguments[0], run, *arguments[1:], text=None)
    assert code == 2, error
    assert "standard input is closed" in error
    assert error.count("\n") == 1


C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("arguments", [("predict", "-"), ("predict", "-", "--explain"), ("evaluate",)])
def test_labels_of_any_script_in_the_c_locale(arguments: tuple[str, ...], run: Path, labelled: Path) -> None:
    more = [labelled] if arguments[0] == "evaluate" else []
    code, _, error = rehead(arguments[0], run, *more, *arguments[1:], **C_LOCALE)
    assert code == 0, error


@pytest.mark.parametrize(("text", "environment"), [(b"sch\xf6ner Film\n", {}), (b"\xff", C_LOCALE), (None, {})])
def test_an_exported_program_says_what_it_cannot_read(
    text: bytes | None, environment: dict[str, str], run: Path, tmp_path: Path
) -> None:
    from rehead.runs.run import load

    export_run(load(run), tmp_path / "exported")
    command = [sys.executable, str(tmp_path / "exported" / "predict.py")]
    if text is None:
        command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    done = subprocess.run(command, input=text, capture_output=True, env={**os.environ, **environment})
    assert done.returncode == 1
    assert done.stderr.decode().startswith("Standard input is not UTF-8 text.")
    assert done.stderr.count(b"\n") == 1


def on_a_terminal(command: Sequence[str], text: bytes) -> bytes:
    """Run a command whose output and error are a terminal; give all that arrives there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.close()
    seen = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        seen += block
    process.wait()
    os.close(ours)
    return seen


@pytest.mark.parametrize("arguments", [("predict", "-"), ("predict", "-", "--explain"), ("evaluate",)])
def test_a_label_or_text_gives_a_terminal_no_orders(arguments: tuple[str, ...], run: Path, labelled: Path) -> None:
    more = [str(labelled)] if arguments[0] == "evaluate" else []
    command = [sys.executable, "-m", "rehead", arguments[0], str(run), *more, *arguments[1:]]
    seen = on_a_terminal(command, f"a {ORDER}film\n".encode())
    assert b"Traceback" not in seen, seen
    assert b"\x1b]0;owned" not in seen
    assert b"\x1b[2J" not in seen
    assert b"\x07" not in seen


def test_a_pipe_gets_what_is_there(run: Path) -> None:
    code, out, _ = rehead("predict", run, "-")
    assert code == 0
    assert f"p_{LABELS[1]}".encode() in out
