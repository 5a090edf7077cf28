"""Parts of a labelled set: in proportion, apart, the same every time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from rehead.errors import UserError
from rehead.finetune.splits import first_copies, folds, max_folds, nested_subsets, split
from rehead.finetune.targets import subset, targets
from rehead.text.documents import LabelledData
from tests.finetune.sets import multilabel, reviews


def labelled(counts: dict[str, int]) -> LabelledData:
    labels = [name for name, count in counts.items() for _ in range(count)]
    texts = [f"text {place}" for place in range(len(labels))]
    sources = [("x.csv", place) for place in range(len(labels))]
    return LabelledData(texts, [(each,) for each in labels], sorted(counts), False, sources)


def count(data: LabelledData, which: np.ndarray) -> Counter[str]:
    return Counter(name for place in which for name in data.labels[place])


def test_a_split_keeps_the_proportions() -> None:
    data = labelled({"a": 80, "b": 20, "c": 2, "d": 1})
    kept, aside = split(data, 0.25, 0)
    assert sorted([*kept, *aside]) == list(range(len(data)))
    assert count(data, aside) == {"a": 20, "b": 5, "c": 1}
    again = split(data, 0.25, 0)
    assert np.array_equal(again[1], aside)
    assert not np.array_equal(split(data, 0.25, 1)[1], aside)


def test_folds_keep_the_proportions() -> None:
    data = labelled({"a": 50, "b": 25, "c": 5})
    found = folds(data, 5, 0)
    assert sorted(np.concatenate([inside for _, inside in found])) == list(range(80))
    for outside, inside in found:
        assert count(data, inside) == {"a": 10, "b": 5, "c": 1}
        assert sorted([*outside, *inside]) == list(range(80))


def test_copies_stay_on_one_side() -> None:
    data = labelled({"a": 40, "b": 40})
    for place in range(0, 40, 4):  # in groups of four, of both classes
        data.texts[place + 1] = data.texts[place].upper() + "!"
        data.texts[place + 40] = data.texts[place]
    first = first_copies(data.texts)
    assert first[1] == first[40] == 0
    for outside, inside in [split(data, 0.3, 3), *folds(data, 4, 3)]:
        assert not set(first[outside]) & set(first[inside])
        assert len(inside)


def test_blank_texts_are_no_copies() -> None:
    assert first_copies(["", " ", "a", "A.", ""]).tolist() == [0, 1, 2, 2, 4]


def test_a_heap_of_copies_does_not_empty_a_class() -> None:
    data = labelled({"a": 30, "b": 30})
    data.texts[:25] = ["the same"] * 25
    for seed in range(5):
        kept, aside = split(data, 0.2, seed)
        assert 1 <= count(data, aside)["a"] <= 6
        assert count(data, kept)["a"] >= 24


def test_draws_are_nested_and_in_proportion() -> None:
    data = labelled({"a": 700, "b": 280, "c": 20})
    found = nested_subsets(data, [10, 100, 500], 0)
    assert {size: len(which) for size, which in found.items()} == {10: 10, 100: 100, 500: 500}
    assert set(found[10]) <= set(found[100]) <= set(found[500])
    assert min(count(data, found[10]).values()) == 2
    assert count(data, found[500])["a"] == pytest.approx(350, abs=3)
    assert not np.array_equal(nested_subsets(data, [100], 1)[100], found[100])
    assert Counter(count(reviews(200), nested_subsets(reviews(200), [20], 5)[20]).values()) == {10: 2}


def test_several_labels() -> None:
    data = multilabel(200)
    totals = count(data, np.arange(200))
    for outside, inside in folds(data, 5, 0):
        assert set(outside).isdisjoint(inside)
        for name, total in count(data, inside).items():
            assert total == pytest.approx(totals[name] / 5, rel=0.4)
    kept, aside = split(data, 0.2, 0)
    assert len(aside) == pytest.approx(40, abs=3)
    assert len(kept) + len(aside) == 200


def test_what_cannot_be_cut_is_refused() -> None:
    data = labelled({"a": 3, "b": 3})
    with pytest.raises(UserError, match="7 folds"):
        folds(data, 7)
    with pytest.raises(UserError, match=r"10 .* 6 examples"):
        nested_subsets(data, [10])
    data.texts = ["x", "x", "x", "y", "y", "y"]
    with pytest.raises(UserError, match="too few different texts"):
        folds(data, 3)
    assert max_folds(data, 5) == 1
    assert max_folds(labelled({"a": 9, "b": 3}), 5) == 3
    assert max_folds(labelled({"a": 9, "b": 1}), 5) == 1
    assert max_folds(labelled({"a": 9, "b": 4, "c": 1}), 5) == 4


def test_labels_as_numbers() -> None:
    data = reviews(4)
    assert targets(data, ["bad", "good"], multilabel=False).tolist() == [0, 1, 0, 1]
    with pytest.raises(UserError, match=r"reviews.csv line 3: the label 'good' .*\('bad', 'fair'\)"):
        targets(data, ["bad", "fair"], multilabel=False)
    assert targets(data, ["good", "bad"], multilabel=True).tolist() == [[0, 1], [1, 0], [0, 1], [1, 0]]
    tags = LabelledData(["x"], [("a", "b")], ["a", "b"], True, [("t.jsonl", 1)])
    with pytest.raises(UserError, match="2 labels"):
        targets(tags, ["a", "b"], multilabel=False)
    part = subset(data, [2, 1])
    assert part.texts == [data.texts[2], data.texts[1]]
    assert part.sources == [("reviews.csv", 4), ("reviews.csv", 3)]
