"""`TextClassifier` without a base: one is pretrained first, on the texts that are given."""

from __future__ import annotations

import json
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

import rehead.finetune.own_base
from rehead import TextClassifier
from rehead.cli import main
from rehead.runs.run import load
from rehead.runs.scoring import class_probabilities
from rehead.text.combined import CombinedTexts
from rehead.training.stopping import Stopped
from tests.finetune.sets import reviews
from tests.finetune.test_command import write
from tests.finetune.test_own_base import MORE, TRAIN, fail

TEXTS, LABELS = TRAIN.texts, [label for (label,) in TRAIN.labels]
NEW, TRUE = reviews(20, 5).texts, [label for (label,) in reviews(20, 5).labels]

pytestmark = pytest.mark.usefixtures("quick_search", "small_own_bases")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write(tmp_path / "train.csv", TRAIN)
    return tmp_path


def test_texts_and_labels_are_enough(files: Path) -> None:
    state = torch.get_rng_state()
    made = TextClassifier().fit(TEXTS, LABELS)
    assert torch.equal(torch.get_rng_state(), state)
    assert made.score(NEW, TRUE) > 0.8
    assert made.base is None
    assert made.base_.details["text"]["documents"] == 60
    assert made.run_.details["pretraining"] == made.base_.details
    assert "1,000,000 tokens" in made.notes_[0]
    np.testing.assert_array_equal(TextClassifier().fit(TEXTS, LABELS).predict_proba(NEW), made.predict_proba(NEW))
    other = TextClassifier(seed=1).fit(TEXTS, LABELS)
    assert not np.array_equal(other.predict_proba(NEW), made.predict_proba(NEW))
    words = ["finetune", str(files / "train.csv"), "--out", str(files / "run"), "--quiet"]
    assert main(words) == 0
    np.testing.assert_allclose(class_probabilities(load(files / "run"), NEW), made.predict_proba(NEW), atol=1e-6)


def test_the_base_can_be_used_again() -> None:
    first = TextClassifier().fit(TEXTS, LABELS)
    again = TextClassifier(first.base_).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(again.predict_proba(NEW), first.predict_proba(NEW))
    assert not hasattr(again, "base_")
    assert not hasattr(first.set_params(base=first.base_).fit(TEXTS, LABELS), "base_")


def test_unlabelled_texts_are_pretrained_on(files: Path) -> None:
    plain = TextClassifier(freeze="base").fit(TEXTS, LABELS)
    made = TextClassifier(freeze="base", unlabelled=[*MORE, TEXTS[0]]).fit(TEXTS, LABELS)
    assert made.base_.details["text"]["documents"] == 160
    assert not np.array_equal(made.predict_proba(NEW), plain.predict_proba(NEW))
    (files / "more.txt").write_text("\n".join([*MORE, "", TEXTS[0]]), encoding="utf-8")
    file = TextClassifier(freeze="base", unlabelled=files / "more.txt").fit(TEXTS, LABELS)
    np.testing.assert_array_equal(file.predict_proba(NEW), made.predict_proba(NEW))
    recipe = TextClassifier(unlabelled=MORE).fit(TEXTS, LABELS)
    assert any(step["name"] == "self-training" for step in recipe.run_.details["candidates"])


def test_scikit_learn_fits_it_on_each_fold_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[set[str]] = []
    plain = rehead.finetune.own_base.pretrain_in_memory

    def pretrain(options: Any, texts: CombinedTexts, **more: Any) -> Any:
        read.append({each.text for each in texts})
        return plain(options, texts, **more)

    monkeypatch.setattr("rehead.finetune.own_base.pretrain_in_memory", pretrain)
    made = TextClassifier(freeze="base")
    assert cross_val_score(made, TEXTS, LABELS, cv=3).mean() > 0.7
    assert [len(each) for each in read] == [40, 40, 40]
    assert set().union(*read) == set(TEXTS)
    search = GridSearchCV(made, {"class_weight": [None, "balanced"]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_estimator_.base_.details["text"]["documents"] == 60
    assert not hasattr(made, "base_")


def test_cloned_pickled_saved_and_loaded(tmp_path: Path) -> None:
    made = TextClassifier(freeze="base").fit(TEXTS, LABELS)
    expected = made.predict_proba(NEW)
    other = clone(made)
    assert not hasattr(other, "base_")
    np.testing.assert_array_equal(other.fit(TEXTS, LABELS).predict_proba(NEW), expected)
    again = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(again.predict_proba(NEW), expected)
    np.testing.assert_array_equal(
        TextClassifier(again.base_, freeze="base").fit(TEXTS, LABELS).predict_proba(NEW), expected
    )
    made.save(tmp_path / "run")
    loaded = TextClassifier.load(tmp_path / "run")
    assert loaded.get_params() == made.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(NEW), expected)
    np.testing.assert_array_equal(loaded.fit(TEXTS, LABELS).predict_proba(NEW), expected)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["details"]["pretraining"]["seed"] == 0
    TextClassifier(made.base_, freeze="base").fit(TEXTS, LABELS).save(tmp_path / "other")
    assert TextClassifier.load(tmp_path / "other").base == str(tmp_path / "other")


def test_few_and_empty_texts() -> None:
    made = TextClassifier().fit(["good", "bad", "good one", "", "good", "bad"], [1, 0, 1, 0, 1, 0])
    assert made.predict(["good", "bad"]).tolist() == [1, 0]
    with pytest.raises(ValueError, match="no text"):
        TextClassifier().fit(["", " ", "", " "], [1, 0, 1, 0])
    with pytest.raises(ValueError, match=r"labelled text 1: .*d800"):
        TextClassifier().fit(["good", "a\ud800b", "good", "bad"], [1, 0, 1, 0])


def test_ctrl_c_while_pretraining_is_a_keyboard_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rehead.finetune.own_base.pretrain_in_memory", fail(Stopped(signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        TextClassifier().fit(TEXTS, LABELS)
