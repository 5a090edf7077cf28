"""Coverage-guided fuzzing for a stated number of executions, and the inputs that it starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adversary.fuzz.harness import CORPUS, MAX_BYTES, run_target

TARGETS = {"http_guard": 200_000}
"By name, with the number of executions."


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_holds(target: str) -> None:
    """Without atheris, and every time."""
    inputs = sorted((CORPUS / target).iterdir())
    assert inputs
    assert all(each.stat().st_size <= MAX_BYTES for each in inputs)
    done = run_target(target, "--replay", *map(str, inputs))
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_new_breaks_it(target: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris has wheels for Linux and some versions of Python only")
    done = run_target(target, "--runs", str(TARGETS[target]), "--found", str(tmp_path), seconds=1800)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {TARGETS[target]} runs" in done.stderr
