"""What is given up for want of time, in which order; and that what is planned fits."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rehead.lab.plan import CLASSIFYING, FEWEST_SIZES, OVERHEAD, make_plan, pretraining_minutes, warm_up_share

SIZES = (100, 400, 1600)


def test_with_time_nothing_is_given_up() -> None:
    plan, notes = make_plan([250] * 10, SIZES, 3, 3, 1e9, 5_000)
    assert (plan.seeds, plan.other_seeds, plan.sizes) == (3, 3, SIZES)
    assert notes == []


@pytest.mark.parametrize("seconds", [200, 400, 800, 1600, 3200])
def test_what_is_planned_fits(seconds: float) -> None:
    plan, notes = make_plan([250] * 10, SIZES, 3, 3, seconds, 10_000)
    tokens = plan.documents(3) * min(250, plan.length)
    assert OVERHEAD * tokens / (CLASSIFYING * 10_000) <= seconds
    assert bool(notes) == (plan != make_plan([250], SIZES, 3, 3, 1e9, 10_000)[0])


def test_seeds_of_the_others_are_given_up_first() -> None:
    plans = [make_plan([250] * 10, SIZES, 3, 3, seconds, 10_000)[0] for seconds in (1600, 800, 400)]
    assert plans[0].other_seeds <= plans[0].seeds
    assert all(one.length * one.epochs >= other.length * other.epochs for one, other in pairwise(plans))


def test_without_time_the_least_is_done() -> None:
    plan, notes = make_plan([250] * 10, SIZES, 3, 3, 0.0, 10_000)
    assert (plan.seeds, plan.other_seeds, len(plan.sizes)) == (1, 1, FEWEST_SIZES)
    assert any("labels instead of" in note for note in notes)


def test_documents_are_counted_as_they_are_trained() -> None:
    plan, _ = make_plan([10], SIZES, 2, 3, 1e9, 1.0)
    assert plan.documents(3) == plan.epochs * (2 * 2 * sum(SIZES) + 2 * 3 * 1600)


def test_the_warm_up_takes_seconds() -> None:
    minutes = pretraining_minutes(15, 4)
    assert minutes * 4 < 15
    assert 5 <= 60 * minutes * warm_up_share(minutes) <= 30
    assert warm_up_share(0.1) <= 0.25
