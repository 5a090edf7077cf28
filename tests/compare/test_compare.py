"""`rehead compare` from files to report, with models that are tiny and labels that are easy."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rehead.cli import main
from rehead.compare import data, experiment, methods
from rehead.compare.baselines import fit_baseline
from rehead.compare.guards import find_leaks
from rehead.compare.results import Results, load_results
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import split
from rehead.finetune.targets import subset
from rehead.pretrain.run import pretrain
from rehead.runs.run import Run, load, save
from rehead.text.documents import LabelledData
from rehead.text.labelled import read_examples
from tests.compare.conftest import reviews, small_and_quick, tagged

pytestmark = pytest.mark.usefixtures("quick")

LINEAR = ["--methods", "tfidf", "--seeds", "1", "--no-control"]


def write_csv(path: Path, data: LabelledData) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([text, "|".join(labels)] for text, labels in zip(data.texts, data.labels, strict=True))
    return path


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was pretrained for a moment on texts like those of the tests."""
    folder = tmp_path_factory.mktemp("bases")
    (folder / "texts.txt").write_text("\n".join(reviews(200, seed=77).texts), encoding="utf-8")
    with small_and_quick():
        pretrain(
            folder / "texts.txt", out=folder / "tiny", preset="small", objective="bag", nhid=16, nlayers=1, nhead=2,
            vocab=300, epochs=1, quiet=True,
        )  # fmt: skip
    return folder / "tiny"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "data.csv", reviews(120))
    write_csv(tmp_path / "test.csv", reviews(60, seed=1))
    return tmp_path


def compare(*words: str | Path) -> int:
    return main(["compare", "--quiet", *map(str, words)])


def without_times(results: Results) -> dict[str, Any]:
    value = dataclasses.asdict(results)
    value.pop("run")
    for score in value["scores"]:
        del score["train_seconds"], score["documents_per_second"]
    for curve in value["curves"]:
        for seed in curve["seeds"]:
            for moment in seed:
                del moment["seconds"]
    for reach in value["reaches"]:
        del reach["seconds"]
    return value


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One comparison with everything in it."""
    folder = tmp_path_factory.mktemp("whole")
    write_csv(folder / "data.csv", reviews(120))
    words = ["--labels", "20,60", "--seeds", "2", "--epochs", "2"]
    with small_and_quick():
        assert compare(folder / "data.csv", "--from", base, "--out", folder / "out", *words) == 0
    return folder


def test_everything_is_in_the_results(whole: Path) -> None:
    results = load_results(whole / "out" / "results.json")
    kinds = [each.kind for each in results.methods]
    assert kinds == ["scratch", "pretrained", "frozen", "recipe", "tfidf", "tfidf_chars", "nbsvm"]
    assert sorted(each.name for each in (whole / "out").iterdir()) == ["plan.json", "report.html", "results.json"]
    assert (results.counts, results.seeds) == ([20, 60], 2)
    assert len(results.scores) == 2 * len(kinds)
    assert results.guards.opened == 1
    assert "objective bag on 200 unlabelled documents" in results.run.runs[0]
    assert {each.method for each in results.guards.controls} == set(kinds) - {"scratch"}
    assert results.data.sizes == {"train": 76, "valid": 20, "test": 24}
    assert "held out" in results.data.test
    assert results.data.classes == {"bad": 12, "good": 12}
    for score in results.scores:
        assert score.accuracy.mean == pytest.approx(np.mean(score.by_seed))
        assert score.accuracy.over_documents is not None
        assert score.accuracy.over_seeds is not None
        assert score.train_seconds > 0
        assert score.documents_per_second > 0
    matrix = np.array(results.confusions[0].matrix)
    assert matrix.sum(1) == pytest.approx([12, 12])
    shown = next(each for each in results.scores if each.method == results.confusions[0].method and each.labels == 60)
    assert np.trace(matrix) / 24 == pytest.approx(shown.accuracy.mean)


def test_curves_begin_before_the_first_step_and_say_when_scratch_is_reached(whole: Path) -> None:
    results = load_results(whole / "out" / "results.json")
    assert {each.method for each in results.curves} == {"scratch", "pretrained"}
    for curve in results.curves:
        for seed in curve.seeds:
            assert seed[0].epoch == 0
            assert [round(moment.epoch) for moment in seed] == [0, 1, 2]
    for labels in results.counts:
        scratch = next(each for each in results.curves if (each.method, each.labels) == ("scratch", labels))
        best = [max(moment.accuracy for moment in seed) for seed in scratch.seeds]
        reach = next(each for each in results.reaches if (each.method, each.labels) == ("scratch", labels))
        assert reach.target == pytest.approx(np.mean(best))
        assert (reach.reached, reach.seeds) == (2, 2)


def test_scratch_and_pretrained_are_paired_and_so_are_the_baselines(whole: Path) -> None:
    results = load_results(whole / "out" / "results.json")
    pairs = {(each.first, each.second) for each in results.paired}
    assert pairs == {("scratch", "pretrained"), ("tfidf", "recipe"), ("tfidf_chars", "recipe"), ("nbsvm", "recipe")}
    for pair in results.paired:
        first, second = (results.score(key, pair.labels) for key in (pair.first, pair.second))
        assert first is not None
        assert second is not None
        assert pair.difference.mean == pytest.approx(second.accuracy.mean - first.accuracy.mean)
        for one, two, test in zip(first.by_seed, second.by_seed, pair.by_seed, strict=True):
            assert (test.only_second - test.only_first) / 24 == pytest.approx(two - one)


def test_the_report_shows_what_is_in_the_results(whole: Path) -> None:
    results = load_results(whole / "out" / "results.json")
    page = (whole / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 3 + len(results.confusions)
    for method in results.methods:
        assert method.title in page
        score = results.score(method.key)
        assert score is not None
        assert f"{100 * score.accuracy.mean:.1f}&nbsp;%" in page


def test_a_baselines_figure_is_what_a_baseline_alone_gets(files: Path, base: Path) -> None:
    assert compare("data.csv", "--from", base, "--test", "test.csv", "--out", "out", *LINEAR) == 0
    data = read_examples("data.csv")
    train = subset(data, split(data, 0.2, 1)[0])
    test = read_examples("test.csv")
    found = fit_baseline("tfidf", train, train.names, 0).predict(test.texts).argmax(1)
    right = np.mean([train.names[each] == label for each, (label,) in zip(found, test.labels, strict=True)])
    assert load_results(Path("out/results.json")).scores[0].accuracy.mean == pytest.approx(right)


@pytest.mark.parametrize(("words", "rates"), [(["--lr", "2e-5"], (2e-5, 1.0)), (["--lr-scale", "2"], (None, 2.0))])
def test_learning_rates_reach_what_is_trained_by_gradient(
    files: Path, base: Path, words: list[str], rates: tuple[float | None, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[float | None, float]] = []
    plain = methods.fit_classifier

    def fit(*arguments: Any, options: FitOptions, **more: Any) -> Any:
        seen.append((options.lr, options.lr_scale))
        return plain(*arguments, options=options, **more)

    monkeypatch.setattr(methods, "fit_classifier", fit)
    less = ["--seeds", "1", "--epochs", "1", "--no-control", "--methods", "scratch,pretrained"]
    assert compare("data.csv", "--from", base, "--out", "out", *less, *words) == 0
    assert seen == [rates, rates]


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Have somebody press Ctrl-C at the n-th training; give the list of what was trained."""
    train_method = experiment.train_method

    def arrange(after: int) -> list[str]:
        done: list[str] = []

        def counting(method: Any, *rest: Any) -> Any:
            if len(done) == after:
                raise KeyboardInterrupt
            done.append(method.key)
            return train_method(method, *rest)

        monkeypatch.setattr(experiment, "train_method", counting)
        return done

    return arrange


def test_what_was_interrupted_goes_on(
    files: Path, base: Path, interrupted: Callable[[int], list[str]], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    words = ["data.csv", "--from", str(base), "--labels", "20,40", "--seeds", "2", "--epochs", "1",
             "--methods", "pretrained,tfidf"]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["rehead", "compare", *words, "--out", "out"])
    assert compare(*words, "--out", "whole") == 0
    done = interrupted(5)
    assert compare(*words, "--out", "out") == 130
    assert len(done) == 5
    assert "Resume with: rehead compare data.csv" in capsys.readouterr().err
    (Path("out/work") / "tfidf-20-0.npz").write_bytes(b"half of a file")
    again = interrupted(100)
    assert compare(*words, "--out", "out", "--resume") == 0
    assert len(again) == 12 - 5 + 1
    one, two = (load_results(Path(name) / "results.json") for name in ("whole", "out"))
    assert without_times(one) == without_times(two)
    capsys.readouterr()
    assert compare(*words, "--out", "out", "--resume") == 2
    assert "nothing to resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["data.csv", "--labels", "20"], "another --labels"),
        (["data.csv", "--labels", "30", "--seeds", "2"], "another --seeds"),
        (["other.csv", "--labels", "30"], "another --labelled"),
    ],
)
def test_another_comparison_cannot_go_on(
    files: Path, base: Path, interrupted: Callable[[int], list[str]], changed: list[str], said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    write_csv(Path("other.csv"), reviews(120, seed=8))
    rest = ["--from", str(base), "--out", "out", "--methods", "tfidf", "--no-control"]
    interrupted(0)
    assert compare("data.csv", *rest, "--labels", "30", "--seeds", "1") == 130
    capsys.readouterr()
    words = [*changed, *([] if "--seeds" in changed else ["--seeds", "1"])]
    assert compare(*words, *rest, "--resume") == 2
    assert said in capsys.readouterr().err
    assert compare("data.csv", *rest, "--labels", "30", "--seeds", "1") == 2
    assert "exists already" in capsys.readouterr().err


def test_changed_files_cannot_go_on(
    files: Path, base: Path, interrupted: Callable[[int], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data.csv", "--from", str(base), "--out", "out", *LINEAR]
    interrupted(0)
    assert compare(*words) == 130
    write_csv(Path("data.csv"), reviews(120, seed=8))
    assert compare(*words, "--resume") == 2
    assert "other data" in capsys.readouterr().err
    assert compare("data.csv", "--from", base, "--out", "nowhere", *LINEAR, "--resume") == 2
    assert "no comparison to resume" in capsys.readouterr().err


def test_leaks_are_taken_out_of_training(files: Path, base: Path) -> None:
    data, test = reviews(120), reviews(60, seed=1)
    data.texts[3:6] = test.texts[7:10]
    write_csv(Path("data.csv"), data)
    assert compare("data.csv", "--from", base, "--test", "test.csv", "--out", "out", *LINEAR) == 0
    results = load_results(Path("out/results.json"))
    assert results.guards.leaks.dropped == 3
    assert results.data.sizes["train"] + results.data.sizes["valid"] == 117
    assert results.guards.leaks.checked == 120
    assert "none of the test documents is in its pretraining text" in results.guards.leaks.pretraining[0]


def test_test_texts_that_were_pretrained_on_are_told(files: Path, base: Path) -> None:
    seen = reviews(200, seed=77)
    write_csv(Path("test.csv"), subset(seen, range(20)))
    assert compare("data.csv", "--from", base, "--test", "test.csv", "--out", "out", *LINEAR) == 0
    leaks = load_results(Path("out/results.json")).guards.leaks
    assert leaks.seen == 20
    assert "20 of 20 test documents are in its pretraining text" in leaks.pretraining[0]
    test = reviews(60, seed=1)
    both = [*subset(seen, range(20)), *test]
    mixed = LabelledData(
        [each.text for each in both],
        [each.labels for each in both],
        test.names,
        False,
        [(each.source, each.line) for each in both],
    )
    write_csv(Path("test.csv"), mixed)
    assert compare("data.csv", "--from", base, "--test", "test.csv", "--out", "two", *LINEAR) == 0
    results = load_results(Path("two/results.json"))
    assert results.guards.leaks.seen == 20
    assert 0 <= results.guards.leaks.unseen_accuracy["tfidf"] <= 1


def unlabelled_file(texts: list[str]) -> str:
    Path("more.txt").write_text("\n".join(texts), encoding="utf-8")
    return "more.txt"


RECIPE = ["--test", "test.csv", "--out", "out", "--methods", "recipe", "--labels", "20", "--seeds", "1", "--no-control"]


def test_unlabelled_text_is_learnt_from_without_the_test_documents(
    files: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read: list[str] = []
    train_method = experiment.train_method

    def learning(*given: Any) -> Any:
        read.extend(given[-1])
        return train_method(*given)

    monkeypatch.setattr(experiment, "train_method", learning)
    test, more = reviews(60, seed=1).texts, reviews(50, seed=5).texts
    changed = test[9].replace("number", "of")
    unlabelled_file([*test[:9], *more, changed])
    assert compare("data.csv", "--from", base, *RECIPE, "--unlabelled", "more.txt") == 0
    assert read == more
    results = load_results(Path("out/results.json"))
    assert results.guards.leaks.unlabelled == 10
    assert results.data.unlabelled == "more.txt (50 documents)"
    assert "10 unlabelled documents" in capsys.readouterr().out
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "10 unlabelled documents</span>" in page
    assert "more.txt (50 documents)" in page


def test_a_text_that_was_pretrained_on_and_is_learnt_from_again_is_searched_once(
    files: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []

    def finding(learnt: list[Any], test: list[str]) -> Any:
        searched.append(len(learnt))
        return find_leaks(learnt, test)

    monkeypatch.setattr(data, "find_leaks", finding)
    test = subset(reviews(200, seed=77), range(20))  # the base has read these
    write_csv(Path("test.csv"), test)
    monkeypatch.setattr(data, "UNLABELLED", 100)
    assert compare("data.csv", "--from", base, *RECIPE, "--unlabelled", base.parent / "texts.txt") == 0
    assert searched == [3]  # training, validation, and that text
    results = load_results(Path("out/results.json"))
    assert (results.guards.leaks.seen, results.guards.leaks.unlabelled) == (20, 20)
    assert str(results.data.unlabelled).endswith("100 of 180 documents)")


def test_unlabelled_text_of_test_documents_alone_is_refused(
    files: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unlabelled_file(reviews(60, seed=1).texts)
    assert compare("data.csv", "--from", base, *RECIPE, "--unlabelled", "more.txt") == 2
    assert "--unlabelled: " in capsys.readouterr().err


def test_changed_unlabelled_text_cannot_go_on(
    files: Path, base: Path, interrupted: Callable[[int], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data.csv", "--from", str(base), *RECIPE, "--unlabelled", unlabelled_file(reviews(50, seed=5).texts)]
    interrupted(0)
    assert compare(*words) == 130
    unlabelled_file(reviews(50, seed=6).texts)
    assert compare(*words, "--resume") == 2
    assert "other data" in capsys.readouterr().err


def test_several_labels(files: Path, base: Path) -> None:
    write_csv(Path("tags.csv"), subset(tagged(200), [n for n, labels in enumerate(tagged(200).labels) if labels]))
    words = ["--methods", "pretrained,nbsvm", "--seeds", "1", "--epochs", "1"]
    assert compare("tags.csv", "--from", base, "--out", "out", *words) == 0
    results = load_results(Path("out/results.json"))
    assert results.data.multilabel
    assert results.confusions == []
    linear = results.score("nbsvm")
    assert linear is not None
    assert linear.accuracy.mean > 0.6
    assert results.reliabilities


def test_several_runs_have_names(files: Path, base: Path) -> None:
    save(load(base), Path("twin"))
    words = ["--methods", "scratch,frozen", "--seeds", "1", "--epochs", "1", "--no-control", "--labels", "20"]
    assert compare("data.csv", "--from", base, "twin", "--out", "out", *words) == 0
    results = load_results(Path("out/results.json"))
    # The two have one shape, so that one scratch stands for both.
    assert [each.key for each in results.methods] == [f"scratch:{base}", f"frozen:{base}", "frozen:twin"]
    assert results.methods[0].title == "from scratch"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--labels", "500"], "76 training examples"),
        (["--labels", "2"], "4 or more"),
        (["--test", "three.csv", "--labels", "5", "--valid", "three.csv"], "--labels 5: too few for 3 classes"),
        (["--methods", "magic"], "--methods magic: no such method"),
        (["--seeds", "0"], "--seeds 0"),
        (["--minutes=-1"], "--minutes -1"),
        (["--methods", "tfidf", "--minutes", "1"], "recipe only"),
        (["--lr", "2"], "--lr-scale"),
        (["--lr", "2e-5", "--lr-scale", "2"], "--lr 2e-05 and --lr-scale 2"),
        (["--test", "odd.csv"], "'odd'"),
        (["--test", "imdb:tset"], "imdb:tset"),
        (["--resume", "--overwrite"], "Give one"),
        (["--unlabelled", "data.csv", "--methods", "tfidf"], "--unlabelled is used by the method recipe only"),
    ],
)
def test_mistakes_are_one_line(
    files: Path, base: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(Path("odd.csv"), reviews(20, kinds=("odd", "good")))
    write_csv(Path("three.csv"), reviews(30, seed=5, kinds=("bad", "good", "odd")))
    if "three.csv" in words:
        write_csv(Path("data.csv"), reviews(60, kinds=("bad", "good", "odd")))
    assert compare("data.csv", "--from", base, "--out", "out", *words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not Path("out").exists()


def test_a_run_that_cannot_read_is_refused(files: Path, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = load(base)
    save(Run(run.model, None, None, {}), Path("mute"))
    assert compare("data.csv", "--from", "mute", "--out", "out") == 2
    assert "no tokenizer" in capsys.readouterr().err


def test_what_is_there_is_kept_unless_told(files: Path, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data.csv", "--from", str(base), "--out", "out", *LINEAR]
    assert compare(*words) == 0
    assert compare(*words) == 2
    assert "exists already" in capsys.readouterr().err
    assert compare(*words, "--overwrite") == 0
    Path("out/mine.txt").write_text("keep me", encoding="utf-8")
    assert compare(*words, "--overwrite") == 2
    assert "'mine.txt', which would be lost" in capsys.readouterr().err


def test_a_control_that_knows_the_answers_is_a_finding(
    files: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uneven = ["bad"] * 9 + ["good"]
    write_csv(Path("data.csv"), reviews(300, kinds=uneven))
    write_csv(Path("test.csv"), reviews(100, seed=1, kinds=uneven))
    monkeypatch.setattr(experiment, "shuffle_labels", lambda data, seed: data)  # a shuffle that does not
    words = ["--methods", "tfidf", "--seeds", "2"]
    assert compare("data.csv", "--from", base, "--test", "test.csv", "--out", "out", *words) == 1
    assert "WARNING: trained on shuffled labels" in capsys.readouterr().out
    assert "does NOT fall to chance" in Path("out/report.html").read_text(encoding="utf-8")


def test_without_matplotlib_there_is_a_report_all_the_same(
    files: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert compare("data.csv", "--from", base, "--out", "out", *LINEAR) == 0
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "<svg" not in page
    assert "TF-IDF" in page
    assert json.loads(Path("out/results.json").read_text(encoding="utf-8"))["format"] == 1


def test_the_table_is_printed(files: Path, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("data.csv", "--from", base, "--out", "out", *LINEAR) == 0
    out = capsys.readouterr().out
    results = load_results(Path("out/results.json"))
    assert " ".join(out.split()).startswith(results.answer[0])
    assert f"{100 * results.scores[0].accuracy.mean:.1f}" in out
    assert out.rstrip().endswith("report: out/report.html")
