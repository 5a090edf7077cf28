"""What `rehead evaluate` says of a classifier. The command from files to tables is tested beside `finetune`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rehead.cli import main
from rehead.errors import UserError
from rehead.finetune.metrics import compute_metrics
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.runs.run import Run, save
from rehead.runs.scoring import classifier_head
from rehead.text.documents import Document, LabelledData
from rehead.text.labelled import read_examples
from rehead.text.tokenizer import Tokenizer
from rehead.use.evaluate import evaluate_labeller, format_metrics
from rehead.use.labeller import Labeller

TEXTS = ["good film", "bad film", "a good book", "what a bad book"]


def classifier(*, multilabel: bool) -> Run:
    """One that gives every text the label `good`, as sure as sigmoid(1), and `bad` as sure as sigmoid(-1)."""
    tokenizer = Tokenizer.train([Document(text, "x", 1) for text in TEXTS * 5], vocab=270, quiet=True)
    config = preset("bag", ntokens=tokenizer.vocab_size, nhid=4, nbuckets=8)
    model = Model(config, config.classifier(2, multilabel)).eval()
    head = classifier_head(model)
    with torch.no_grad():
        head.of("bag").weight.zero_()
        head.bias.copy_(torch.tensor([-1.0, 1.0]))
    return Run(model, tokenizer, ["bad", "good"])


def data(labels: list[tuple[str, ...]], *, multilabel: bool) -> LabelledData:
    return LabelledData(TEXTS, labels, ["bad", "good"], multilabel, [("x.csv", line) for line in range(2, 6)])


def test_one_label_each() -> None:
    run = classifier(multilabel=False)
    assert not Labeller.of(run).multilabel
    found = evaluate_labeller(Labeller.of(run), data([("good",), ("bad",), ("good",), ("good",)], multilabel=False))
    assert found.accuracy == 0.75
    assert found.confusion == [[0, 1], [0, 3]]
    with pytest.raises(UserError, match=r"x.csv line 3: the label 'fair'"):
        evaluate_labeller(Labeller.of(run), data([("good",), ("fair",), ("good",), ("good",)], multilabel=False))


def test_thresholds_decide_where_there_are_several() -> None:
    run = classifier(multilabel=True)
    assert Labeller.of(run).multilabel
    truth = data([("good",), ("bad", "good"), ("good",), ()], multilabel=True)
    assert evaluate_labeller(Labeller.of(run), truth).accuracy == 0.5
    run.details["thresholds"] = [0.2, 0.9]  # now everything is bad, and nothing good
    assert evaluate_labeller(Labeller.of(run), truth).accuracy == 0
    assert [each.guessed for each in evaluate_labeller(Labeller.of(run), truth).classes] == [4, 0]
    run.details["thresholds"] = [0.2]
    with pytest.raises(UserError, match="thresholds has 1 numbers for 2 labels"):
        evaluate_labeller(Labeller.of(run), truth)


def test_tables_hold_long_names_and_leave_large_matrices_out() -> None:
    names = [f"class {place}" + "x" * 40 * (place == 1) for place in range(13)]
    truth = np.arange(26) % 13
    shares = np.full((26, 13), 0.01)
    shares[np.arange(26), truth] = 0.88
    said = format_metrics(compute_metrics(shares, truth, names))
    assert "accuracy           100.00 %" in said
    assert "class 1xxxxxxxxxxxxxxxx…" in said
    assert "columns" not in said
    assert said.splitlines()[-1].startswith("13 classes are too many")
    assert "macro-F1: " not in said
    assert max(map(len, said.splitlines())) < 100
    few = format_metrics(compute_metrics(shares[:, :2], truth[:] % 2, names[:2]))
    assert "confusion matrix (rows: true class, columns: predicted)" in few


def test_a_class_that_is_not_there_is_named() -> None:
    truth = np.array([0, 1, 0, 1])
    said = format_metrics(compute_metrics(np.eye(4)[truth], truth, ["bad", "good", "fair", "odd"]))
    assert "macro-F1           100.00 %" in said
    assert "not in macro-F1: fair, odd" in said


@pytest.mark.parametrize(
    ("known", "said"),
    [("train_fingerprint", "was trained on these"), ("valid_fingerprint", "calibrated or selected on these")],
)
def test_it_warns_of_what_made_the_classifier(
    known: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = classifier(multilabel=False), tmp_path / "x.csv"
    file.write_text("text,label\n" + "".join(f"{text},good\n" for text in TEXTS), encoding="utf-8")
    run.details["examples"] = {known: read_examples([str(file)], check=False).fingerprint()}
    command = ["evaluate", str(save(run, tmp_path / "run")), str(file)]
    assert main(command) == 0
    assert said in capsys.readouterr().err
    assert main([*command, "--quiet"]) == 0
    assert not capsys.readouterr().err
