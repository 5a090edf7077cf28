"""What is given up for want of time, in which order; and that what is planned fits."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rehead.lab.plan import (
    CLASSIFYING,
    FEWEST_SIZES,
    LONG_ENOUGH,
    OVERHEAD,
    READING,
    VALIDATED,
    make_plan,
    pretraining_minutes,
    warm_up_share,
)

SIZES, MEASURED = (100, 400, 1600), 2000


def test_with_time_nothing_is_given_up() -> None:
    plan, notes = make_plan([250] * 10, SIZES, 3, 3, MEASURED, 1e9, 5_000)
    assert (plan.seeds, plan.other_seeds, plan.sizes) == (3, 3, SIZES)
    assert notes == []


@pytest.mark.parametrize("seconds", [200, 400, 800, 1600, 3200])
def test_what_is_planned_fits(seconds: float) -> None:
    plan, notes = make_plan([250] * 10, SIZES, 3, 3, MEASURED, seconds, 10_000)
    tokens = plan.documents(3, MEASURED) * min(250, plan.length)
    assert OVERHEAD * tokens / (CLASSIFYING * 10_000) <= seconds
    assert bool(notes) == (plan != make_plan([250], SIZES, 3, 3, MEASURED, 1e9, 10_000)[0])


def test_seeds_of_the_others_are_given_up_first() -> None:
    plans = [make_plan([250] * 10, SIZES, 3, 3, MEASURED, seconds, 10_000)[0] for seconds in range(6000, 100, -100)]
    assert all(plan.other_seeds in (1, plan.seeds) for plan in plans)
    assert next(plan for plan in plans if plan != plans[0]).other_seeds == 1
    assert [plan.seeds for plan in plans] == sorted((plan.seeds for plan in plans), reverse=True)
    assert all(plan.length >= LONG_ENOUGH for plan in plans if plan.seeds > 1)
    for one, other in pairwise(plans):
        assert one.length >= other.length or one.seeds > other.seeds


def test_without_time_the_least_is_done() -> None:
    plan, notes = make_plan([250] * 10, SIZES, 3, 3, MEASURED, 0.0, 10_000)
    assert (plan.seeds, plan.other_seeds, len(plan.sizes)) == (1, 1, FEWEST_SIZES)
    assert any("labels instead of" in note for note in notes)


def test_documents_are_counted_as_they_are_trained_and_read() -> None:
    plan, _ = make_plan([10], SIZES, 2, 3, 0, 1e9, 1.0)
    learnt = plan.epochs * (2 * 2 * sum(SIZES) + 2 * 3 * 1600)
    read = (1 + VALIDATED * (1 + plan.epochs)) * learnt / plan.epochs
    assert plan.documents(3, 0) == pytest.approx(learnt + READING * read)
    trainings = 2 * 2 * len(SIZES) + 2 * 3
    assert plan.documents(3, 50) - plan.documents(3, 0) == pytest.approx(READING * trainings * 50)


def test_epochs_are_given_up_before_what_is_read() -> None:
    plans = [make_plan([250] * 10, SIZES, 1, 3, MEASURED, seconds, 10_000)[0] for seconds in range(1600, 100, -50)]
    shorter = [plan for plan in plans if plan.length < plans[0].length]
    assert shorter
    assert next(plan for plan in plans if plan.epochs < plans[0].epochs).length == plans[0].length


def test_the_warm_up_takes_seconds() -> None:
    minutes = pretraining_minutes(15, 4)
    assert minutes * 4 < 15
    assert 5 <= 60 * minutes * warm_up_share(minutes) <= 30
    assert warm_up_share(0.1) <= 0.25
