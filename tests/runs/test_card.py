"""The card beside a run: what it says is the run's own, and what users named cannot be more than text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rehead
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.runs.card import CARD, card, plain
from rehead.runs.run import Run, load, save
from rehead.views import VIEWS
from tests.model.conftest import classifier_of

BASE = preset("bag", ntokens=300, nhid=16, nbuckets=64)
DETAILS = {
    "objective": "classify",
    "method": "linear",
    "seed": 3,
    "options": {"lr": 0.25, "epochs": None, "shard": False, "texts": ["/home/somebody/secret.csv"]},
    "examples": {"train": 1234, "train_fingerprint": "ab" * 32, "valid": 567, "valid_fingerprint": "cd" * 32},
    "base": {"objective": "bag", "tokens": 987654},
    "validation": {"accuracy": 0.8765, "macro_f1": 0.7654, "micro_f1": 0.6543, "loss": 0.4321},
    "calibration": {
        "temperature": 1.25, "error_before": 0.0612, "error_after": 0.0234, "documents": 567, "origin": "validation",
    },
    "candidates": [{"name": "frozen base", "accuracy": 0.812, "macro_f1": 0.701, "examples": 789, "kept": True}],
    "thresholds": [0.25, 0.5],
    "at_least_one": True,
}  # fmt: skip


def classifier(labels: list[str], **details: object) -> Run:
    head = classifier_of(BASE, len(labels), multilabel=True, max_length=128, long="head+tail")
    return Run(Model(BASE, head), None, labels, details)


def test_it_says_what_the_run_says() -> None:
    run = classifier(["bad", "good"], **DETAILS)
    said = card(run, "reviews")
    count = sum(each.numel() for each in run.model.parameters())
    lines = said.splitlines()
    for values in (
        ["# reviews"],
        [f"{count:,} parameters"],
        [run.model.config.learning_part, VIEWS["bag"].about],
        ["- bad", "0.250"],
        ["- good", "0.500"],
        ["its most probable label"],
        ["1,234", "ab" * 32],
        ["567", "cd" * 32],
        ["bag", "987,654 tokens"],
        ["method", "linear"],
        ["seed", "3"],
        ["lr 0\\.25"],
        ["87.6 %", "micro-F1 65.4 %", "macro-F1 76.5 %", "0.432", "567"],
        ["frozen base", "81.2 %", "70.1 %", "789", "kept"],
        ["temperature 1.25", "567", "6.1 %", "2.3 %"],
        ["128 tokens", r"head\+tail"],
        [f"rehead {rehead.__version__}", f"torch {torch.__version__}"],
    ):
        assert any(all(each in line for each in values) for line in lines), values
    assert "secret" not in said
    assert "epochs" not in said
    assert "not calibrated" not in said


def test_what_is_not_known_is_left_out() -> None:
    said = card(classifier(["a", "b"]), "x")
    assert "## Data" not in said
    assert "## What was measured" not in said
    assert "Its probabilities are not calibrated" in said


def test_a_base_says_what_can_be_done_with_it() -> None:
    text = {"documents": 2000, "tokens": 30000, "held_out_documents": 40, "fingerprint": "ef" * 32}
    details = {"objective": "hybrid", "text": text, "held_out": {"loss": 3.25}, "steps": 100, "best_step": 90}
    said = card(Run(Model(BASE, BASE.language_model()), details=details), "x")
    for part in ("2,000 documents, 30,000 tokens; 40 of", "ef" * 32, "loss on held-out text: 3.2500", "best, 90"):
        assert part in said
    assert "rehead generate" in said
    assert "rehead fill" in said
    assert "rehead generate" not in card(Run(Model(BASE), details={"objective": "bag"}), "x")
    writes = card(Run(Model(BASE, BASE.language_model()), details={"objective": "masked:0.5,causal:0.5"}), "x")
    assert "rehead generate" in writes
    assert "rehead fill" not in writes


def test_names_cannot_be_more_than_text() -> None:
    evil = "<script>alert(1)</script> [x](http://evil) **b** `c` | d\n# heading \x1b[2J"
    said = card(classifier([evil, "b" * 500]), evil)
    assert "<script>" not in said
    assert "](http" not in said
    assert "\n# heading" not in said
    assert "\x1b" not in said
    assert "b" * 100 not in said
    assert plain("a_b*c") == r"a\_b\*c"


@pytest.mark.parametrize("wrong", [7, "text", [1], {"accuracy": "high", "documents": None, "temperature": [1]}])
def test_details_of_any_form_do_no_harm(wrong: object) -> None:
    said = card(classifier(["a", "b"], **dict.fromkeys(DETAILS, wrong)), "x")
    assert "# x" in said


def test_it_is_written_beside_a_run_and_never_read(tmp_path: Path) -> None:
    run = classifier(["a", "b"], **DETAILS)
    path = save(run, tmp_path / "my_run")
    assert (path / CARD).read_text(encoding="utf-8") == card(run, "my_run")
    (path / CARD).write_bytes(b"\xff not even text")
    assert load(path).labels == ["a", "b"]
    (path / CARD).unlink()
    assert load(path).labels == ["a", "b"]
    save(run, path, overwrite=True)
    assert (path / CARD).read_text(encoding="utf-8") == card(run, "my_run")
