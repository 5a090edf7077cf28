"""What `--metric` changes, from the command line and from Python."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rehead import TextClassifier
from rehead.cli import main
from rehead.finetune.candidates.candidate import Candidate, Task
from rehead.finetune.examples import Examples
from rehead.finetune.fit import fit_classifier
from rehead.finetune.losses import selection_losses
from rehead.finetune.metrics import DecisionRule, macro_f1, predicted_labels
from rehead.finetune.options import FitOptions, Metric
from rehead.finetune.targets import subset, targets
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_logits
from rehead.text.documents import LabelledData
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import misleading, multilabel, reviews
from tests.finetune.test_command import write

FROZEN = ["--freeze", "base", "--device", "cpu", "--quiet"]


@pytest.fixture
def base(make_base: MakeBase) -> Run:
    return make_base()


def rare(count: int, seed: int = 0) -> LabelledData:
    """Reviews of which one in seven is good, and hard to tell from the others."""
    data = misleading(reviews(count, seed), seed)
    return subset(data, [each for each in range(count) if each % 2 == 0 or each % 12 == 1])


@pytest.mark.parametrize(
    ("options", "data", "balanced", "balanced_loss"),
    [
        ({}, reviews(40), False, False),
        ({"metric": "macro-f1"}, reviews(40), False, True),
        ({"class_weight": "balanced"}, reviews(40), True, True),
        ({"metric": "macro-f1"}, multilabel(40), False, False),
        ({"metric": "micro-f1"}, multilabel(40), False, False),
    ],
)
def test_what_candidates_are_compared_by(
    base: Run, options: Any, data: LabelledData, balanced: bool, balanced_loss: bool
) -> None:
    task = Task.make(data, base, FitOptions(**options), None)
    assert (task.balanced, task.balanced_loss) == (balanced, balanced_loss)


def test_the_loss_of_a_candidate_is_balanced_where_that_is_asked() -> None:
    truth = (np.arange(40) < 4).astype(np.int64)
    logits = np.random.RandomState(0).randn(40, 2)
    logits[7] = np.nan  # never held out
    known = np.arange(40) != 7
    examples = Examples([], {}, truth, 2)
    for balanced in (False, True):
        never: Any = None  # it is neither fitted nor built
        made = Candidate("a", logits, examples, [], never, never, balanced_loss=balanced)
        assert made.loss == pytest.approx(selection_losses(logits[known], truth[known], balanced=balanced).mean())


def test_macro_f1_finds_more_of_a_rare_class(base: Run) -> None:
    data, new = rare(400), rare(600, 1)
    truth = targets(new, new.names, multilabel=False)
    found, shares = {}, {}
    for metric in ("accuracy", "macro-f1"):
        options = FitOptions(freeze="base", metric=metric)
        run = fit_classifier(data, None, base=base, options=options).run
        assert run.details["options"]["metric"] == metric
        shares[metric] = class_logits(run, new.texts)
        logits = np.exp(shares[metric])
        probabilities = logits / logits.sum(1, keepdims=True)
        guess = predicted_labels(probabilities, multilabel=False, rule=DecisionRule.of(run.details))
        found[metric] = macro_f1(truth, guess, 2), int((guess == 1).sum())
    assert found["macro-f1"][1] > found["accuracy"][1]
    assert found["macro-f1"][0] > found["accuracy"][0]


def test_the_estimator_predicts_by_the_metric(base: Run, tmp_path: Path) -> None:
    data, new = rare(400), rare(600, 1)
    labels = [label for (label,) in data.labels]
    made = TextClassifier(base, freeze="base", metric="macro-f1").fit(data.texts, labels)
    thresholds = np.array(made.run_.details["thresholds"])
    shares, guess = made.predict_proba(new.texts), made.predict(new.texts)
    np.testing.assert_array_equal(guess, made.classes_[(shares / thresholds).argmax(1)])
    assert (guess != made.classes_[shares.argmax(1)]).any()  # else nothing is shown
    np.testing.assert_array_equal(made.decision_function(new.texts) > 0, guess == made.classes_[1])
    made.save(tmp_path / "run")
    again = TextClassifier.load(tmp_path / "run")
    assert again.metric == "macro-f1"
    np.testing.assert_array_equal(again.predict(new.texts), guess)
    with pytest.raises(ValueError, match=r"^metric micro-f1 is for multilabel data"):
        TextClassifier(base, freeze="base", metric="micro-f1").fit(data.texts, labels)
    with pytest.raises(ValueError, match=r"metric is 'f2'. Expected one of: 'accuracy'"):
        TextClassifier(base, metric="f2").fit(data.texts, labels)  # type: ignore[arg-type]


def test_every_command_decides_alike(base: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the thresholds of the run: evaluate, predict, and Python."""
    save(base, tmp_path / "base")
    train, new = write(tmp_path / "train.csv", rare(400)), write(tmp_path / "new.csv", rare(600, 1))
    run = str(tmp_path / "run")
    more = ["--from", str(tmp_path / "base"), "--out", run, "--metric", "macro-f1", *FROZEN]
    assert main(["finetune", str(train), *more]) == 0
    assert "macro-F1" in (said := capsys.readouterr().out)
    assert "thresholds tuned for --metric macro-f1" in said
    texts = rare(600, 1).texts
    expected = TextClassifier.load(run).predict(texts).tolist()
    assert main(["predict", run, str(new), "--out", str(tmp_path / "out.csv"), "--text-column", "text"]) == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    column = max(place for place, name in enumerate(rows[0]) if "label" in name)
    assert [row[column] for row in rows[1:]] == expected
    capsys.readouterr()
    assert main(["evaluate", run, str(new), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["guessed"] for each in found["classes"]] == [expected.count("bad"), expected.count("good")]
    assert found["micro_f1"] is None
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert f"good, threshold {load(run).details['thresholds'][1]:.3f}" in card


@pytest.mark.parametrize("metric", ["accuracy", "macro-f1", "micro-f1"])
def test_multilabel_thresholds_follow_the_metric(
    base: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], metric: Metric
) -> None:
    save(base, tmp_path / "base")
    tags, run = write(tmp_path / "tags.csv", multilabel(150)), str(tmp_path / "run")
    more = ["--from", str(tmp_path / "base"), "--out", run, "--metric", metric, *FROZEN]
    assert main(["finetune", str(tags), *more]) == 0
    said = capsys.readouterr().out
    details = load(run).details
    assert f"micro-F1 {100 * details['validation']['micro_f1']:.1f} %" in said
    assert f"exact match {100 * details['validation']['accuracy']:.1f} %" in said
    assert f"tuned for --metric {metric}" in said
    assert main(["evaluate", run, str(tags)]) == 0
    assert "micro-F1" in capsys.readouterr().out
    assert "micro-F1" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_micro_f1_of_single_labels_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write(tmp_path / "train.csv", reviews(40))
    assert main(["finetune", str(train), "--out", str(tmp_path / "run"), "--metric", "micro-f1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--metric micro-f1 is for multilabel data" in line
    assert not (tmp_path / "run").exists()


def test_a_class_of_one_example_is_trained_on(base: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(base, tmp_path / "base")
    data = subset(reviews(41, names=("bad", "good", "so")), [*(each for each in range(41) if each % 3 < 2), 2])
    train, run = write(tmp_path / "train.csv", data), str(tmp_path / "run")
    more = ["--from", str(tmp_path / "base"), "--out", run, "--freeze", "base", "--device", "cpu"]
    assert main(["finetune", str(train), *more]) == 0
    said = capsys.readouterr().err
    assert "note: a single example of 1 of 3 classes: trained on, but not evaluated" in said
    assert "metric accuracy: compared by expected error" in said
    assert load(run).labels == ["bad", "good", "so"]
