"""Budgets and schedules, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rehead.errors import UserError
from rehead.pretrain.run import run_pretraining
from rehead.training import loop
from rehead.training.budget import Budget, Schedule
from rehead.training.optimizers import Optimizers
from tests.training.running import broken_off, metrics, small

pytestmark = pytest.mark.usefixtures("quick")


def test_the_schedule_by_hand() -> None:
    """Up over the first tenth, flat, down over the last fifth."""
    schedule = Schedule(warmup=0.1, decay=0.2)
    fractions = (0, 0.05, 0.1, 0.5, 0.8, 0.85, 0.9, 1)
    assert [schedule.factor(each) for each in fractions] == pytest.approx([0, 0.5, 1, 1, 1, 0.75, 0.5, 0])
    assert [Schedule(0, 0).factor(each) for each in (0, 0.5, 1)] == [1, 1, 1]
    assert [Schedule(0.5, 0.5).factor(each) for each in (0.25, 0.5, 0.75)] == [0.5, 1, 0.5]


@pytest.mark.parametrize(("warmup", "decay"), [(-0.1, 0.5), (0.6, 0.5), (0.1, -1), (float("nan"), 0.5)])
def test_shares_that_do_not_fit_are_refused(warmup: float, decay: float) -> None:
    with pytest.raises(UserError, match="do not fit into one run"):
        Schedule(warmup, decay)


def test_fractions_by_hand() -> None:
    used: dict[str, float] = {"steps": 30, "tokens": 5000, "seconds": 90}
    assert Budget("steps", 120).fraction(**used) == 0.25
    assert Budget("tokens", 10_000).fraction(**used) == 0.5
    assert Budget("minutes", 2).fraction(**used) == 0.75
    assert Budget("minutes", 1).fraction(**used) == 1
    for amount in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UserError, match="must be above 0 and below 1e\\+18"):
            Budget("steps", amount)


@pytest.fixture
def factors(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the learning rates of each step are multiplied by."""
    seen: list[float] = []
    plain = Optimizers.step

    def step(self: Optimizers, factor: float, fraction: float) -> None:
        seen.append(factor)
        plain(self, factor, fraction)
        assert [group["lr"] for each in self.each for group in each.param_groups] == [
            rate * factor for rates in self.rates for rate in rates
        ]

    monkeypatch.setattr(Optimizers, "step", step)
    return seen


def test_epochs(text: Path, tmp_path: Path, factors: list[float]) -> None:
    """A step's rate is that of its middle: (i + ½) / 12 of the run."""
    run_pretraining(small(text, tmp_path / "run", epochs=0.5, warmup_ratio=0.25, decay_ratio=0.5))
    expected = [1 / 6, 3 / 6, 5 / 6, 1, 1, 1, 11 / 12, 9 / 12, 7 / 12, 5 / 12, 3 / 12, 1 / 12]
    assert factors == pytest.approx(expected)
    train = [line for line in metrics(tmp_path / "run") if line["kind"] == "train"]
    # After ten steps, and beside each of the three validations.
    assert [line["lr_factor"] for line in train] == pytest.approx([1, 9 / 12, 5 / 12, 1 / 12], abs=1e-6)


def test_epochs_are_counted_in_rows_of_the_text(text: Path, tmp_path: Path) -> None:
    one = run_pretraining(small(text, tmp_path / "one", epochs=1))
    two = run_pretraining(small(text, tmp_path / "two", epochs=2))
    assert one is not None
    assert two is not None
    trained = one.details["text"]["tokens"]
    assert one.details["tokens"] == pytest.approx(trained, rel=0.1)
    assert two.details["tokens"] == pytest.approx(2 * one.details["tokens"], abs=128)


def test_tokens(text: Path, tmp_path: Path, factors: list[float]) -> None:
    """1,000 tokens in steps of 128: the eighth step passes the border; its middle, 960, is at 0.96."""
    run = run_pretraining(small(text, tmp_path / "run", epochs=None, tokens=1000, warmup_ratio=0, decay_ratio=0.5))
    assert run is not None
    assert (run.details["steps"], run.details["tokens"]) == (8, 1024)
    middles = [(128 * step + 64) / 1000 for step in range(8)]
    assert factors == pytest.approx([min(1, (1 - middle) / 0.5) for middle in middles])


def test_minutes(text: Path, tmp_path: Path, factors: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by six seconds whenever a step looks at it: a minute has ten steps."""
    ticks = iter(range(0, 10_000, 6))

    class Clock:
        monotonic = staticmethod(lambda: float(next(ticks)))
        perf_counter = staticmethod(lambda: 0.0)

    monkeypatch.setattr(loop, "time", Clock)
    run = run_pretraining(
        small(text, tmp_path / "run", epochs=None, minutes=1, warmup_ratio=0, decay_ratio=0.5, validations=2)
    )
    assert run is not None
    assert run.details["steps"] == 10
    assert run.details["seconds"] == 60
    # The clock is read when a step begins, so a step's rate is that of its beginning, and time only passes in steps.
    assert factors == pytest.approx([1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0])
    valid = [line["step"] for line in metrics(tmp_path / "run") if line["kind"] == "valid"]
    assert valid == [0, 5, 10]


def test_validation_takes_a_tenth_of_a_budget_in_minutes_at_most(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten steps of six seconds; a validation after each is wished for, and takes three seconds."""
    ticks, reads = iter(range(0, 10_000, 6)), iter(range(0, 10_000, 3))

    class Clock:
        monotonic = staticmethod(lambda: float(next(ticks)))
        perf_counter = staticmethod(lambda: float(next(reads)))

    monkeypatch.setattr(loop, "time", Clock)
    run_pretraining(small(text, tmp_path / "run", epochs=None, minutes=1, validations=10))
    valid = [line["step"] for line in metrics(tmp_path / "run") if line["kind"] == "valid"]
    assert valid == [0, 5, 10]


def test_time_that_passed_before_a_crash_counts(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the time in which nothing ran does not."""

    class Clock:
        perf_counter = staticmethod(lambda: 0.0)
        now = 0.0

        @classmethod
        def monotonic(cls) -> float:
            cls.now += 6
            return cls.now

    given: dict[str, Any] = {"epochs": None, "minutes": 1, "checkpoint_steps": 1, "validations": 2}
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", Clock)
        broken_off(small(text, tmp_path / "run", **given), 5)
        Clock.now += 1e6
        run = run_pretraining(small(text, tmp_path / "run", resume=True, **given))
    assert run is not None
    assert run.details["steps"] == 10


def test_shares_of_a_budget(text: Path, tmp_path: Path) -> None:
    run_pretraining(small(text, tmp_path / "run", objective="causal:0.75,masked:0.25", epochs=None, tokens=2048))
    lines = metrics(tmp_path / "run")
    assert max(line["tokens"] for line in lines if line["objective"] == "causal") == 1536
    assert max(line["tokens"] for line in lines if line["objective"] == "masked") == 2048
