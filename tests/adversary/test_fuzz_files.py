"""Fuzzing of what is read from files: the corpora quickly, and a stated number of executions by atheris slowly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.adversary.fuzz.files import CORPUS, TARGETS

EXECUTIONS = {"csv": 50_000, "jsonl": 50_000, "parquet": 20_000, "run": 20_000}


@pytest.mark.parametrize("name", list(TARGETS))
def test_the_corpus_has_no_findings(name: str, tmp_path: Path) -> None:
    target = TARGETS[name](tmp_path)
    files = sorted((CORPUS / name).iterdir())
    assert len(files) >= 3
    for file in files:
        data = file.read_bytes()
        assert len(data) < 32_768
        target(data)
        for place in range(0, len(data), 1 + len(data) // 20):
            target(data[:place])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TARGETS))
def test_fuzzing_finds_nothing(name: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    found = tmp_path / "found"  # new inputs go here, and not to the corpus of the repository
    found.mkdir()
    command = [sys.executable, "-m", "tests.adversary.fuzz.files", name, f"-runs={EXECUTIONS[name]}"]
    command += [f"-artifact_prefix={tmp_path}/", "-seed=1", str(found), str(CORPUS / name)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Done {EXECUTIONS[name]} runs" in done.stderr
