"""Real kills (SIGKILL) at random moments: a good checkpoint is always there, and the end is the same to the byte.

Most children are forked, so that a kill costs no start of Python and torch; a few are processes of their own.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rehead.training import checkpoint
from tests.training.running import command, end_of, environment, fork_command, left, needs_fork, straight, words

KILLS = 30
# Checkpoints after every step, so that most kills fall into the writing of one.
GIVEN: dict[str, Any] = {"objective": "causal,masked", "accumulate": 3}


def newest_step(out: Path) -> int:
    """The step a run would be resumed at; a damaged checkpoint would be said, and is a failure."""
    found = checkpoint.newest(out / "checkpoints", pytest.fail)
    return 0 if found is None else found.state["step"]


def kill_at_random(child: int, out: Path, draw: random.Random) -> int:
    """Kill a child somewhere between its start and its third checkpoint from now on; give its exit code."""
    if draw.random() < 0.3:
        time.sleep(draw.uniform(0, 0.3))
    else:
        before, wanted, waited = seen_step(out), draw.randint(0, 2), time.monotonic()
        while seen_step(out) < before + wanted and time.monotonic() < waited + 5:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    return end_of(child)


def seen_step(out: Path) -> int:
    there = checkpoint.listed(out / "checkpoints")
    return int(there[-1].name.removeprefix("step-")) if there else 0


@needs_fork
@pytest.mark.usefixtures("quick")
def test_thirty_kills_at_random_moments(text: Path, tmp_path: Path) -> None:
    expected = straight(text, tmp_path / "straight", **GIVEN)
    out, log, draw = tmp_path / "killed", tmp_path / "log", random.Random(4)
    kills = finished = step = 0
    while kills < KILLS or not finished:
        begun = (out / "pretrain.json").exists()
        resume = ["--resume"] if begun else []
        child = fork_command([*words(text, out, **GIVEN), "--checkpoint-steps", "1", *resume], log)
        code = end_of(child) if kills == KILLS else kill_at_random(child, out, draw)
        if code == 0:
            assert left(out) == expected, f"after {kills} kills"
            assert not [each for each in out.rglob(".*") if each.exists()]  # nothing half written is left
            finished, step = finished + 1, 0
            shutil.rmtree(out)
            continue
        assert code == -signal.SIGKILL, log.read_text()
        kills += 1
        if (out / "config.json").exists() and not (out / "pretrain.json").exists():  # killed when all was done
            shutil.rmtree(out)
            step = 0
            continue
        assert newest_step(out) >= step
        step = newest_step(out)
    assert kills == KILLS


def test_kill_9_of_the_command(text: Path, tmp_path: Path) -> None:
    """`python -m rehead pretrain`, killed while it trains; then the same with --resume."""
    given = {**GIVEN, "accumulate": 1, "epochs": 2}
    out = tmp_path / "killed"
    arguments = [*words(text, out, **given), "--checkpoint-steps", "5"]
    running = subprocess.Popen([sys.executable, "-m", "rehead", *arguments], env=environment())
    while seen_step(out) < 15:
        assert running.poll() is None
        time.sleep(0.005)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    done = command([*arguments, "--resume"])
    assert done.returncode == 0, done.stderr
    assert left(out) == straight(text, tmp_path / "straight", **given)
