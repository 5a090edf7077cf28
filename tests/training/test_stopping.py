"""SIGTERM, Ctrl-C, a loss that runs away: what there is is saved, and the command that is printed goes on with it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rehead.pretrain.run
from rehead.cli import main
from rehead.errors import UserError
from rehead.pretrain.causal import Causal
from rehead.pretrain.run import run_pretraining
from rehead.training import checkpoint, loop
from rehead.training.objective import Sums
from tests.training.running import end_of, environment, fork, left, needs_fork, small, straight, words

pytestmark = pytest.mark.usefixtures("quick")
GIVEN: dict[str, Any] = {"epochs": 1, "accumulate": 2}


def stopped_at(step: int, signum: int, arguments: list[str]) -> int:
    """Run the command, and send it a signal in the middle of a step, as an impatient user would: amid its parts."""
    plain = loop._Training._here

    def here(training: loop._Training, batch: Any) -> Any:
        if training.state.step == step:
            os.kill(os.getpid(), signum)
            training.state.step += 0
            loop._Training._here = plain
        return plain(training, batch)

    loop._Training._here = here
    sys.argv = ["rehead", *arguments]
    return main(arguments)


@needs_fork
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("step", [0, 7])
def test_a_run_that_is_told_to_stop_can_go_on(signum: int, code: int, step: int, text: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "it's a run", tmp_path / "log"
    arguments = [*words(text, out, **GIVEN), "--overwrite"]
    assert end_of(fork(lambda: stopped_at(step, signum, arguments), log)) == code, log.read_text()
    (line,) = [line for line in log.read_text().splitlines() if "Resume with" in line]
    found = checkpoint.newest(out / "checkpoints", pytest.fail)
    assert found is not None
    assert found.state["step"] == step + (step > 0)  # the step is done; the first batch belongs to validation
    again = shlex.split(line.partition("Resume with: ")[2])
    assert again == ["rehead", *arguments[:-1], "--resume"]
    assert end_of(fork(lambda: main(again[1:]), log)) == 0, log.read_text()
    assert left(out) == straight(text, tmp_path / "straight", **GIVEN)


@needs_fork
def test_a_run_that_was_started_by_nohup_goes_on(text: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log"

    def ignoring() -> int:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return stopped_at(7, signal.SIGHUP, words(text, out, **GIVEN))

    assert end_of(fork(ignoring, log)) == 0, log.read_text()
    assert left(out) == straight(text, tmp_path / "straight", **GIVEN)


@needs_fork
def test_a_run_that_replaces_another_says_that_it_is_still_there(text: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    expected = straight(text, out, **GIVEN)
    arguments = [*words(text, out, **GIVEN, seed=1), "--overwrite"]
    assert end_of(fork(lambda: stopped_at(7, signal.SIGTERM, arguments), log)) == 143, log.read_text()
    assert f"rehead: stopped. {out} still holds the run from before. Resume with: " in log.read_text()
    assert left(out) == expected
    assert main([*arguments[:-1], "--resume"]) == 0
    assert left(out) == straight(text, tmp_path / "straight", **GIVEN, seed=1)


@needs_fork
def test_a_second_signal_is_obeyed_at_once(text: Path, tmp_path: Path) -> None:
    """Nothing is saved then, and nothing is lost but the steps since the last checkpoint."""
    out, log = tmp_path / "run", tmp_path / "log"

    def twice() -> int:
        plain = loop._Training._here

        def here(training: loop._Training, batch: Any) -> Any:
            if training.state.step == 5:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
            return plain(training, batch)

        loop._Training._here = here
        return main([*words(text, out), "--checkpoint-steps", "2"])

    assert end_of(fork(twice, log)) == 130, log.read_text()
    found = checkpoint.newest(out / "checkpoints", pytest.fail)
    assert found is not None
    assert found.state["step"] == 4
    run_pretraining(small(text, out, resume=True))
    assert left(out) == straight(text, tmp_path / "straight")


def test_sigterm_to_the_command(text: Path, tmp_path: Path) -> None:
    """A process of its own, as a scheduler would stop it."""
    out, given = tmp_path / "run", {"epochs": 1000, "quiet": False}
    arguments = [*words(text, out, **given), "--checkpoint-steps", "1"]
    started = [sys.executable, "-m", "rehead", *arguments]
    running = subprocess.Popen(started, env=environment(), stderr=subprocess.PIPE, text=True)
    while not checkpoint.listed(out / "checkpoints"):
        assert running.poll() is None
        time.sleep(0.01)
    running.terminate()
    _, said = running.communicate(timeout=60)
    assert running.returncode == 143, said
    assert f"rehead: stopped. Resume with: {shlex.join(['rehead', *arguments, '--resume'])}" in said.splitlines()
    assert "Traceback" not in said


def test_from_python_ctrl_c_is_ctrl_c(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**vars(small(text, tmp_path / "run"))}
    del given["texts"]
    plain = loop._Training._here

    def here(training: loop._Training, batch: Any) -> Any:
        if training.state.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
            monkeypatch.setattr(loop._Training, "_here", plain)
        return plain(training, batch)

    monkeypatch.setattr(loop._Training, "_here", here)
    with pytest.raises(KeyboardInterrupt, match="resume=True"):
        rehead.pretrain(text, **given)
    run = rehead.pretrain(str(text), **{**given, "resume": True})
    assert run.details["steps"] == 12
    assert left(tmp_path / "run") == straight(text, tmp_path / "straight")


@pytest.mark.parametrize("sick", ["loss", "gradient"])
def test_a_run_that_runs_away_keeps_its_last_good_checkpoint(
    sick: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, seen = Causal.forward, 0

    def forward(self: Causal, tensors: Any) -> Sums:
        nonlocal seen
        seen += self.training
        sums = plain(self, tensors)
        if seen != 6:
            return sums
        loss = sums.losses["causal"]
        broken = loss * float("nan") if sick == "loss" else loss + (loss - loss.detach()).clamp_min(0).sqrt()
        return Sums({"causal": broken})

    with monkeypatch.context() as patched:
        patched.setattr(Causal, "forward", forward)
        assert main([*words(text, tmp_path / "run"), "--checkpoint-steps", "2"]) == 2
    said = capsys.readouterr().err
    shown = "loss (causal)" if sick == "loss" else "gradient"
    assert f"rehead: error: step 6: the {shown} is not finite" in said
    assert "The last good checkpoint is " in said
    assert "step-000004" in said
    assert "--lr-scale 0.5" in said
    run_pretraining(small(text, tmp_path / "run", resume=True))
    assert left(tmp_path / "run") == straight(text, tmp_path / "straight")


def test_a_run_that_runs_away_at_once_has_no_checkpoint(text: Path, tmp_path: Path) -> None:
    """Neither has one that saves every step: weights that give no finite loss are not kept."""
    for steps in (None, 1):
        with pytest.raises(UserError, match="There is no checkpoint yet"):
            run_pretraining(small(text, tmp_path / str(steps), lr_scale=1e30, clip=0, checkpoint_steps=steps))
        assert not list((tmp_path / str(steps) / "checkpoints").glob("step-*"))


def test_a_run_that_runs_away_in_its_last_step_says_so(text: Path, tmp_path: Path) -> None:
    given = {"epochs": None, "tokens": 128, "lr_scale": 1e30, "clip": 0, "validations": 0}
    with pytest.raises(UserError, match=r"holds NaN or infinity.*\(--overwrite\).*--lr"):
        run_pretraining(small(text, tmp_path / "run", **given))


def test_a_validation_that_is_not_finite_is_no_best(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter((3.0, float("inf"), 5.0, float("nan")))
    monkeypatch.setattr(Causal, "report", lambda self, measures: {"loss": next(losses)})
    run = run_pretraining(small(text, tmp_path / "run", checkpoint_steps=1))
    assert run is not None
    assert run.details["best_step"] == 8
    assert run.details["held_out"] == {"loss": 5.0}
    valid = [line["loss"] for line in left(tmp_path / "run").metrics if line["kind"] == "valid"]
    assert valid == [3.0, None, 5.0, None]
