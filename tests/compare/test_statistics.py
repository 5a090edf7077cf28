"""Against scipy, scikit-learn, and values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.compare.statistics import (
    accuracy_over_documents,
    macro_f1,
    macro_f1_over_documents,
    mcnemar,
    over_seeds,
    paired_bootstrap,
    spread_of,
)


def test_the_interval_over_seeds_is_students() -> None:
    # t(0.975; 4) = 2.776445, sd of 1..5 = 1.581139, √5 = 2.236068
    interval = over_seeds([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((3 - 1.963243, 3 + 1.963243), abs=1e-5)
    assert spread_of([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1.5811388)
    assert over_seeds([0.8]) is None


@pytest.mark.parametrize(("one", "two"), [(0, 0), (1, 0), (5, 15), (15, 5), (10, 10), (40, 100), (600, 500)])
def test_mcnemar_is_the_exact_binomial_test(one: int, two: int) -> None:
    from scipy.stats import binomtest

    agree = [True] * 30 + [False] * 7
    first = np.array([True] * one + [False] * two + agree)
    second = np.array([False] * one + [True] * two + agree)
    found = mcnemar(first, second)
    assert (found.only_first, found.only_second) == (one, two)
    assert found.p == pytest.approx(binomtest(one, one + two, 0.5).pvalue if one + two else 1.0, rel=1e-9)


def test_the_bootstrap_of_an_accuracy_is_as_wide_as_the_normal_interval() -> None:
    right = np.zeros((1, 400), bool)
    right[0, :320] = True
    interval = accuracy_over_documents(right)
    reach = 1.96 * np.sqrt(0.8 * 0.2 / 400)
    assert (interval.low, interval.high) == pytest.approx((0.8 - reach, 0.8 + reach), abs=0.006)


def test_blocks_of_draws_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.random.default_rng(1).random((3, 50)) < 0.7
    whole = accuracy_over_documents(right)
    monkeypatch.setattr("rehead.compare.statistics.BLOCK", 170)
    assert accuracy_over_documents(right) == whole


def test_macro_f1_over_documents_against_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    chance = np.random.default_rng(0)
    truth = chance.integers(3, size=90)
    answers = np.where(chance.random((2, 90)) < 0.6, truth, chance.integers(3, size=(2, 90)))
    table = np.eye(3, dtype=bool)
    interval = macro_f1_over_documents(table[truth], table[answers], seed=5, draws=300)
    drawn = np.random.default_rng(5).integers(90, size=(300, 90))
    found = [np.mean([f1_score(truth[rows], each[rows], average="macro") for each in answers]) for rows in drawn]
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(found, (0.025, 0.975))))


def test_macro_f1_leaves_out_a_class_that_nobody_has_or_names() -> None:
    from rehead.finetune import measures

    truth, answer = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])
    table = np.eye(4, dtype=bool)
    assert macro_f1(table[truth], table[answer]) == pytest.approx((2 / 4 + 4 / 6) / 2)
    assert macro_f1(table[truth], table[answer]) == pytest.approx(measures.macro_f1(truth, answer, 4))


def test_the_paired_bootstrap_sees_a_difference_and_sees_none() -> None:
    chance = np.random.default_rng(2)
    first = chance.random((3, 500)) < 0.7
    better = first | (chance.random((3, 500)) < 0.3)
    found = paired_bootstrap(first, better)
    assert found.mean == pytest.approx(better.mean() - first.mean())
    assert found.interval.low > 0
    assert found.p == pytest.approx(2 / 2001)  # as small as so many draws can make it
    back = paired_bootstrap(better, first)
    assert (back.mean, back.p) == (-found.mean, found.p)
    same = paired_bootstrap(first, chance.random((3, 500)) < 0.7)
    assert same.interval.low < 0 < same.interval.high
    assert same.p > 0.05
    assert paired_bootstrap(first, first).p == 1


def test_pairing_is_sharper_than_two_intervals() -> None:
    chance = np.random.default_rng(3)
    first = chance.random((1, 1000)) < 0.8
    second = first.copy()
    second[0, np.flatnonzero(~first[0])[:15]] = True  # 1.5 points better, on nothing worse
    one, two = accuracy_over_documents(first), accuracy_over_documents(second)
    assert one.high > two.low
    assert paired_bootstrap(first, second).p < 0.01
