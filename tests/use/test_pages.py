"""The commands of docs/explaining.md and docs/exporting.md that need a run, as they stand, on tiny runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rehead.cli import main
from rehead.model.run import save
from tests.use.classifiers import classifier
from tests.use.conftest import trained

DOCS = Path(__file__).parent.parent.parent / "docs"


def blocks(page: str, kind: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save(classifier("distinct, words"), tmp_path / "runs" / "classifier")
    save(trained("causal"), tmp_path / "runs" / "language-model")
    (tmp_path / "new.csv").write_text("text\na good film\na dull one\n", encoding="utf-8")
    (tmp_path / "texts.txt").write_text("a good film\na dull one\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_explaining(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [line for block in blocks("explaining.md", "sh") for line in block.splitlines()]
    assert len(commands) == 2
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
    assert "film" in capsys.readouterr().out
    assert "<article>" in (runs / "words.html").read_text(encoding="utf-8")
    [snippet] = blocks("explaining.md", "py")
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, cwd=runs)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["0", "4"], ["5", "6"], ["7", "11"], ["12", "16"], ["16", "17"]
    ]  # fmt: skip


def test_exporting(runs: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    assert main(["export", "runs/classifier", "--out", "exported"]) == 0
    for command in (line for block in blocks("exporting.md", "sh") for line in block.splitlines()):
        words, _, given = command.partition(" < ")
        program, *rest = shlex.split(words)
        text = (runs / given).read_text(encoding="utf-8") if given else None
        start = [sys.executable, "-m", "rehead"] if program == "rehead" else [sys.executable]
        done = subprocess.run([*start, *rest], capture_output=True, text=True, cwd=runs, input=text)
        assert done.returncode == 0, done.stderr
        assert done.stdout
