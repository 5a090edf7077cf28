"""What every way of fitting has in common: warnings about the data, and about what comes out."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.errors import UserError
from rehead.finetune.fitted import by_chance, collapsed, describe_data
from rehead.finetune.network import train_network
from rehead.finetune.options import FitOptions
from rehead.finetune.targets import subset
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import reviews


def test_classes_with_few_examples_are_named() -> None:
    lonely = subset(reviews(30), [*range(0, 30, 2), 1])
    (note,) = describe_data(lonely)
    assert "'good' 1" in note
    assert "'bad'" not in note
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
