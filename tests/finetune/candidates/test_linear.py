"""The search for a linear classifier on a frozen base, against trying everything with scikit-learn."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from rehead.errors import UserError
from rehead.finetune.candidates import linear as search
from rehead.finetune.candidates.candidate import Candidate, Task, describe_settings
from rehead.finetune.examples import Examples
from rehead.finetune.linear import Settings
from rehead.finetune.logistic import log_losses
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import folds
from rehead.runs.run import Run
from rehead.runs.scoring import class_logits
from rehead.text.documents import LabelledData
from rehead.views.bag import BagView
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import learn_statistics
from rehead.views.view import Raw
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import reviews
from tests.finetune.test_linear import read, written_out


def make_task(base: Run, data: LabelledData, **options: Any) -> Task:
    return Task.make(data, base, FitOptions(**options), None)


def test_the_search_finds_what_trying_all_finds(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    data = reviews(36, names=("bad", "good", "so"))
    examples, parts = read(make_base, data), folds(data, 3, 0)
    monkeypatch.setattr(search, "POWERS", (1.0, 2.0))
    task = dataclasses.replace(make_task(make_base(), data), search_folds=parts, folds=parts)
    monkeypatch.setattr(search, "VIEW_WEIGHTS", ())
    found = search.search(task, examples)
    losses: dict[tuple[float, float], float] = {}
    for power in search.POWERS:
        table = written_out(examples, power, 0.0)
        for C in search.CS:  # noqa: N806
            logits = np.full((36, 3), np.nan)
            for inside, outside in parts:
                model = LogisticRegression(C=C, tol=1e-8, max_iter=5000).fit(table[inside], examples.truth[inside])
                logits[outside] = model.decision_function(table[outside])
            losses[power, C] = float(log_losses(logits, examples.truth).mean())
    best = min(losses, key=lambda each: losses[each])
    assert (found[0].settings[0]["power"], found[0].settings[0]["C"]) == best
    for power in search.POWERS:
        lowest = min(losses[power, C] for C in search.CS)
        given = search.best_C(task, examples, parts, {"power": power, "words": 0.0}, search.CS)
        assert given.loss == pytest.approx(lowest, abs=0.01)
        assert not np.isnan(given.logits).any()


def test_held_out_labels_are_not_seen(make_base: MakeBase) -> None:
    """Flipped, they change nothing of what their documents are given, though words are weighted by labels."""
    data = reviews(24)
    examples = read(make_base, data)
    inside, outside = folds(data, 2, 0)[0]
    other = examples.truth.copy()
    other[outside] = 1 - other[outside]
    for words in (0.0, 4.0):
        one, two = (
            search.out_of_fold(
                dataclasses.replace(examples, truth=labels),
                [(inside, outside)],
                {"power": 2.0, "words": words},
                (1.0, 10.0),
            )
            for labels in (examples.truth, other)
        )
        for C in (1.0, 10.0):  # noqa: N806
            np.testing.assert_array_equal(one[C], two[C])
            assert np.isnan(one[C][inside]).all()


def test_settings_that_chance_cannot_tell_apart_are_averaged() -> None:
    truth = np.arange(40) % 2
    good = np.where(truth[:, None] == np.arange(2), 2.0, 0.0)
    noisy = good + 0.05 * (np.arange(40) // 2 % 2 * 2 - 1)[:, None] * [1, -1]
    examples, nothing = Examples([], {}, truth, 2), Any

    def tried(power: float, logits: Any) -> Candidate:
        settings: Settings = {"power": power, "words": 0.0, "C": 1.0}
        return Candidate("tried", logits, examples, [settings], nothing, nothing)

    kept = search.equally_good([tried(0.0, -good), tried(1.0, noisy), tried(2.0, good)])
    assert [each.settings[0]["power"] for each in kept] == [2.0, 1.0]
    found = search.average(Any, kept, [])  # type: ignore[arg-type]  # the task is for building
    np.testing.assert_allclose(found.logits, (good + noisy) / 2)
    assert found.settings == [kept[0].settings[0], kept[1].settings[0]]


def test_the_loss_is_the_mean_over_what_was_held_out() -> None:
    logits = np.array([[1.0, 3.0], [0.0, 0.0], [np.nan, np.nan]])
    examples = Examples([], {}, np.array([1, 0, 0]), 2)
    found = Candidate("tried", logits, examples, [], Any, Any)
    assert found.loss == pytest.approx((np.log(1 + np.exp(-2.0)) + np.log(2)) / 2)


def test_an_average_of_classifiers_scores_their_mean(make_base: MakeBase) -> None:
    examples = read(make_base, reviews(40))
    settings: list[Settings] = [
        {"power": 1.0, "words": 0.0, "C": 1.0},
        {"power": 2.0, "words": 4.0, "C": 10.0},
        {"power": 3.0, "words": 1.0, "C": 3.0},
    ]
    together = search.fit_average(examples, settings).scores(examples)
    each = [search.fit_average(examples, [setting]).scores(examples) for setting in settings]
    np.testing.assert_allclose(together, np.mean(each, axis=0), atol=1e-9)
    assert describe_settings(settings[1]) == "power 2, words 4, C 10"
    assert describe_settings(settings[0]) == "power 1, C 1"


def test_layers_are_skipped_unless_held_out_examples_gain(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "CS", (1.0, 10.0, 100.0))
    base, data = make_base("small", learnt=True), reviews(60)
    learn_statistics(base.model, EncodedTexts(reviews(40, 3).texts, base.tokenizer).ids)
    with torch.no_grad():
        for layer in base.model.base.layers:
            layer.output.weight.normal_(std=20.0)  # noise that drowns the vectors below
    task = make_task(base, data, freeze="base")
    found = search.propose(task, None)
    assert found.examples.views[0].name == "bag"
    assert found.build().model.config.nlayers == 0
    assert any("past the layers" in note for note in found.notes)

    plain = BagView.read

    def blind(view: BagView, texts: EncodedTexts) -> Raw:
        raw = plain(view, texts)
        return raw._replace(matrix=np.full_like(raw.matrix, 0.01))

    monkeypatch.setattr(BagView, "read", blind)
    task = make_task(make_base("small", learnt=True), data, freeze="base")
    found = search.propose(task, None)
    assert found.examples.views[0].name == "layers"
    assert found.build().model.config.nlayers == 2
    assert any("through the layers" in note for note in found.notes)


def test_more_tokens_than_there_are_positions_are_refused(make_base: MakeBase) -> None:
    base = make_base("lab", learnt=True, positions="learned", maxlen=24)
    with pytest.raises(UserError, match=r"--length 25.* 24"):
        search.propose(make_task(base, reviews(20), length=25), None)


def test_every_example_is_held_out_once_and_copies_together(make_base: MakeBase) -> None:
    data = reviews(30)
    data.texts[4], data.labels[4] = data.texts[2], data.labels[2]
    task = make_task(make_base(), data, freeze="base")
    assert len(task.folds) == 5
    assert sorted(np.concatenate([outside for _, outside in task.folds]).tolist()) == list(range(30))
    for inside, outside in task.folds:
        assert not set(inside.tolist()) & set(outside.tolist())
        assert (2 in outside) == (4 in outside)
    assert not np.isnan(search.propose(task, None).logits).any()
    with pytest.raises(UserError, match="tokenizer"):
        make_task(Run(make_base().model), data)


@pytest.mark.parametrize("words", [False, True])
def test_of_many_examples_some_are_held_out_once(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch, words: bool
) -> None:
    monkeypatch.setattr("rehead.finetune.candidates.candidate.SEARCHED", 40)
    data = reviews(80)
    task = make_task(make_base(), data, freeze=None if words else "base")
    (inside, outside), *rest = task.folds
    assert not rest
    assert (len(outside), len(task.searched)) == (8, 40)
    found = search.propose(task, None)
    assert "40 of 80 examples" in found.notes[0]
    known = ~np.isnan(found.logits[:, 0])
    np.testing.assert_array_equal(np.flatnonzero(known), outside)
    expected = found.fit(found.examples.take(inside)).scores(found.examples.take(outside))
    np.testing.assert_allclose(found.logits[outside], expected, atol=0.3)  # from another start, not to the end
    run = found.build()
    assert ("words" in [view.name for view in run.model.head_config.views]) <= words  # type: ignore[union-attr]
    new = reviews(40, 1)
    assert (class_logits(run, new.texts).argmax(1) == np.arange(40) % 2).mean() > 0.85
