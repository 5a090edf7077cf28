"""Against scipy, scikit-learn, and values worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rehead.compare.statistics import (
    accuracy_over_documents,
    f1,
    f1_over_documents,
    mcnemar,
    over_seeds,
    paired_bootstrap,
    permutation_test,
    standard_deviation,
)


def test_the_interval_over_seeds_is_students() -> None:
    # t(0.975; 4) = 2.776445, sd of 1..5 = 1.581139, √5 = 2.236068
    interval = over_seeds([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((3 - 1.963243, 3 + 1.963243), abs=1e-5)
    assert standard_deviation([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1.5811388)
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
    interval = f1_over_documents(table[truth], table[answers], "macro", seed=5, resamples=300)
    drawn = np.random.default_rng(5).integers(90, size=(300, 90))
    found = [np.mean([f1_score(truth[rows], each[rows], average="macro") for each in answers]) for rows in drawn]
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(found, (0.025, 0.975))))


def test_macro_f1_leaves_out_a_class_that_nobody_has_or_names() -> None:
    from rehead.finetune import metrics

    truth, answer = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])
    table = np.eye(4, dtype=bool)
    assert f1(table[truth], table[answer], "macro") == pytest.approx((2 / 4 + 4 / 6) / 2)
    assert f1(table[truth], table[answer], "macro") == pytest.approx(metrics.macro_f1(truth, answer, 4))
    assert f1(table[truth], table[answer], "micro") == pytest.approx(3 / 5)  # the accuracy


def test_the_paired_bootstrap_sees_a_difference_and_sees_none() -> None:
    chance = np.random.default_rng(2)
    first = chance.random((3, 500)) < 0.7
    better = first | (chance.random((3, 500)) < 0.3)
    found = paired_bootstrap(first, better)
    assert found.mean == pytest.approx(better.mean() - first.mean())
    assert found.interval.low > 0
    assert paired_bootstrap(better, first).mean == -found.mean
    assert permutation_test(first, better) == permutation_test(better, first) == 1 / 2001  # the least that there is
    other = chance.random((3, 500)) < 0.7
    same = paired_bootstrap(first, other)
    assert same.interval.low < 0 < same.interval.high
    assert permutation_test(first, other) > 0.05
    assert permutation_test(first, first) == 1


def test_for_one_seed_the_permutation_test_is_mcnemars() -> None:
    for one, two in ((5, 0), (3, 9), (30, 50), (20, 22)):
        first = np.arange(200)[None] < one
        second = (np.arange(200)[None] >= one) & (np.arange(200)[None] < one + two)
        found = permutation_test(first, second, resamples=20_000)
        assert found == pytest.approx(mcnemar(first[0], second[0]).p, abs=0.01)


def answers_of_two(chance: np.random.Generator, seeds: int, documents: int, gap: float) -> tuple[Any, Any]:
    """Two methods with strengths and weaknesses of their own, and models that differ by seed. (S, N) right or not."""
    hard = chance.normal(2, 1.5, documents)
    means = hard + chance.normal(0, 0.5, (2, 1, documents))
    means[1] += gap
    first, second = means + chance.normal(0, 0.5, (2, seeds, documents)) > 0
    return first, second


def shown(seeds: int, documents: int, gap: float, times: int) -> float:
    """Share of such comparisons in which a difference is shown at 5 %."""
    chance = np.random.default_rng(8)
    drawn = (answers_of_two(chance, seeds, documents, gap) for _ in range(times))
    return float(np.mean([permutation_test(*each, resamples=400) < 0.05 for each in drawn]))


@pytest.mark.parametrize(("seeds", "documents"), [(1, 400), (3, 60), (3, 400), (10, 400)])
def test_no_difference_is_taken_for_one_in_a_twentieth_of_cases(seeds: int, documents: int) -> None:
    assert shown(seeds, documents, 0.0, 300) < 0.085  # three standard errors above 5 %


def test_more_seeds_show_a_difference_more_often() -> None:
    few, some, many = (shown(seeds, 400, 0.25, 100) for seeds in (1, 3, 10))
    assert few < some < many
    assert many > 0.8


def test_pairing_is_sharper_than_two_intervals() -> None:
    chance = np.random.default_rng(3)
    first = chance.random((1, 1000)) < 0.8
    second = first.copy()
    second[0, np.flatnonzero(~first[0])[:15]] = True  # 1.5 points better, on nothing worse
    one, two = accuracy_over_documents(first), accuracy_over_documents(second)
    assert one.high > two.low
    assert permutation_test(first, second) < 0.01
