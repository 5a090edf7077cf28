"""`rehead predict` that is interrupted: it goes on to the same bytes, or says why it cannot."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rehead.cli import main
from rehead.runs.run import save
from rehead.use import predict as predicting
from rehead.use import unfinished
from tests.use.test_predict import table, write
from tests.use.tiny_classifier import some_texts, tiny_classifier


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tiny_classifier(), tmp_path_factory.mktemp("run") / "clf"))


def predict_slowly(command: list[str], said: Path) -> None:
    """In a process: read slowly enough to be stopped anywhere, and have all that is written count at once."""
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stderr.fileno())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell in the background has ignored
    unfinished.CHECKPOINT_SECONDS = 0
    predicting.GROUP_TEXTS = 5
    make_predictions = predicting.make_predictions

    def slowly(*given: Any) -> Any:
        time.sleep(0.02)
        return make_predictions(*given)

    predicting.make_predictions = slowly
    sys.argv = ["rehead", *command]  # which the advice to resume repeats
    sys.exit(main())


@pytest.fixture(scope="module")
def processes() -> Any:
    """Start processes by forking one that has torch imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "rehead.runs.scoring"])
    return context


@pytest.mark.parametrize(
    ("sign", "out", "times"),
    [
        (signal.SIGKILL, "out.csv", 2),
        (signal.SIGKILL, "out.jsonl.gz", 1),
        (signal.SIGTERM, "out.csv", 1),
        (signal.SIGINT, "out.csv", 1),
    ],
)
def test_stopped_anywhere_it_goes_on_to_the_same_bytes(
    run: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sign: signal.Signals,
    out: str,
    times: int,
    processes: Any,
) -> None:
    monkeypatch.setattr(predicting, "GROUP_TEXTS", 5)
    given = write(tmp_path / "in.csv", some_texts(250))
    command = ["predict", run, given, "--threshold", "0.5", "--quiet", "--out"]
    assert main([*command, str(tmp_path / f"whole-{out}")]) == 0
    partial = tmp_path / f"{out}.partial"
    for attempt in range(times):
        more = ["--resume"] if attempt else []
        before = partial.stat().st_size if attempt else 0
        messages = tmp_path / "messages.txt"
        process = processes.Process(target=predict_slowly, args=([*command, str(tmp_path / out), *more], messages))
        process.start()
        while process.is_alive() and (not partial.exists() or partial.stat().st_size <= before):
            time.sleep(0.005)
        time.sleep(0.1)
        os.kill(process.pid, sign)
        process.join()
        said = messages.read_text(encoding="utf-8")
        messages.unlink()
        assert process.exitcode == (-sign if sign == signal.SIGKILL else 128 + sign), said
        assert not (tmp_path / out).exists()
        assert (sign == signal.SIGKILL) != ("Resume with: rehead predict" in said and "--resume" in said)
    assert 0 < partial.stat().st_size < (tmp_path / f"whole-{out}").stat().st_size
    assert main([*command, str(tmp_path / out), "--resume"]) == 0
    assert (tmp_path / out).read_bytes() == (tmp_path / f"whole-{out}").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["in.csv", out, f"whole-{out}"])


@pytest.fixture
def interrupted(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Begin, and stop in the middle; give the command."""
    monkeypatch.setattr(predicting, "GROUP_TEXTS", 5)
    monkeypatch.chdir(tmp_path)

    def begin() -> list[str]:
        write(Path("in.csv"), some_texts(30))
        command = ["predict", run, "in.csv", "--out", "out.csv", "--quiet"]
        make_predictions, calls = predicting.make_predictions, []

        def stopping(*given: object) -> object:
            calls.append(1)
            if len(calls) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return make_predictions(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(predicting, "make_predictions", stopping)
        assert main(command) == 130
        monkeypatch.setattr(predicting, "make_predictions", make_predictions)
        return command

    return begin


def test_going_on_needs_the_same_rows(interrupted: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    command = interrupted()
    texts = some_texts(30)
    for wrong in (["another", *texts[1:]], texts[:10], texts[:15]):
        write(Path("in.csv"), wrong)
        code = main([*command, "--resume"])
        assert code == (0 if wrong == texts[:15] else 2)
        assert code == 0 or "in.csv: its first 15 rows differ" in capsys.readouterr().err


def test_what_was_not_yet_read_may_be_repaired(interrupted: Callable[[], list[str]]) -> None:
    command = interrupted()
    write(Path("in.csv"), [*some_texts(30)[:20], "other", *some_texts(30)[21:], "more"])
    assert main([*command, "--resume"]) == 0
    gone_on = Path("out.csv").read_bytes()
    assert main([*command, "--overwrite"]) == 0
    assert Path("out.csv").read_bytes() == gone_on
    assert len(table(Path("out.csv"))) == 31


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--threshold", "0.9"], "another --threshold (None, now 0.9)"),
        (["--format", "jsonl"], "another format ('csv', now 'jsonl')"),
        (["--text-column", "text"], "another --text-column"),
        (["--skip-empty"], "another --skip-empty (False, now True)"),
        (["--spreadsheet"], "another --spreadsheet (False, now True)"),
    ],
)
def test_going_on_needs_the_same_options(
    more: list[str], message: str, interrupted: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    command = interrupted()
    assert main([*command, "--resume", *more]) == 2
    assert message in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0


def test_going_on_needs_the_same_run(
    interrupted: Callable[[], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = interrupted()
    command[1] = str(save(tiny_classifier(seed=2), tmp_path / "other"))
    assert main([*command, "--resume"]) == 2
    assert "another run" in capsys.readouterr().err


def test_counts_go_on_too(interrupted: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    command = interrupted()
    capsys.readouterr()
    assert main([*command, "--resume"]) == 0
    gone_on = capsys.readouterr().out
    assert main([*command, "--overwrite"]) == 0
    assert capsys.readouterr().out == gone_on
