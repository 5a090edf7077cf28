"""The one function behind the command line, TextClassifier and compare: what cross-validation makes of labels."""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead import TextClassifier
from rehead.cli import main
from rehead.compare.kinds import DESCRIPTIONS
from rehead.compare.methods import train_method
from rehead.compare.options import CompareOptions
from rehead.compare.results import Method
from rehead.errors import UserError
from rehead.finetune import selection
from rehead.finetune.calibration import probabilities
from rehead.finetune.candidates import linear
from rehead.finetune.candidates.candidate import Task
from rehead.finetune.fit import fit_classifier
from rehead.finetune.fitted import Fitted
from rehead.finetune.options import FitOptions
from rehead.finetune.targets import subset, targets
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_logits, class_probabilities
from rehead.text.documents import LabelledData
from rehead.text.labelled import read_examples
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import misleading, multilabel, reviews

pytestmark = pytest.mark.usefixtures("quick_search")
FROZEN = FitOptions(freeze="base")


def accuracy(run: Run, data: LabelledData) -> float:
    guess = class_probabilities(run, data.texts).argmax(1)
    return float((guess == targets(data, data.names, multilabel=False)).mean())


def shuffle(data: LabelledData, seed: int = 1) -> LabelledData:
    """Give half the documents of either class the other label: then labels say nothing about the texts."""
    chance, labels = np.random.RandomState(seed), list(data.labels)
    for first in (0, 1):
        members = np.arange(first, len(data), 2)
        for place in chance.permutation(members)[: len(members) // 2]:
            labels[place] = data.labels[1 - first]
    return dataclasses.replace(data, labels=labels)


def candidates(fitted: Fitted) -> list[str]:
    return [each["name"] for each in fitted.run.details["candidates"]]


@pytest.mark.parametrize("freeze", ["base", None])
def test_it_learns_and_is_calibrated_out_of_fold(make_base: MakeBase, freeze: Any) -> None:
    """With the base frozen by request a linear classifier on its vectors; otherwise words beside them."""
    base, data, options = make_base(), reviews(60), FitOptions(freeze=freeze)
    before = copy.deepcopy(base.model.state_dict())
    fitted = fit_classifier(data, None, base=base, options=options)
    assert accuracy(fitted.run, reviews(40, 1)) > 0.85
    details = fitted.run.details
    assert details["method"] == ("recipe" if freeze is None else "linear")
    assert details["freeze"] == "base"
    assert details["calibration"]["origin"] == "out-of-fold"
    assert details["calibration"]["documents"] == 60
    assert "10-fold cross-validation" in fitted.notes[0]
    found = linear.propose(Task.make(data, base, options, None), None)
    temperature = details["calibration"]["temperature"]
    expected = found.fit(found.examples).scores(found.examples) / temperature
    np.testing.assert_allclose(class_logits(fitted.run, data.texts), expected, atol=1e-3)
    shares = probabilities(found.logits / temperature, multilabel=False)
    assert fitted.valid is not None
    assert fitted.valid.accuracy == pytest.approx((shares.argmax(1) == found.examples.truth).mean())
    assert fitted.valid.count == 60
    assert freeze is None or [each.name for each in found.examples.views] == ["bag"]
    read = any(each.get("bag") for each in found.settings)
    assert fitted.run.model.config.empty is not read  # a base that is not read is not carried
    states = [base.model.state_dict(), *([] if fitted.run.model.config.empty else [fitted.run.model.state_dict()])]
    for state in states:
        for name, tensor in before.items():
            assert torch.equal(state[name], tensor), name


@pytest.mark.parametrize("count", [20, 40])
@pytest.mark.parametrize("names", [("bad", "good"), ("bad", "good", "so")], ids=len)
def test_from_twenty_labels_on(make_base: MakeBase, count: int, names: tuple[str, ...]) -> None:
    fitted = fit_classifier(reviews(count, names=names), None, base=make_base())
    assert accuracy(fitted.run, reviews(60, 1, names=names)) > (0.75 if len(names) == 2 else 0.55)
    assert candidates(fitted) == ["frozen base, linear head"]
    assert fitted.run.details["calibration"]["documents"] == count


def test_a_validation_part_calibrates_instead(make_base: MakeBase) -> None:
    fitted = fit_classifier(reviews(40), reviews(30, 1), base=make_base(), options=FROZEN)
    assert fitted.run.details["calibration"]["documents"] == 30
    known = fitted.run.details["examples"]
    assert (known["train_fingerprint"], known["valid_fingerprint"]) == (
        reviews(40).fingerprint(),
        reviews(30, 1).fingerprint(),
    )
    assert fitted.valid is not None
    assert fitted.valid.count == 30
    assert fitted.valid.accuracy == pytest.approx(accuracy(fitted.run, reviews(30, 1)))


def test_several_labels(make_base: MakeBase) -> None:
    data, new = multilabel(60), multilabel(60, 1)
    fitted = fit_classifier(data, None, base=make_base(), unlabelled=new.texts)
    assert candidates(fitted) == ["frozen base, linear head", "self-training"]
    guess = class_probabilities(fitted.run, new.texts) >= fitted.run.details["thresholds"]
    assert (guess == targets(new, new.names, multilabel=True)).mean() > 0.8
    assert fitted.run.model.head_config.multilabel  # type: ignore[union-attr]
    step = fitted.run.details["candidates"][1]
    assert not step["kept"] or step["loss"] < step["loss_before"]
    kept = [each for each in fitted.run.details["candidates"] if each["kept"]][-1]
    assert fitted.valid is not None
    assert kept["accuracy"] == pytest.approx(fitted.valid.accuracy)  # with the thresholds that the run has
    assert any("exact match" in note for note in fitted.notes)


def test_a_class_with_one_text(make_base: MakeBase) -> None:
    """It cannot be held out; of two classes nothing can be, of three the other two are."""
    lonely = subset(reviews(20), [*range(0, 20, 2), 1])
    fitted = fit_classifier(lonely, None, base=make_base(), options=FROZEN)
    assert any("nothing could be cross-validated" in note for note in fitted.notes)
    assert "not calibrated" in fitted.notes[-1]
    assert fitted.valid is None
    np.testing.assert_array_equal(class_probabilities(fitted.run, lonely.texts).argmax(1), [0] * 10 + [1])
    fitted = fit_classifier(lonely, None, base=make_base(), unlabelled=reviews(20, 3).texts)
    assert fitted.run.details["candidates"] == []
    assert fitted.valid is None
    assert class_probabilities(fitted.run, lonely.texts)[:, 1].argmax() == 10
    three = reviews(60, names=("bad", "good", "so"))
    data = subset(three, [each for each in range(60) if three.labels[each] != ("so",) or each < 3])
    assert Counter(data.labels)["so",] == 1
    fitted = fit_classifier(data, None, base=make_base(), options=FROZEN)
    assert any("10-fold cross-validation" in note for note in fitted.notes)
    assert accuracy(fitted.run, reviews(40, 1, names=("bad", "good", "so"))) > 0.5


def test_shuffled_labels_give_chance(make_base: MakeBase) -> None:
    """And mostly a warning: the best of many settings is sometimes better than chance on what it was chosen by."""
    warned = []
    for seed in range(4):
        data = shuffle(reviews(120), seed)
        fitted = fit_classifier(data, None, base=make_base(), unlabelled=reviews(60, 4).texts)
        assert fitted.valid is not None
        assert abs(fitted.valid.accuracy - 0.5) < 0.16
        assert abs(accuracy(fitted.run, reviews(200, 1)) - 0.5) < 0.16
        shares = class_probabilities(fitted.run, reviews(60, 1).texts)
        assert abs(shares - 0.5).max() < 0.4  # and its probabilities say so
        assert abs(shares - 0.5).mean() < 0.15
        warned.append("warning: " in fitted.notes[-1] and "chance" in fitted.notes[-1])
    assert sum(warned) >= 2


def test_texts_that_are_all_the_same_are_warned_of(make_base: MakeBase) -> None:
    data = subset(reviews(40), [*range(0, 40, 2), *range(1, 20, 2)])
    data.texts = [f"the film {'a ' * (place % 7)}" for place in range(len(data))]
    fitted = fit_classifier(data, reviews(8), base=make_base(), options=FROZEN)
    assert fitted.run.details["collapsed"]
    note = next(each for each in fitted.notes if each.startswith("warning: "))
    assert "--epochs" not in note
    assert "--class-weight balanced" in note


@pytest.mark.parametrize("unlabelled", [False, True])
def test_balanced_classes_find_the_rare_one(make_base: MakeBase, unlabelled: bool) -> None:
    """Words, and words that learn from pseudo-labels, must not undo it."""
    data = misleading(reviews(300))
    rare = subset(data, [place for place in range(300) if place % 2 == 0 or place < 32])
    new, more = misleading(reviews(200, 1), 4), misleading(reviews(200, 6), 5).texts
    found: dict[Any, float] = {}
    for kind in (None, "balanced"):
        options = FitOptions(class_weight=kind)  # type: ignore[arg-type]
        run = fit_classifier(rare, None, base=make_base(), options=options, unlabelled=more if unlabelled else None).run
        found[kind] = (class_logits(run, new.texts).argmax(1)[1::2] == 1).mean()
    assert found[None] < 0.1
    assert found["balanced"] > 0.4


def test_several_labels_that_are_balanced_are_found_at_one_half(make_base: MakeBase) -> None:
    """The rare one, too, though it is given too often: its even odds are at the mean document, among those without."""

    def rare(data: LabelledData) -> LabelledData:
        kept = [place for place in range(len(data)) if "long" not in data.labels[place] or place % 8 == 0]
        data = subset(data, kept)
        data.texts = [text.replace("endless", "day").replace("slow", "day") for text in data.texts]
        return data

    data, new = rare(multilabel(160)), rare(multilabel(400, 1))
    truth = targets(new, new.names, multilabel=True) > 0
    assert truth[:, 2].mean() < 0.12
    run = fit_classifier(data, None, base=make_base(), options=FitOptions(class_weight="balanced")).run
    guess = class_probabilities(run, new.texts) > 0.5
    for label, few in enumerate((0.1, 0.1, 0.5)):
        assert guess[truth[:, label], label].mean() > 0.8
        assert guess[~truth[:, label], label].mean() < few


def test_balanced_classes_without_words(make_base: MakeBase) -> None:
    data = subset(reviews(100), [each for each in range(100) if each % 2 == 0 or each < 12])
    plain, balanced = (
        class_probabilities(fit_classifier(data, None, base=make_base(), options=each).run, reviews(30, 2).texts)
        for each in (FROZEN, FitOptions(freeze="base", class_weight="balanced"))
    )
    assert balanced[:, 1].mean() > plain[:, 1].mean()


def test_what_cannot_be_fitted_is_refused(make_base: MakeBase) -> None:
    with pytest.raises(UserError, match=r"10 examples .* 'bad'"):
        fit_classifier(subset(reviews(20), range(0, 20, 2)), None, base=make_base())
    with pytest.raises(UserError, match="tokenizer"):
        fit_classifier(reviews(20), None, base=Run(make_base().model))
    with pytest.raises(UserError, match=r"reviews.csv line 4: .* 'so'"):
        fit_classifier(reviews(20), reviews(9, 1, names=("bad", "good", "so")), base=make_base(), options=FROZEN)


def test_self_training_is_kept_only_if_it_helps(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    base, data, more = make_base(), reviews(40), reviews(80, 4).texts
    without = fit_classifier(data, None, base=base, unlabelled=[])
    assert candidates(without) == ["frozen base, linear head"]
    plain = class_logits(linear.propose(Task.make(data, base, FitOptions(), more), None).build(), data.texts)
    for helps in (False, True):
        monkeypatch.setattr(selection, "is_better", lambda *_, helps=helps, **__: helps)
        fitted = fit_classifier(data, None, base=base, unlabelled=more)
        _, step = fitted.run.details["candidates"]
        assert (step["name"], step["kept"]) == ("self-training", helps)
        note = next(note for note in fitted.notes if note.startswith("self-training: "))
        assert note.endswith(": kept" if helps else ": not kept")
        logits = class_logits(fitted.run, data.texts) * fitted.run.details["calibration"]["temperature"]
        assert np.allclose(logits, plain, atol=1e-4) is not helps


def test_documents_that_are_cut_are_counted(make_base: MakeBase) -> None:
    base, data = make_base(), reviews(20)
    for long in ("head", "windows"):
        options = FitOptions(freeze="base", length=12, long=long)  # type: ignore[arg-type]
        notes = fit_classifier(data, None, base=base, options=options).notes
        assert any("12 tokens" in note for note in notes) == (long == "head")


def test_options_of_gradient_descent_that_had_no_effect_are_named(make_base: MakeBase) -> None:
    options = FitOptions(epochs=3, layer_decay=0.5)
    fitted = fit_classifier(reviews(20), None, base=make_base(), options=options)
    (note,) = (each for each in fitted.notes if each.startswith("not used: "))
    for part in ("--epochs", "--layer-decay", "200 examples"):
        assert part in note
    assert not any("not used" in note for note in fit_classifier(reviews(20), None, base=make_base()).notes)


def test_the_seed_decides(make_base: MakeBase) -> None:
    def made(seed: int) -> Any:
        options, more = FitOptions(seed=seed), reviews(50, 4).texts
        run = fit_classifier(reviews(40), None, base=make_base(), options=options, unlabelled=more).run
        json.dumps(run.details)
        return class_logits(run, reviews(10, 1).texts)

    np.testing.assert_array_equal(made(0), made(0))
    assert not np.array_equal(made(0), made(1))


@pytest.mark.parametrize("freeze", [None, "base"])
def test_command_estimator_and_comparison_make_the_same_classifier(
    make_base: MakeBase, tmp_path: Path, freeze: Any
) -> None:
    """From the same data, seed and base: the same logits, to the bit."""
    save(make_base(), tmp_path / "base")
    with (tmp_path / "train.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *((text, label) for text, (label,), _, _ in reviews(40))])
    more, new = reviews(50, 4).texts, reviews(20, 1).texts
    (tmp_path / "more.txt").write_text("\n".join(more), encoding="utf-8")
    words = ["--from", str(tmp_path / "base"), "--out", str(tmp_path / "run"), "--seed", "3", "--quiet"]
    words += ["--unlabelled", str(tmp_path / "more.txt")] if freeze is None else ["--freeze", freeze]
    assert main(["finetune", str(tmp_path / "train.csv"), *words]) == 0
    command = load(tmp_path / "run")
    assert command.details["method"] == ("recipe" if freeze is None else "linear")

    data, base = read_examples(str(tmp_path / "train.csv")), load(tmp_path / "base")
    unlabelled = more if freeze is None else None
    labels = [label for (label,) in data.labels]
    estimator = TextClassifier(tmp_path / "base", freeze=freeze, unlabelled=unlabelled, seed=3).fit(data.texts, labels)
    np.testing.assert_array_equal(class_logits(estimator.run_, new), class_logits(command, new))

    kind: Any = "recipe" if freeze is None else "frozen"
    method, asked = Method(kind, kind, kind, DESCRIPTIONS[kind]), CompareOptions(labelled=[""], base=[""], out=tmp_path)
    learner = train_method(method, base, data, subset(data, []), 3, asked, unlabelled)
    np.testing.assert_array_equal(learner.predict(new), class_probabilities(command, new))
