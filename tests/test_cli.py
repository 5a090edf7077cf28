"""The command line's manners: one line for a mistake, exit codes, pipes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rehead
from rehead.cli import main
from rehead.errors import ConfigError, DamagedError, UserError


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "rehead", *arguments], capture_output=True, text=True)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"rehead {rehead.__version__}\n"


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "inspect" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "frobnicate"),
        (["inspect", "--preset", "huge"], "huge"),
        (["inspect", "--vocab", "many"], "many"),
        (["inspect", "--frobnicate"], "--frobnicate"),
        (["inspect", "--pre", "lab"], "--pre"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert captured.out == ""


def test_a_users_error_is_one_line_without_a_traceback() -> None:
    done = call("inspect", "no\nsuch\nrun")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("rehead: error: no such run: ")
    assert done.stderr.count("\n") == 1


def test_what_a_terminal_would_obey_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "\x1b[31mred  run"]) == 2
    assert capsys.readouterr().err.startswith("rehead: error: \\x1b[31mred  run: no such run")


@pytest.mark.parametrize("arguments", [["inspect", "x" * 300], ["inspect", "--preset", "lab", "--plots", "x" * 300]])
def test_names_that_no_disk_can_hold(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "File name too long" in said


@pytest.fixture(scope="module", params=[[], ["--json"]], ids=["table", "json"])
def printing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command that prints a page without importing torch."""
    file = tmp_path_factory.mktemp("texts") / "texts.csv"
    file.write_text("text,label\n" + "".join(f"film {n} of many,{n % 2}\n" for n in range(50)), encoding="utf-8")
    return [sys.executable, "-m", "rehead", "data", "check", str(file), *request.param]


def test_a_full_disk_or_a_closed_output_is_no_traceback(printing: list[str]) -> None:
    command = shlex.join(printing)
    full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True)
    assert full.returncode == 2
    assert full.stderr == "rehead: error: No space left on device.\n"
    closed = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True)
    assert closed.returncode == 0
    assert closed.stderr == ""


def test_an_output_that_cannot_show_a_character() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "rehead", "inspect"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0
    assert "ntokens\\xb7nhid" in done.stdout


def test_a_bug_says_so_and_is_not_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("rehead.use.inspect.inspect", broken)
    assert main(["inspect"]) == 70
    error = capsys.readouterr().err
    assert "ZeroDivisionError: oh" in error
    assert "a bug in rehead" in error


@pytest.mark.parametrize("arguments", [["--debug", "inspect", "nothing"], ["inspect", "nothing", "--debug"]])
def test_debug_lets_the_error_through_with_its_traceback(arguments: list[str]) -> None:
    with pytest.raises(DamagedError):
        main(arguments)


def test_a_reader_that_leaves_early_costs_nothing(printing: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(printing, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == 141  # and not 1, which says that a check has found something
    assert done.stderr == ""


def test_interrupting_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rehead.use.inspect.inspect", interrupted)
    assert main(["inspect"]) == 130
    assert capsys.readouterr().err == "rehead: interrupted\n"


# A shell that runs the tests in the background has SIGINT ignored, and children inherit that.
SLOW_WRITER = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
import rehead.use.inspect
from rehead.cli import main
from rehead.disk import atomic_directory

def slowly(options):
    with atomic_directory(Path("out")) as directory:
        (directory / "half").touch()
        print("writing", flush=True)
        time.sleep(60)

rehead.use.inspect.inspect = slowly
sys.exit(main(["inspect"]))
"""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_told_to_end_it_clears_away_what_is_half_written(sent: signal.Signals, code: int, tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", SLOW_WRITER], stdout=subprocess.PIPE, cwd=tmp_path)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"writing\n"
    writer.send_signal(sent)
    assert writer.wait(timeout=30) == code
    writer.stdout.close()
    assert list(tmp_path.iterdir()) == []


def test_errors_stay_one_line() -> None:
    assert str(UserError("a file\ncalled\r\nso: gone")) == "a file called so: gone"
    assert isinstance(ConfigError("x"), ValueError)


def test_the_installed_script_is_the_same_program() -> None:
    script = Path(sys.executable).with_name("rehead")
    if not script.exists():
        pytest.skip("rehead is not installed beside this Python")
    done = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert done.stdout == f"rehead {rehead.__version__}\n"
