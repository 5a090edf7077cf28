"""fastText as a baseline. Most of it needs the package, and is skipped without it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rehead.compare import fasttext_baseline
from rehead.compare.baselines import fit_baseline
from rehead.compare.options import CompareOptions, check_compare
from rehead.errors import UserError
from rehead.finetune.metrics import DecisionRule, predicted_labels
from rehead.finetune.targets import targets
from tests.compare.conftest import reviews, tagged


def installed() -> None:
    pytest.importorskip("fasttext", reason="needs rehead[fasttext]")


def test_it_is_not_among_the_default_methods() -> None:
    options = CompareOptions(labelled=["x.csv"], base=["base"], out=Path("out"))
    assert "tfidf_chars" in options.methods
    assert "fasttext" not in options.methods


def test_without_the_package_a_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fasttext", None)
    options = CompareOptions(labelled=["x.csv"], base=["base"], out=Path("out"), methods=("tfidf", "fasttext"))
    with pytest.raises(UserError, match=r"rehead\[fasttext\]"):
        check_compare(options)
    train = reviews(20)
    with pytest.raises(UserError, match=r"rehead\[fasttext\]"):
        fit_baseline("fasttext", train, train.names)


def test_words_are_those_of_the_other_baselines() -> None:
    assert fasttext_baseline._words("Très bien!! 好電影\n__label__1") == "très bien ! ! 好 電 影 label 1"


@pytest.mark.parametrize("kinds", [("bad", "good"), ("bad", "good", "odd")])
def test_it_learns(kinds: tuple[str, ...]) -> None:
    installed()
    train, test = reviews(200, kinds=kinds), reviews(150, seed=9, kinds=kinds)
    found = fit_baseline("fasttext", train, train.names)
    probabilities = found.predict(test.texts)
    truth = targets(test, test.names, multilabel=False)
    assert probabilities.sum(1) == pytest.approx(np.ones(150), abs=1e-5)
    assert (probabilities.argmax(1) == truth).mean() > 0.8
    assert "epochs" in found.notes[0]
    assert found.rule == DecisionRule()


def test_its_probabilities_are_the_packages_own() -> None:
    installed()
    train = reviews(40)
    predict = fasttext_baseline._train(train, train.names, fasttext_baseline.Settings(5), seed=3)
    one, two = (predict([text])[0] for text in train.texts[:2])
    assert np.array_equal(predict(train.texts)[:2], np.stack([one, two]))


def test_the_same_labels_give_the_same_model() -> None:
    installed()
    train, test = reviews(60), reviews(20, seed=1)
    one, two = (fit_baseline("fasttext", train, train.names, seed=5).predict(test.texts) for _ in range(2))
    assert np.array_equal(one, two)


def test_several_labels_none_and_a_class_without_examples() -> None:
    installed()
    train, test = tagged(300), tagged(80, seed=1)
    found = fit_baseline("fasttext", train, [*train.names, "unseen"])
    probabilities = found.predict(test.texts)
    truth = targets(test, test.names, multilabel=True) > 0
    assert probabilities.shape == (80, 3)
    assert probabilities[:, 2].max() == 0
    predicted = predicted_labels(probabilities, multilabel=True, rule=found.rule)
    assert (predicted[:, :2] == truth).mean() > 0.85


def test_a_class_with_one_example() -> None:
    installed()
    train = reviews(12)
    train.labels[1:] = [("bad",)] * 11
    train.labels[0] = ("good",)
    found = fit_baseline("fasttext", train, train.names)
    assert "one example" in found.notes[0]
    assert found.predict([]).shape == (0, 2)
