"""The few-label recipe: every step is judged on left-out examples, and what is kept is what comes out."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.errors import UserError
from rehead.finetune import probe, recipe
from rehead.finetune.fit import Fitted
from rehead.finetune.logistic import losses_of
from rehead.finetune.options import FitOptions
from rehead.finetune.probe import find_probe, fit_probe
from rehead.finetune.recipe import better, calibrated, fit_recipe, see_unlabelled
from rehead.finetune.targets import subset, targets
from rehead.model.config import Classifier
from rehead.model.reading import class_logits, class_probabilities
from rehead.runs.run import Run, load, save
from rehead.text.documents import LabelledData
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import misleading, multilabel, reviews
from tests.finetune.test_probe import right


def mixed(data: LabelledData, seed: int = 1) -> LabelledData:
    order = np.random.RandomState(seed).permutation(len(data))
    return dataclasses.replace(data, labels=[data.labels[each] for each in order])


def names_of(fitted: Fitted) -> list[str]:
    return [each["name"] for each in fitted.run.details["recipe"]]


def test_noise_is_not_better_and_a_gain_is() -> None:
    chance = np.random.RandomState(0)
    truth = chance.randint(0, 3, 400)
    old = np.where(truth[:, None] == np.arange(3), 1.0, 0.0) + chance.randn(400, 3)
    assert not better(old, old, truth)
    assert not any(better(old + 0.5 * chance.randn(400, 3), old, truth) for _ in range(20))
    gain = old + 0.5 * (truth[:, None] == np.arange(3))
    assert better(gain, old, truth)
    assert not better(old, gain, truth)
    assert not better(3 * old, old, truth)  # surer, but no wiser: both are calibrated first
    assert not better(old / 3, old, truth)
    part = gain.copy()
    part[100:] = np.nan  # those that were left out nowhere do not count
    assert better(part, old, truth)
    part[:100] = old[:100] - 0.5 * (truth[:100, None] == np.arange(3))
    assert not better(part, old, truth)


def test_a_step_that_changes_nothing_but_luck_is_seldom_kept() -> None:
    """What is kept must gain by half a standard error, which luck alone gives about three times in ten."""
    kept = []
    for seed in range(60):
        chance = np.random.RandomState(seed)
        truth = chance.randint(0, 2, 200)
        same = np.where(truth[:, None] == np.arange(2), 1.0, 0.0)
        kept.append(better(same + chance.randn(200, 2), same + chance.randn(200, 2), truth))
    assert 0 < np.mean(kept) < 0.45


def test_calibrated_losses_are_the_lowest_of_any_temperature() -> None:
    chance = np.random.RandomState(0)
    truth = chance.randint(0, 2, 300)
    logits = 4 * (np.where(truth[:, None] == np.arange(2), 1.0, 0.0) + chance.randn(300, 2))
    tried = min(losses_of(logits / heat, truth).mean() for heat in np.linspace(0.5, 12, 200))
    assert calibrated(logits, truth).mean() == pytest.approx(tried, abs=2e-3)
    table = np.stack([truth, 1 - truth], 1).astype(np.float32)
    assert calibrated(logits * [-1, 1] * -1, table).shape == (300,)


@pytest.mark.parametrize("count", [20, 40])
@pytest.mark.parametrize("names", [("bad", "good"), ("bad", "good", "so")], ids=len)
def test_from_twenty_labels_on(make_base: MakeBase, count: int, names: tuple[str, ...]) -> None:
    base = make_base()
    before = copy.deepcopy(base.model.state_dict())
    fitted = fit_recipe(reviews(count, names=names), None, base=base)
    assert right(fitted.run, reviews(60, 1, names=names)) > (0.75 if len(names) == 2 else 0.55)
    assert names_of(fitted) == ["frozen base, linear head"]
    assert fitted.run.details["method"] == "recipe"
    assert fitted.run.details["freeze"] == "base"
    assert any("cross-validation on" in note for note in fitted.notes)
    assert fitted.run.details["calibration"]["documents"] == count
    for state in (base.model.state_dict(), fitted.run.model.state_dict()):
        for name, tensor in before.items():
            assert torch.equal(state[name], tensor), name


def test_without_more_steps_it_is_the_probe_with_words(make_base: MakeBase) -> None:
    base, data = make_base(), reviews(40)
    one, two = fit_recipe(data, None, base=base).run, fit_probe(data, None, base=base, words=True).run
    np.testing.assert_array_equal(class_logits(one, None, data.texts), class_logits(two, None, data.texts))


def test_several_labels(make_base: MakeBase) -> None:
    data, new = multilabel(60), multilabel(60, 1)
    fitted = fit_recipe(data, None, base=make_base(), unlabelled=new.texts)
    assert names_of(fitted) == ["frozen base, linear head", "self-training"]
    guess = class_probabilities(fitted.run, new.texts) >= fitted.run.details["thresholds"]
    assert (guess == targets(new, new.names, multilabel=True)).mean() > 0.8
    step = [each for each in fitted.run.details["recipe"] if each["kept"]][-1]
    assert fitted.valid is not None
    assert step["accuracy"] == pytest.approx(fitted.valid.accuracy)  # with the thresholds that the run has
    assert any(
        "left-out examples have all labels right, with thresholds chosen for F1" in note for note in fitted.notes
    )


def test_a_class_with_one_text_and_one_with_many(make_base: MakeBase) -> None:
    lonely = subset(reviews(60), [*range(0, 60, 2), 1])
    fitted = fit_recipe(lonely, None, base=make_base(), unlabelled=reviews(20, 3).texts)
    assert fitted.run.details["recipe"] == []
    assert "a class has one text only: nothing could be cross-validated" in fitted.notes
    assert fitted.valid is None
    assert class_probabilities(fitted.run, lonely.texts)[:, 1].argmax() == 30
    uneven = subset(reviews(100), [each for each in range(100) if each % 2 == 0 or each < 20])
    fitted = fit_recipe(uneven, None, base=make_base(), options=FitOptions(class_weight="balanced"))
    assert right(fitted.run, reviews(60, 1)) > 0.8


@pytest.mark.parametrize("unlabelled", [False, True])
def test_balanced_classes_find_the_rare_one(make_base: MakeBase, unlabelled: bool) -> None:
    """Words, and words that learn from guesses, must not undo it."""
    data = misleading(reviews(300))
    rare = subset(data, [place for place in range(300) if place % 2 == 0 or place < 32])
    new, more = misleading(reviews(200, 1), 4), misleading(reviews(200, 6), 5).texts
    found = {}
    for kind in (None, "balanced"):
        options = FitOptions(class_weight=kind)
        run = fit_recipe(rare, None, base=make_base(), options=options, unlabelled=more if unlabelled else None).run
        found[kind] = (class_logits(run, None, new.texts).argmax(1)[1::2] == 1).mean()
    assert found[None] < 0.1
    assert found["balanced"] > 0.4


def test_what_the_rare_class_gains_counts_where_classes_are_balanced() -> None:
    """Ten of a hundred gain much, the others lose a little."""
    truth = (np.arange(100) < 10).astype(np.int64)
    old = np.random.RandomState(0).randn(100, 2)
    new = old.copy()
    new[np.arange(100), truth] += np.where(truth == 1, 1.5, -0.6)
    assert not better(new, old, truth)
    assert better(new, old, truth, balanced=True)
    assert calibrated(old, truth, balanced=True).mean() < np.log(2) + 0.1


def test_one_class_is_refused(make_base: MakeBase) -> None:
    with pytest.raises(UserError, match="all 10 examples have the same label"):
        fit_recipe(subset(reviews(20), range(0, 20, 2)), None, base=make_base())


def test_mixed_labels_give_chance(make_base: MakeBase) -> None:
    fitted = fit_recipe(mixed(reviews(100)), None, base=make_base(), unlabelled=reviews(60, 4).texts)
    assert fitted.valid is not None
    assert abs(fitted.valid.accuracy - 0.5) < 0.16
    assert abs(right(fitted.run, reviews(200, 1)) - 0.5) < 0.16
    assert abs(class_probabilities(fitted.run, reviews(60, 1).texts) - 0.5).mean() < 0.15  # and it knows


def test_self_training_is_kept_only_if_it_helps(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    base, data, more = make_base(), reviews(40), reviews(80, 4).texts
    plain = class_logits(fit_recipe(data, None, base=base).run, None, data.texts)
    for helps in (False, True):
        monkeypatch.setattr(recipe, "better", lambda *_, helps=helps, **__: helps)
        fitted = fit_recipe(data, None, base=base, unlabelled=more)
        _, step = fitted.run.details["recipe"]
        assert step["name"] == "self-training"
        assert step["kept"] is helps
        said = next(note for note in fitted.notes if note.startswith("self-training: "))
        assert said.endswith(": kept" if helps else ": not kept")
        assert np.array_equal(class_logits(fitted.run, None, data.texts), plain) is not helps
    assert names_of(fit_recipe(data, None, base=base, unlabelled=[])) == ["frozen base, linear head"]


def test_unlabelled_text_is_read_once_for_many(make_base: MakeBase) -> None:
    base, data, more = make_base(), reviews(40), reviews(80, 4).texts
    seen = see_unlabelled(base, more)
    found = [class_logits(fit_recipe(data, None, base=base, unlabelled=each).run, None, more) for each in (more, seen)]
    np.testing.assert_array_equal(*found)
    assert len(seen.seen) == 1
    assert len(see_unlabelled(base, more, most=7).ids) == 7
    with pytest.raises(UserError, match="needs a run with a tokenizer"):
        see_unlabelled(Run(base.model), more)


def test_unlabelled_text_is_for_several_labels_too(make_base: MakeBase) -> None:
    fitted = fit_recipe(multilabel(40), None, base=make_base(), unlabelled=multilabel(80, 4).texts)
    assert names_of(fitted) == ["frozen base, linear head", "self-training"]
    step = fitted.run.details["recipe"][1]
    assert step["kept"] == (step["loss"] < step["loss_before"])
    new = multilabel(60, 1)
    guess = class_logits(fitted.run, None, new.texts) > 0
    assert (guess == targets(new, new.names, multilabel=True)).mean() > 0.8


@pytest.mark.parametrize(("name", "learnt"), [("bag", False), ("small", True)], ids=str)
def test_fine_tuning_is_tried_from_enough_examples_on(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch, name: str, learnt: bool, tmp_path: Path
) -> None:
    """It is judged by what the folds say, and what was judged is what comes out."""
    monkeypatch.setattr(recipe, "FEWEST_TO_TUNE", 40)
    monkeypatch.setattr(probe, "without_layers", lambda run: None)
    base, data = make_base(name, learnt=learnt), reviews(40)
    before = copy.deepcopy(base.model.state_dict())
    options = FitOptions(epochs=2)
    assert names_of(fit_recipe(reviews(38), None, base=base, options=options)) == ["frozen base, linear head"]
    for helps in (False, True):
        monkeypatch.setattr(recipe, "better", lambda *_, helps=helps, **__: helps)
        fitted = fit_recipe(data, None, base=base, options=options)
        _, step = fitted.run.details["recipe"]
        assert step["name"].startswith("fine-tuned base")
        assert step["kept"] is helps
        assert fitted.run.details["freeze"] == ("none" if helps else "base")
        moved = fitted.run.model.base.embedding.weight
        assert torch.equal(moved, before["base.embedding.weight"]) is not helps
        for key, tensor in before.items():
            assert torch.equal(base.model.state_dict()[key], tensor), key
    assert right(fitted.run, reviews(60, 1)) > 0.75
    tried = find_probe(data, base, options, words=True)
    # It is tried on two folds, where layers read on one, and compared with what the same examples were given before.
    left_out = np.concatenate([outside for _, outside in tried.folds[: 2 if name == "bag" else 1]])
    assert fitted.run.details["calibration"]["documents"] == step["examples"] == len(left_out)
    was = (tried.found.logits.argmax(1) == tried.examples.truth)[left_out].mean()
    assert step["before"] == pytest.approx(was)
    said = next(note for note in fitted.notes if note.startswith("fine-tuned base"))
    assert f"(without: {100 * was:.1f} %) of {len(left_out)} left-out examples right" in said
    save(fitted.run, tmp_path / "run")
    expected = class_logits(fitted.run, None, data.texts)
    np.testing.assert_array_equal(class_logits(load(tmp_path / "run"), None, data.texts), expected)


def test_words_stand_beside_a_fine_tuned_base(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "FEWEST_TO_TUNE", 40)
    monkeypatch.setattr(recipe, "WORD_WEIGHTS", (0.5,))
    monkeypatch.setattr(recipe, "better", lambda *_, **__: True)
    base, data = make_base(), reviews(40)
    options = FitOptions(epochs=1)
    tried = find_probe(data, base, options, words=True)
    if not len(tried.linear.rows):
        pytest.fail("cross-validation has chosen no words here: choose other texts")
    run = fit_recipe(data, None, base=base, options=options).run
    head = run.model.head_config
    assert isinstance(head, Classifier)
    assert head.words
    monkeypatch.setattr(recipe, "WORD_WEIGHTS", (0.0,))
    bare = fit_recipe(data, None, base=base, options=options).run
    hot, cold = (each.details["calibration"]["temperature"] for each in (run, bare))
    expected = class_logits(bare, None, data.texts) * cold + 0.5 * tried.linear.word_scores(tried.examples.features)
    np.testing.assert_allclose(class_logits(run, None, data.texts) * hot, expected, atol=1e-3)


def test_a_rare_class_does_not_stop_the_folds(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two examples a fold leaves one inside."""
    monkeypatch.setattr(recipe, "FEWEST_TO_TUNE", 40)
    three = reviews(66, names=("bad", "good", "so"))
    data = subset(three, [each for each in range(66) if three.labels[each] != ("so",) or each < 6])
    fitted = fit_recipe(data, None, base=make_base(), options=FitOptions(epochs=1))
    assert len(fitted.run.details["recipe"]) == 2


def test_how_long_documents_are_read_is_kept(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "FEWEST_TO_TUNE", 40)
    monkeypatch.setattr(recipe, "better", lambda *_, **__: True)
    base = make_base("small", learnt=True)
    fitted = fit_recipe(reviews(40), None, base=base, options=FitOptions(epochs=1, length=12, long="tail"))
    assert fitted.run.details["reading"] == {"longest": 12, "long": "tail"}


def test_what_is_for_gradient_and_was_not_used_is_said(make_base: MakeBase) -> None:
    options = FitOptions(epochs=3, layer_decay=0.5)
    fitted = fit_recipe(reviews(20), None, base=make_base(), options=options)
    said = "not used: --epochs, --layer-decay: fine-tuning was not tried (that takes 200 examples)"
    assert said in fitted.notes
    assert not any("not used" in note for note in fit_recipe(reviews(20), None, base=make_base()).notes)


def test_the_same_again_by_the_seed(make_base: MakeBase) -> None:
    def made(seed: int) -> Any:
        base: Run = make_base()
        run = fit_recipe(
            reviews(40), None, base=base, options=FitOptions(seed=seed), unlabelled=reviews(50, 4).texts
        ).run
        json.dumps(run.details)
        return class_logits(run, None, reviews(10, 1).texts)

    np.testing.assert_array_equal(made(0), made(0))
    assert not np.array_equal(made(0), made(1))
