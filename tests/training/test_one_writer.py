"""Two processes and one directory: the first goes on undisturbed, the second is told who has it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rehead.cli import main
from rehead.training import loop
from tests.training.running import end_of, fork, left, needs_fork, straight, words

pytestmark = [pytest.mark.usefixtures("quick"), needs_fork]


def paused_at(step: int, until: Path, arguments: list[str]) -> int:
    """Run the command, and wait at a step until a file appears."""
    plain = loop._Training._here

    def here(training: loop._Training, batch: Any) -> Any:
        while training.state.step == step and not until.exists():
            time.sleep(0.01)
        return plain(training, batch)

    loop._Training._here = here
    return main(arguments)


@pytest.mark.parametrize("more", ["--resume", "--overwrite"])
def test_a_second_run_does_not_disturb_the_first(
    more: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, release, log = tmp_path / "run", tmp_path / "go", tmp_path / "log"
    arguments = [*words(text, out), "--checkpoint-steps", "1"]
    child = fork(lambda: paused_at(3, release, arguments), log)
    try:
        while not (out / "checkpoints" / "step-000003").exists():
            time.sleep(0.01)
        assert main([*arguments, more]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{out} is being written by process {child} on " in line
    finally:
        release.touch()
        code = end_of(child)
    assert code == 0, log.read_text()
    assert left(out) == straight(text, tmp_path / "straight")
