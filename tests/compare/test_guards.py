"""Leaks are found, answers stay sealed, shuffled labels tell nothing."""

from __future__ import annotations

import ast
from collections import Counter
from operator import eq
from pathlib import Path

import numpy as np
import pytest

import rehead
from rehead.compare.guards import SealedTestSet, control_limit, find_leaks, pretraining_text, shuffle_labels
from rehead.text.documents import ReadOptions
from rehead.text.readers import Texts
from tests.compare.conftest import reviews, tagged

LONG = (
    "the captain of the small red boat had never seen such a storm and told the crew to bring the lamps below before "
    "the second mast would break and take the last of the sails with it into the dark water"
)


def test_the_answers_can_be_opened_once() -> None:
    data = reviews(6)
    sealed = SealedTestSet(data)
    assert sealed.texts == data.texts
    assert sealed.opened == 0
    assert sealed.reveal_labels() == data.labels
    assert sealed.opened == 1
    with pytest.raises(RuntimeError, match="already been revealed"):
        sealed.reveal_labels()


def test_one_place_in_the_program_opens_them() -> None:
    """`reveal_labels` is called by `scoring.score`, and what is sealed is named nowhere else."""
    found = []
    for path in Path(rehead.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr in ("reveal_labels", "_sealed_labels"):
                    found.append((path.name, function.name, node.attr))  # noqa: PERF401
    assert sorted(set(found)) == [
        ("guards.py", "__init__", "_sealed_labels"),
        ("guards.py", "reveal_labels", "_sealed_labels"),
        ("scoring.py", "score", "reveal_labels"),
    ]


def test_leaks_are_found_exact_and_near_in_every_part() -> None:
    near = LONG.replace("red", "blue").replace("lamps", "ropes")
    filling = [f"{text} {number}" for number, text in enumerate(reviews(8).texts)]
    test = [filling[0], LONG, filling[1], "short one"]
    train = [filling[2], near, "Short ONE!"]
    valid = [filling[3], filling[4]]
    first, second = [filling[5], LONG.upper()], [filling[6], filling[1], near]
    leaks = find_leaks([train, valid, first, iter(second), []], test)
    assert [each.in_test.tolist() for each in leaks] == [
        [False, True, True],
        [False, False],
        [False, True],
        [False, True, True],
        [],
    ]
    assert [each.in_text.tolist() for each in leaks] == [
        [False, True, False, True],
        [False, False, False, False],
        [False, True, False, False],
        [False, True, True, False],
        [False, False, False, False],
    ]


def test_copies_inside_one_part_are_no_leak() -> None:
    (leaks,) = find_leaks([[LONG, LONG]], ["something else entirely", "and another thing"])
    assert leaks.in_test.tolist() == [False, False]


def test_the_pretraining_text_is_found_again_or_it_is_said_why_not(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("one\n\ntwo\n", encoding="utf-8")
    options = {"texts": [str(path)], "skip_empty": True, "documents": None, "preset": "bag"}
    fingerprint = Texts([str(path)], ReadOptions(skip_empty=True)).fingerprint()
    details = {"options": options, "text": {"fingerprint": fingerprint}}
    found = pretraining_text("run", details)
    assert found.texts is not None
    assert [each.text for each in found.texts] == ["one", "two"]
    path.write_text("one\n\nthree\n", encoding="utf-8")
    assert pretraining_text("run", details).why.endswith("has changed since")
    path.unlink()
    assert str(path) in pretraining_text("run", details).why
    assert "standard input" in pretraining_text("run", {**details, "options": {**options, "texts": ["-"]}}).why
    assert "does not record" in pretraining_text("run", {}).why


def test_shuffled_labels_have_nothing_to_do_with_the_true_ones() -> None:
    data = reviews(90, kinds=("bad", "good", "odd"))
    mixed = shuffle_labels(data, seed=3)
    assert Counter(mixed.labels) == Counter(data.labels)
    assert mixed.texts == data.texts
    table = Counter(zip(data.labels, mixed.labels, strict=True))
    assert set(table.values()) == {10}  # every class gets the same mix
    assert shuffle_labels(data, seed=4).labels != mixed.labels
    assert shuffle_labels(data, seed=3).labels == mixed.labels


def test_what_is_left_over_goes_to_no_class_in_particular() -> None:
    data = reviews(50)  # 25 of each: one class gets 13 of a label, the other 12
    own = [sum(map(eq, data.labels, shuffle_labels(data, seed).labels)) for seed in range(40)]
    assert set(own) == {24, 26}
    assert 10 <= own.count(26) <= 30


def test_shuffling_uneven_classes_and_several_labels() -> None:
    data = reviews(100)
    data.labels = [("good",)] * 80 + [("bad",)] * 20
    table = Counter(zip(data.labels, shuffle_labels(data, 0).labels, strict=True))
    assert table[("good",), ("bad",)] == pytest.approx(16, abs=1)
    multilabel = tagged(40)
    assert Counter(shuffle_labels(multilabel, 0).labels) == Counter(multilabel.labels)


def test_the_limit_of_a_control() -> None:
    half, even = np.array([0.5, 0.5]), np.array([1000, 1000])
    assert control_limit(2, even, half, 1) == pytest.approx(0.5 + 3 * np.sqrt(0.065**2 + 0.25 / 2000))
    assert control_limit(2, even, half, 4) < control_limit(2, even, half, 1)
    assert control_limit(2, np.array([1800, 200]), np.array([0.9, 0.1]), 1) < 0.71  # uneven classes, and it can fail
    assert control_limit(2, np.array([8, 2]), half, 1) > control_limit(2, even, half, 1)
    assert control_limit(20, np.full(20, 100), np.full(20, 0.05), 1) < 0.12
    assert control_limit(2, np.array([1, 1]), half, 1) == 1.0
