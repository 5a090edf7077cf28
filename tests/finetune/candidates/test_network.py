"""Fine-tuning as a candidate: judged on folds, and what was judged is what comes out."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.finetune import selection
from rehead.finetune.calibration import calibrated_losses
from rehead.finetune.candidates import linear, network
from rehead.finetune.candidates.candidate import Candidate, Task
from rehead.finetune.fit import fit_classifier
from rehead.finetune.linear import fit
from rehead.finetune.options import FitOptions
from rehead.finetune.targets import subset
from rehead.model.config import Classifier
from rehead.runs.run import Run, load, save
from rehead.runs.scoring import class_logits
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import misleading, reviews

pytestmark = pytest.mark.usefixtures("quick_search")


@pytest.fixture(autouse=True)
def from_forty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try it from 40 examples on."""
    monkeypatch.setattr(network, "MIN_EXAMPLES", 40)


def decide(monkeypatch: pytest.MonkeyPatch, helps: bool) -> None:
    monkeypatch.setattr(selection, "is_better", lambda *_, **__: helps)


@pytest.fixture
def base(make_base: MakeBase, through_layers: None) -> Run:
    return make_base("small", learnt=True)


def test_fine_tuning_is_tried_from_enough_examples_on(
    base: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data, options = reviews(40), FitOptions(epochs=2)
    before = copy.deepcopy(base.model.state_dict())
    task = Task.make(subset(data, range(38)), base, options, None)
    assert "40" in str(network.propose(task, linear.propose(task, None)))
    for helps in (False, True):
        decide(monkeypatch, helps)
        fitted = fit_classifier(data, None, base=base, options=options)
        _, step = fitted.run.details["candidates"]
        assert step["name"].startswith("fine-tuned network")
        assert step["kept"] is helps
        assert fitted.run.details["freeze"] == ("none" if helps else "base")
        assert isinstance(fitted.run.model.head_config, Classifier)
        reads = [view.name for view in fitted.run.model.head_config.views]
        moved = fitted.run.model.base.embedding.weight
        if fitted.run.model.config.empty:  # a frozen one that does with words has no base
            assert not helps
            assert not {"bag", "layers"} & set(reads)
        else:
            assert torch.equal(moved, before["base.embedding.weight"]) is not helps
        assert fitted.run.model.config.nlayers == (2 if "layers" in reads else 0)
        assert not helps or reads[0] == "layers"  # the frozen one may do with words
        for key, tensor in before.items():
            assert torch.equal(base.model.state_dict()[key], tensor), key
    new = reviews(60, 1)
    assert (class_logits(fitted.run, new.texts).argmax(1) == np.arange(60) % 2).mean() > 0.75
    # It is tried on one fold, and compared with what the same examples were given before.
    task = Task.make(data, base, options, None)
    frozen = linear.propose(task, None)
    _, held_out = task.folds[0]
    assert fitted.run.details["calibration"]["documents"] == step["examples"] == len(held_out)
    assert step["before"] == pytest.approx((frozen.logits.argmax(1) == task.truth)[held_out].mean())
    note = next(each for each in fitted.notes if each.startswith("fine-tuned network"))
    assert f"{100 * step['before']:.1f} %" in note
    assert str(len(held_out)) in note
    save(fitted.run, tmp_path / "run")
    expected = class_logits(fitted.run, data.texts)
    np.testing.assert_array_equal(class_logits(load(tmp_path / "run"), data.texts), expected)


def test_vectors_without_layers_stay_frozen(make_base: MakeBase) -> None:
    fitted = fit_classifier(reviews(40), None, base=make_base(), options=FitOptions(epochs=1))
    assert [each["name"] for each in fitted.run.details["candidates"]] == ["frozen base, linear head"]
    assert "not used: --epochs: fine-tuning was not tried (documents are not read through layers)" in fitted.notes


def test_other_views_stand_beside_a_fine_tuned_network(base: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(monkeypatch, True)
    data, options = reviews(40), FitOptions(epochs=1)
    frozen = linear.propose(Task.make(data, base, options, None), None)
    fitted = frozen.fit(frozen.examples)
    names = [name for name in ("words", "characters", "lsa") if fitted.weights[name].any()]
    if len(names) < 2:
        pytest.fail("cross-validation has chosen fewer than two of the other views here: choose other texts")
    beside = sum(fitted.view_scores(frozen.examples, name) for name in names)
    monkeypatch.setattr(network, "BESIDE_SHARES", (0.5,))
    run = fit_classifier(data, None, base=base, options=options).run
    assert isinstance(run.model.head_config, Classifier)
    assert [each.name for each in run.model.head_config.views] == ["layers", *names]
    monkeypatch.setattr(network, "BESIDE_SHARES", (0.0,))
    bare = fit_classifier(data, None, base=base, options=options).run
    assert isinstance(bare.model.head_config, Classifier)
    assert [each.name for each in bare.model.head_config.views] == ["layers"]
    hot, cold = (each.details["calibration"]["temperature"] for each in (run, bare))
    expected = class_logits(bare, data.texts) * cold + 0.5 * beside
    np.testing.assert_allclose(class_logits(run, data.texts) * hot, expected, atol=1e-3)


def test_how_much_other_views_count_is_chosen_by_loss(base: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of the first fold, and the other views of the frozen classifier fitted to the same examples."""
    task = Task.make(misleading(reviews(60)), base, FitOptions(epochs=1), None)
    frozen = linear.propose(task, None)

    def proposed() -> Candidate:
        found = network.propose(task, frozen)
        assert isinstance(found, Candidate)
        return found

    chosen, alone = proposed(), {}
    for share in network.BESIDE_SHARES:
        monkeypatch.setattr(network, "BESIDE_SHARES", (share,))
        alone[share] = proposed().logits
    losses = {share: calibrated_losses(each, task.truth).mean() for share, each in alone.items()}
    lowest = min(losses, key=lambda each: losses[each])
    np.testing.assert_allclose(chosen.logits, alone[lowest], atol=1e-5)
    inside, outside = task.folds[0]
    part, rest = frozen.fit(frozen.examples.take(inside)), frozen.examples.take(outside)
    beside = part.scores(rest) - part.view_scores(rest, "layers") - part.bias
    np.testing.assert_allclose(alone[1.0][outside] - alone[0.0][outside], beside, atol=1e-4)
    assert not chosen.frozen


def test_the_network_starts_as_the_linear_classifier_on_its_vectors(base: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the settings of the best, whatever views that reads."""
    started: list[Run] = []
    plain = network.train_network

    def remember(*given: Any, **rest: Any) -> Any:
        started.append(rest["base"])
        return plain(*given, **rest)

    monkeypatch.setattr(network, "train_network", remember)
    task = Task.make(reviews(40), base, FitOptions(epochs=1), None)
    frozen = linear.propose(task, None)
    network.propose(task, frozen)
    settings = {name: frozen.settings[0][name] for name in ("power", "alpha", "temperature")}
    inside, outside = task.folds[0]
    expected = fit(frozen.examples.take(inside), {**settings, "layers": 1.0}).scores(frozen.examples.take(outside))
    texts = [task.train.texts[int(each)] for each in outside]
    np.testing.assert_allclose(class_logits(started[0], texts), expected, atol=1e-4)


def test_it_is_not_tried_beside_self_training_or_without_folds(base: Run) -> None:
    task = Task.make(reviews(40), base, FitOptions(), None)
    best = linear.propose(task, None)
    assert isinstance(network.propose(task, dataclasses.replace(best, name="self-training")), str)
    assert isinstance(network.propose(dataclasses.replace(task, folds=[]), best), str)
    assert isinstance(network.propose(task, None), str)


def test_a_rare_class_does_not_stop_the_folds(base: Run) -> None:
    """Of two examples a fold leaves one inside."""
    three = reviews(66, names=("bad", "good", "so"))
    data = subset(three, [each for each in range(66) if three.labels[each] != ("so",) or each < 6])
    fitted = fit_classifier(data, None, base=base, options=FitOptions(epochs=1))
    assert len(fitted.run.details["candidates"]) == 2


def test_how_long_documents_are_read_is_stated(base: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(monkeypatch, True)
    options: Any = FitOptions(epochs=1, length=12, long="tail")
    run = fit_classifier(reviews(40), None, base=base, options=options).run
    assert isinstance(run.model.head_config, Classifier)
    stated = run.model.head_config.neural
    assert stated is not None
    assert (stated.options["max_length"], stated.options["long"]) == (12, "tail")
