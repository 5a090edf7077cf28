"""What every way of fitting has in common: warnings about the data, and about what comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rehead.errors import UserError
from rehead.finetune.fitted import by_chance, calibrate_run, collapsed, describe_data, describe_metric, never_predicted
from rehead.finetune.metrics import compute_metrics
from rehead.finetune.network import train_network
from rehead.finetune.options import FitOptions
from rehead.finetune.targets import subset
from rehead.model.model import Model
from rehead.runs.run import Run
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import reviews


def test_classes_with_few_examples_are_named() -> None:
    lonely = subset(reviews(30), [*range(0, 30, 2), 1])
    note, single = describe_data(lonely)
    assert "'good' 1" in note
    assert "'bad'" not in note
    assert single == "note: a single example of 1 of 2 classes: trained on, but not evaluated"
    (note,) = describe_data(reviews(8))
    assert "'bad' 4, 'good' 4" in note
    assert describe_data(reviews(20)) == []
    with pytest.raises(UserError, match=r"10 examples .* 'bad'"):
        describe_data(subset(reviews(20), range(0, 20, 2)))


def test_a_collapse_to_one_class_is_warned_of(make_base: MakeBase) -> None:
    """Texts that are all the same cannot be told apart."""
    data, valid = subset(reviews(40), [*range(0, 40, 2), *range(1, 20, 2)]), reviews(20, 1)
    data.texts, valid.texts = ["the film"] * len(data), ["the film"] * len(valid)
    fitted = train_network(data, valid, base=make_base(), options=FitOptions(epochs=1, lr_scale=3.0))
    assert fitted.run.details["collapsed"]
    assert fitted.notes[-1].startswith("warning: ")
    for way in ("'bad'", "(--epochs)", "(--lr)", "(--class-weight balanced)"):
        assert way in fitted.notes[-1]
    names = ["bad", "good"]
    same, mixed = np.array([1, 1, 1]), np.array([0, 1, 1])
    found = collapsed(same, mixed, names, "out-of-fold")
    assert found is not None
    assert "out-of-fold" in found
    assert "'good'" in found
    assert collapsed(mixed, mixed, names, "out-of-fold") is None
    assert collapsed(same, same, names, "out-of-fold") is None
    assert "no label at all" in (collapsed(np.zeros((3, 2), bool), np.eye(3, 2), names, "out-of-fold") or "")


def test_chance_is_told_from_little_skill() -> None:
    chance = np.random.RandomState(0)
    truth = (np.arange(200) < 20).astype(np.int64)
    assert by_chance(np.zeros(200, np.int64), truth)  # 90 % right
    few = (np.arange(20) < 8).astype(np.int64)
    assert by_chance(few * (np.arange(20) == 0), few)  # one of eight, by luck
    rare = np.where(np.arange(200) < 10, 1, 0)  # half of the rare class is found
    assert not by_chance(rare, truth)
    often = [by_chance(chance.randint(0, 2, 200), truth) for _ in range(100)]
    assert 0.85 < np.mean(often) < 1
    assert by_chance(1 - truth, truth)
    assert not by_chance(truth, truth)


def never(counts: list[int], predicted: list[int]) -> str | None:
    """Ask about classes with these many documents, of which some are predicted for their own documents."""
    truth = np.repeat(np.arange(len(counts)), counts)
    guess = np.where(np.isin(truth, predicted), truth, predicted[0])
    names = [f"c{place}" for place in range(len(counts))]
    return never_predicted(compute_metrics(np.eye(len(counts))[guess], truth, names), "out-of-fold")


def test_classes_that_are_never_predicted_are_named_the_rarest_first() -> None:
    said = never([30, 9, 5, 4, 7], [0])
    assert said is not None
    assert said.endswith("'c2' 5, 'c4' 7, 'c1' 9 (3 of 5 classes).")  # and not c3, which has four
    assert "out-of-fold" in said
    assert never([30, 9, 5, 4], [0, 1, 2]) is None
    many = never([30, *range(12, 4, -1)], [0])
    assert many is not None
    assert many.endswith("'c8' 5, 'c7' 6, 'c6' 7, 'c5' 8, 'c4' 9, … (8 of 9 classes).")


def calibrated(make_base: MakeBase, shift: float, **options: Any) -> tuple[Run, list[str]]:
    """Calibrate a classifier by scores of 1,000 documents of which 100 are good, and hardly told from the others."""
    base = make_base()
    head = base.model.config.classifier(2)
    truth = (np.arange(1000) % 10 == 0).astype(np.int64)
    odds = 1.5 * (np.random.RandomState(0).randn(1000) + 1.5 * truth) - 1.5**2 / 2 + np.log(1 / 9) + shift
    run = Run(Model(base.model.config, head), base.tokenizer, ["bad", "good"])
    run.details = {"method": "linear", "options": {"metric": "accuracy", "class_weight": None, **options}}
    return run, calibrate_run(run, np.stack((-odds, odds), 1) / 2, truth, "out-of-fold")[1]


def test_macro_f1_has_thresholds_of_its_own_and_keeps_the_probabilities(make_base: MakeBase) -> None:
    plain, _ = calibrated(make_base, 0.0)
    tuned, _ = calibrated(make_base, 0.0, metric="macro-f1")
    assert "thresholds" not in plain.details
    assert tuned.details["thresholds"][0] > 0.5 > tuned.details["thresholds"][1]
    assert tuned.details["calibration"] == plain.details["calibration"]
    before, after = plain.details["validation"], tuned.details["validation"]
    assert after["macro_f1"] > before["macro_f1"] + 0.05
    assert after["loss"] == before["loss"]
    assert "micro_f1" not in after


def test_what_is_never_predicted_is_warned_of_once(make_base: MakeBase) -> None:
    _, notes = calibrated(make_base, -9.0)
    (said,) = [each for each in notes if each.startswith("warning: ")]
    assert "same prediction, 'bad'" in said  # with two classes that is a collapse
    truth = np.repeat([0, 1, 2], [60, 30, 8])
    logits = 4.0 * np.eye(3)[np.where(truth == 2, 0, truth)]
    for options, advice in (
        ({}, "Try --metric macro-f1 or --class-weight balanced."),
        ({"class_weight": "balanced"}, "Try --metric macro-f1."),
        ({"metric": "macro-f1"}, "Try --class-weight balanced."),
        ({"metric": "macro-f1", "class_weight": "balanced"}, "Give more examples of these."),
    ):
        base = make_base()
        run = Run(Model(base.model.config, base.model.config.classifier(3)), base.tokenizer, ["a", "b", "c"])
        run.details = {"method": "linear", "options": {"metric": "accuracy", "class_weight": None, **options}}
        _, notes = calibrate_run(run, logits, truth, "out-of-fold")
        (said,) = [each for each in notes if each.startswith("warning: ")]
        assert said.endswith(f"'c' 8 (1 of 3 classes). {advice}")


def test_it_is_said_what_was_compared_by() -> None:
    assert "by expected error" in describe_metric("accuracy", multilabel=False, balanced_loss=False)
    assert "most probable" in describe_metric("accuracy", multilabel=False, balanced_loss=False)
    said = describe_metric("macro-f1", multilabel=False, balanced_loss=True)
    assert "class-balanced expected error" in said
    assert "macro-F1" in said
    assert "exact match" in describe_metric("accuracy", multilabel=True, balanced_loss=False)
    assert "for micro-F1" in describe_metric("micro-f1", multilabel=True, balanced_loss=False)
