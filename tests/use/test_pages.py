"""The commands of pages that need a run or files of the user's, as they stand, on tiny ones."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rehead
from rehead.cli import main
from rehead.model.config import PRESETS
from rehead.runs.run import save
from tests.finetune.sets import reviews
from tests.use.classifiers import classifier
from tests.use.conftest import trained

ROOT = Path(__file__).parent.parent.parent


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save(classifier("distinct, tokens"), tmp_path / "runs" / "classifier")
    save(trained("causal"), tmp_path / "runs" / "language-model")
    (tmp_path / "new.csv").write_text("text\na good film\na dull one\n", encoding="utf-8")
    (tmp_path / "texts.txt").write_text("a good film\na dull one\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_explaining(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [line for block in blocks("docs/explaining.md", "sh") for line in block.splitlines()]
    assert len(commands) == 2
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
    assert "film" in capsys.readouterr().out
    assert "<article>" in (runs / "words.html").read_text(encoding="utf-8")
    [snippet] = blocks("docs/explaining.md", "py")
    exec(snippet, {})
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["0", "4"], ["5", "6"], ["7", "11"], ["12", "16"], ["16", "17"]
    ]  # fmt: skip


TINY = {"nhid": 16, "nbuckets": 256}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tiny files of a user, and the default preset tiny, too."""
    monkeypatch.setitem(PRESETS, "bag", PRESETS["bag"] | TINY)
    monkeypatch.chdir(tmp_path)
    for name, data in (("labelled", reviews(40, 1)), ("test", reviews(20, 2)), ("new", reviews(4, 3))):
        rows = [f"{text},{labels[0]}\n" for text, labels in zip(data.texts, data.labels, strict=True)]
        Path(f"{name}.csv").write_text("text,label\n" + "".join(rows), encoding="utf-8")
    for name in ("reviews.txt", "tickets.txt"):
        Path(name).write_text("\n".join(reviews(100, 4).texts), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("page", "written"),
    [
        ("README.md", ["base", "classifier"]),
        ("docs/first-classifier.md", ["base", "classifier"]),
        ("docs/how-it-works.md", ["language-model"]),
    ],
)
def test_from_files_of_the_user_s(page: str, written: list[str], files: Path) -> None:
    """But for `make`, `pip`, `compare` (long) and `label` (it serves); tests/test_docs.py has them understood."""
    if "how" in page:
        save(trained("causal"), files / "runs" / "language-model")
    commands = [line for block in blocks(page, "sh") for line in block.splitlines()]
    mine = [shlex.split(line)[1:] for line in commands if line.startswith("rehead ")]
    for words in mine:
        if "--out" in words:  # a page may show two ways to the same classifier
            shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
        assert words[0] in ("compare", "label") or main(words) == 0, words
    assert sorted(each.name for each in (files / "runs").iterdir()) == written


@pytest.mark.parametrize("page", ["README.md", "docs/first-classifier.md"])
def test_from_python(page: str, files: Path) -> None:
    [snippet] = blocks(page, "py")
    data = reviews(40, 1)
    names = {"texts": data.texts, "labels": [each[0] for each in data.labels]}
    exec(snippet, names)
    made = names["classifier"]
    assert isinstance(made, rehead.TextClassifier)
    assert made.predict_proba(["a dull film"]).shape == (1, 2)


def test_exporting(runs: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    assert main(["export", "runs/classifier", "--out", "exported"]) == 0
    for command in (line for block in blocks("docs/exporting.md", "sh") for line in block.splitlines()):
        words, _, given = command.partition(" < ")
        program, *rest = shlex.split(words)
        if program == "rehead":
            assert main(rest) == 0
            continue
        text = (runs / given).read_text(encoding="utf-8") if given else None
        done = subprocess.run([sys.executable, *rest], capture_output=True, text=True, cwd=runs, input=text)
        assert done.returncode == 0, done.stderr
        assert done.stdout
