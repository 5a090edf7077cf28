"""Choosing among candidates: noise is seldom taken for a gain, and both are calibrated before they are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rehead.finetune import selection
from rehead.finetune.calibration import calibrated_losses
from rehead.finetune.candidates.candidate import Candidate, Task
from rehead.finetune.examples import Examples
from rehead.finetune.losses import log_losses, selection_losses
from rehead.finetune.options import FitOptions
from rehead.finetune.selection import is_better, select
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews


def test_noise_is_not_better_and_a_gain_is() -> None:
    chance = np.random.RandomState(0)
    truth = chance.randint(0, 3, 400)
    old = np.where(truth[:, None] == np.arange(3), 1.0, 0.0) + chance.randn(400, 3)
    assert not is_better(old, old, truth)
    assert not any(is_better(old + 0.5 * chance.randn(400, 3), old, truth) for _ in range(20))
    gain = old + 0.5 * (truth[:, None] == np.arange(3))
    assert is_better(gain, old, truth)
    assert not is_better(old, gain, truth)
    assert not is_better(3 * old, old, truth)  # more confident, but not more often right: both are calibrated first
    assert not is_better(old / 3, old, truth)
    part = gain.copy()
    part[100:] = np.nan  # those that were never held out do not count
    assert is_better(part, old, truth)
    part[:100] = old[:100] - 0.5 * (truth[:100, None] == np.arange(3))
    assert not is_better(part, old, truth)


def test_a_candidate_that_changes_nothing_but_luck_is_seldom_kept() -> None:
    """What is kept must gain by half a standard error, which luck alone gives about four times in ten."""
    kept = []
    for seed in range(200):
        chance = np.random.RandomState(seed)
        truth = chance.randint(0, 2, 200)
        same = np.where(truth[:, None] == np.arange(2), 1.0, 0.0)
        kept.append(is_better(same + chance.randn(200, 2), same + chance.randn(200, 2), truth))
    assert 0.3 < np.mean(kept) < 0.5


def test_calibrated_losses_are_at_the_temperature_of_the_lowest_log_loss() -> None:
    chance = np.random.RandomState(0)
    truth = chance.randint(0, 2, 300)
    logits = 4 * (np.where(truth[:, None] == np.arange(2), 1.0, 0.0) + chance.randn(300, 2))
    heat = min(np.linspace(0.5, 12, 400), key=lambda each: float(log_losses(logits / each, truth).mean()))
    assert calibrated_losses(logits, truth) == pytest.approx(selection_losses(logits / heat, truth), abs=5e-3)
    table = np.stack([truth, 1 - truth], 1).astype(np.float32)
    assert calibrated_losses(logits * [-1, 1] * -1, table).shape == (300,)


def test_what_the_rare_class_gains_counts_where_classes_are_balanced() -> None:
    """Ten of a hundred gain much, the others lose a little."""
    truth = (np.arange(100) < 10).astype(np.int64)
    old = np.random.RandomState(0).randn(100, 2)
    new = old.copy()
    new[np.arange(100), truth] += np.where(truth == 1, 1.5, -0.6)
    assert not is_better(new, old, truth)
    assert is_better(new, old, truth, balanced=True)
    assert calibrated_losses(old, truth, balanced=True).mean() < np.log(2) + 0.1


def proposals(monkeypatch: pytest.MonkeyPatch, logits: dict[str, Any], truth: Any) -> None:
    """Have candidates propose these out-of-fold scores, or a reason why they were not tried."""
    examples = Examples([], {}, truth, 2)

    def propose(name: str) -> Any:
        found = logits[name]
        made = found if isinstance(found, str) else Candidate(name, found, examples, [], Any, Any)
        return lambda task, best: made

    monkeypatch.setattr(selection, "proposal", propose)


def test_each_candidate_is_compared_with_the_best_before_it(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task.make(reviews(40), make_base(), FitOptions(), None)
    right = np.where(task.truth[:, None] == np.arange(2), 1.0, 0.0)
    first = np.random.RandomState(0).randn(40, 2)
    second = np.where(np.arange(40)[:, None] < 30, first + right, np.nan)
    proposals(monkeypatch, {"a": first, "b": second, "c": first - right, "d": "no time"}, task.truth)
    found = select(task, "abcd")
    assert found.best.name == "b"
    assert found.untried == {"d": "no time"}
    assert [(each.name, each.kept, each.examples) for each in found.compared] == [
        ("a", True, 40),
        ("b", True, 30),
        ("c", False, 40),
    ]
    _, taken, refused = found.compared
    assert taken.accuracy == (second.argmax(1) == task.truth)[:30].mean()
    assert taken.before == (first.argmax(1) == task.truth)[:30].mean()
    assert taken.loss == pytest.approx(calibrated_losses(second, task.truth).mean())
    assert taken.loss_before == pytest.approx(calibrated_losses(first[:30], task.truth[:30]).mean())
    assert refused.loss > (refused.loss_before or 0)
    for part in ("b", f"{100 * taken.accuracy:.1f} %", f"{100 * (taken.before or 0):.1f} %", "30", "kept"):
        assert part in str(taken)
    assert str(refused).endswith("not kept")


def test_exact_matches_are_counted_with_the_thresholds_of_the_run(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task.make(multilabel(40), make_base(), FitOptions(), None)
    shifted = np.where(task.truth > 0, 1.0, -1.0) - 3.0  # right, with thresholds far below one half
    proposals(monkeypatch, {"a": shifted}, task.truth)
    (found,) = select(task, "a").compared
    assert found.accuracy == 1.0
    assert found.macro_f1 == 1.0
    assert found.multilabel


def test_macro_f1_is_said_beside_accuracy(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: four of the last five are wrong, and so all of one class but one."""
    task = Task.make(reviews(10), make_base(), FitOptions(), None)
    guess = np.where(np.arange(10) < 2, task.truth, 0)
    proposals(monkeypatch, {"a": np.eye(2)[guess]}, task.truth)
    (found,) = select(task, "a").compared
    assert found.accuracy == 0.6
    assert found.macro_f1 == pytest.approx((2 * 5 / (5 + 9) + 2 * 1 / (5 + 1)) / 2)
    assert "accuracy 60.0 %, macro-F1 52.4 %" in str(found)


def test_for_macro_f1_a_gain_of_the_rare_class_is_kept(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, where classes are balanced: ten of a hundred gain much, the others lose a little."""
    truth = (np.arange(100) < 10).astype(np.int64)
    old = np.random.RandomState(0).randn(100, 2)
    new = old.copy()
    new[np.arange(100), truth] += np.where(truth == 1, 1.5, -0.6)
    kept = {}
    for metric in ("accuracy", "macro-f1"):
        task = Task.make(reviews(100), make_base(), FitOptions(metric=metric), None)
        task.truth = truth
        proposals(monkeypatch, {"a": old, "b": new}, truth)
        kept[metric] = select(task, "ab").best.name
    assert kept == {"accuracy": "a", "macro-f1": "b"}
