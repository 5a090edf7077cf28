"""The search for a linear classifier on a frozen base, against trying everything by fitting each fold."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from rehead.errors import UserError
from rehead.finetune.candidates import linear as search
from rehead.finetune.candidates.candidate import MOST_FOLDS, Candidate, Task, describe_settings, fold_count
from rehead.finetune.examples import Examples
from rehead.finetune.linear import Settings, fit
from rehead.finetune.losses import selection_losses
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import folds
from rehead.finetune.targets import subset
from rehead.runs.run import Run
from rehead.runs.scoring import class_logits
from rehead.text.documents import LabelledData
from rehead.views.bag import BagView
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import learn_statistics
from rehead.views.view import Raw
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import misleading, multilabel, reviews
from tests.finetune.test_linear import read


def make_task(base: Run, data: LabelledData, unlabelled: list[str] | None = None, **options: Any) -> Task:
    return Task.make(data, base, FitOptions(**options), unlabelled)


def searched(make_base: MakeBase, data: LabelledData, **options: Any) -> search.Search:
    """A search of all views of these texts, not yet begun."""
    task = make_task(make_base(), data, **options)
    return search.Search(task, read(make_base, data, balanced=task.balanced))


def used(settings: Settings) -> set[str]:
    return {name for name, value in settings.items() if value} - {"power", "alpha", "temperature", "softmax"}


KINDS = pytest.mark.parametrize("kind", ["single", "balanced", "multilabel", "multilabel, balanced"])


def data_of(kind: str, count: int = 36) -> tuple[LabelledData, dict[str, Any]]:
    data = multilabel(count) if "multilabel" in kind else misleading(reviews(count, names=("bad", "good", "so")))
    return data, {"class_weight": "balanced" if "balanced" in kind else None}


@KINDS
def test_settings_are_judged_as_if_each_fold_had_been_fitted(make_base: MakeBase, kind: str) -> None:
    """But for the shares of classes, which are those of all examples: folds have nearly the same."""
    data, options = data_of(kind)
    found = searched(make_base, data, **options)
    settings = {"power": 2.0, "bag": 1.0, "words": 1.0, "characters": 2.0, "lsa": 0.5}
    found.best_alpha(settings, (0.3, 3.0))
    assert len(found.tried) == 2
    for tried in found.tried.values():
        chosen = tried.settings[0]
        assert sum(chosen[name] for name in used(chosen)) == pytest.approx(1, abs=1e-5)
        expected = np.full(tried.logits.shape, np.nan)
        for inside, outside in found.task.folds:
            expected[outside] = fit(found.examples.take(inside), chosen).scores(found.examples.take(outside))
        assert np.corrcoef(tried.logits.ravel(), expected.ravel())[0, 1] > 0.98
        balanced = found.task.balanced
        truth = found.examples.truth
        assert tried.loss == pytest.approx(selection_losses(expected, truth, balanced=balanced).mean(), abs=0.03)
        assert tried.loss == pytest.approx(selection_losses(tried.logits, truth, balanced=balanced).mean())


@KINDS
def test_the_best_is_at_least_as_good_as_every_start(make_base: MakeBase, kind: str) -> None:
    data, options = data_of(kind)
    found, plain = searched(make_base, data, **options), searched(make_base, data, **options)
    names = [view.name for view in found.examples.views]
    starts = search.starts(names)
    for start in starts:
        plain.best_alpha({**search.START, **start}, search.ALPHAS)
    tried = [each for each in found.run() if not each.settings[0].get("softmax")]
    assert found.best.loss == min(each.loss for each in tried)
    assert found.best.loss <= plain.best.loss
    assert {"words", "characters"} in [used(each.settings[0]) for each in tried]
    for name in names:
        assert {name} in [used(each.settings[0]) for each in tried]
    assert set(plain.tried) <= set(found.tried)
    assert all(used(each.settings[0]) for each in tried)
    # The best cannot be improved by removing one of its views.
    best = found.best.settings[0]
    for name in used(best) if len(used(best)) > 1 else ():
        assert any(used(each.settings[0]) == used(best) - {name} for each in tried)


@pytest.mark.parametrize("kind", ["single", "balanced"])
def test_the_best_combinations_are_fitted_by_log_loss(make_base: MakeBase, kind: str) -> None:
    """Beside the others, and judged as if each fold had been fitted."""
    data, options = data_of(kind)
    found = searched(make_base, data, **options)
    tried = found.run()
    by_log_loss = [each for each in tried if each.settings[0].get("softmax")]
    assert len(by_log_loss) == search.COMBINATIONS * len(search.LOG_LOSS_ALPHAS)
    assert len(tried) == len(by_log_loss) + len(found.tried)
    assert used(by_log_loss[0].settings[0]) == used(found.best.settings[0])
    for each in by_log_loss[:2]:
        expected = np.full(each.logits.shape, np.nan)
        for inside, outside in found.task.folds:
            part = found.examples.take(inside)
            expected[outside] = fit(part, each.settings[0]).scores(found.examples.take(outside))
        if kind == "single":  # the weights of balanced classes are those of all examples, not of a fold
            np.testing.assert_allclose(each.logits, expected, atol=0.02 * np.abs(expected).max())
        assert np.corrcoef(each.logits.ravel(), expected.ravel())[0, 1] > 0.98


def test_which_loss_there_is(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log loss alone for many classes or few examples of each; none for two classes, nor for several labels."""

    def losses(data: LabelledData) -> set[bool]:
        return {bool(each.settings[0].get("softmax")) for each in searched(make_base, data).run()}

    three = misleading(reviews(36, names=("bad", "good", "so")))
    assert losses(three) == {False, True}
    assert losses(reviews(36)) == losses(multilabel(36)) == {False}
    assert losses(reviews(9, names=("bad", "good", "so"))) == {True}  # three of each
    monkeypatch.setattr(search, "MANY_CLASSES", 3)
    assert losses(three) == {True}
    monkeypatch.setattr(search, "SMALL", 36)  # fewer folds, then
    [task] = [searched(make_base, three)]
    judged = [each for each in task.run() if each.settings[0].get("softmax")]
    assert len(judged) == len(search.LOG_LOSS_ALPHAS)
    known = np.sort(np.concatenate([outside for _, outside in task.task.folds[:3]]))
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(judged[0].logits[:, 0])), known)


def test_what_a_search_begins_with() -> None:
    found = [set(each) for each in search.starts(["bag", "words", "characters", "lsa"])]
    for expected in ({"bag"}, {"lsa"}, {"words", "characters"}, {"bag", "lsa"}, {"bag", "words", "characters"}):
        assert expected in found
    assert {"bag", "words", "characters", "lsa"} in found
    assert search.starts(["bag"]) == [{"bag": 1.0}]
    assert len(found) == len({frozenset(each) for each in found})


def test_held_out_labels_are_not_seen(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flipped, they change nothing of what a regression on the others gives their documents."""
    data = reviews(24)
    examples = read(make_base, data)
    inside, outside = folds(data, 2, 0)[0]
    flipped = dataclasses.replace(examples, truth=examples.truth.copy())
    # Two of either class change places, so that the shares of classes stay as they are.
    chosen = np.concatenate([outside[examples.truth[outside] == label][:2] for label in (0, 1)])
    flipped.truth[chosen] = 1 - flipped.truth[chosen]
    task = dataclasses.replace(make_task(make_base(), data), folds=[(inside, outside)])
    monkeypatch.setattr("rehead.finetune.candidates.linear.find_temperature", lambda *_, **__: 1.0)  # it may see them
    one, two = (search.Search(task, each) for each in (examples, flipped))
    for each in (one, two):
        each.run()
    both = set(one.tried) & set(two.tried)
    assert len(both) > 40
    for key in both:
        np.testing.assert_allclose(one.tried[key].logits[outside], two.tried[key].logits[outside], atol=1e-9)
        assert np.isnan(one.tried[key].logits[inside]).all()
    assert not np.allclose(one.best.loss, two.best.loss)


def test_settings_that_chance_cannot_tell_apart_are_averaged() -> None:
    truth = np.arange(40) % 2
    good = np.where(truth[:, None] == np.arange(2), 2.0, 0.0)
    noisy = good + 0.05 * (np.arange(40) // 2 % 2 * 2 - 1)[:, None] * [1, -1]
    examples, nothing = Examples([], {}, truth, 2), Any

    def tried(power: float, logits: Any) -> Candidate:
        settings: Settings = {"power": power, "alpha": 1.0}
        return Candidate("tried", logits, examples, [settings], nothing, nothing)

    kept = search.equally_good([tried(0.0, -good), tried(1.0, noisy), tried(2.0, good)])
    assert sorted(each.settings[0]["power"] for each in kept) == [1.0, 2.0]
    task = Task(reviews(40), Any, FitOptions(), None, truth, [])  # type: ignore[arg-type]
    found = search.average(task, kept, [])
    np.testing.assert_allclose(found.logits, (good + noisy) / 2)
    assert found.settings == [kept[0].settings[0], kept[1].settings[0]]


def test_no_more_settings_are_averaged_than_pay(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "AVERAGED", (3, 1))
    task = make_task(make_base(), reviews(40))
    assert len(search.propose(task, None).settings) == 3
    monkeypatch.setattr(search, "SMALL", 40)
    assert len(search.propose(task, None).settings) == 1


def test_the_loss_is_the_mean_over_what_was_held_out() -> None:
    logits = np.array([[1.0, 3.0], [0.0, 0.0], [np.nan, np.nan]])
    examples = Examples([], {}, np.array([1, 0, 0]), 2)
    found = Candidate("tried", logits, examples, [], Any, Any)
    assert found.loss == pytest.approx((1 / (1 + np.exp(2.0)) + 0.5) / 2)


def test_an_average_of_classifiers_scores_their_mean(make_base: MakeBase) -> None:
    examples = read(make_base, reviews(40))
    settings: list[Settings] = [
        {"bag": 1.0, "words": 0.0, "power": 1.0, "alpha": 1.0, "temperature": 0.3},
        {"bag": 0.2, "words": 0.8, "power": 2.0, "alpha": 10.0, "temperature": 0.1},
        {"words": 0.5, "lsa": 0.5, "power": 3.0, "alpha": 3.0, "temperature": 1.0},
    ]
    together = search.fit_average(examples, settings).scores(examples)
    each = [search.fit_average(examples, [setting]).scores(examples) for setting in settings]
    np.testing.assert_allclose(together, np.mean(each, axis=0), atol=1e-9)
    assert describe_settings(settings[1]) == "bag 0.2, words 0.8, power 2, alpha 10"
    assert describe_settings(settings[0]) == "bag 1, power 1, alpha 1"


@pytest.mark.usefixtures("quick_search")
def test_layers_are_skipped_unless_held_out_examples_gain(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.usefixtures("quick_search")
def test_a_frozen_base_is_read_by_its_vectors_alone(make_base: MakeBase) -> None:
    data, more = reviews(30), reviews(30, 5).texts
    frozen = search.propose(make_task(make_base(), data, more, freeze="base"), None)
    assert [view.name for view in frozen.examples.views] == ["bag"]
    assert all(used(each) == {"bag"} for each in frozen.settings)
    found = search.propose(make_task(make_base(), data, more), None)
    assert {view.name for view in found.examples.views} == {"bag", "words", "characters", "lsa"}


def test_views_learn_from_all_text_at_hand(make_base: MakeBase) -> None:
    """A word of two unlabelled documents has a column, as has one that a labelled and an unlabelled one share."""
    data, more = reviews(20), ["xylophone quartet", "a xylophone", "film zebra"]
    data.texts[0] += " zebra"
    names = [view.name for view in make_task(make_base(), data).text_views]
    assert names == ["words", "characters", "lsa"]

    def sizes(unlabelled: list[str] | None) -> dict[str, int]:
        views = make_task(make_base(), data, unlabelled).text_views
        return {view.name: view.terms for view in views}

    without, both = sizes(None), sizes(more)
    task = make_task(make_base(), data, more)
    words = task.text_views[0]
    assert words is task.text_views[0]  # learnt once
    features = words.transform(words.read(EncodedTexts(["xylophone", "zebra", "quartet"])))
    assert (features.getnnz(1) > 0).tolist() == [True, True, False]  # the last is in one document only
    assert all(both[name] > without[name] for name in both)


@pytest.mark.usefixtures("quick_search")
@pytest.mark.parametrize("kind", ["nothing in common", "empty", "some empty", "one character"])
def test_texts_that_say_little(make_base: MakeBase, kind: str) -> None:
    """They give a classifier all the same, with the shares of the classes where nothing is known."""
    data = reviews(20)
    if kind == "nothing in common":
        data.texts = [chr(ord("a") + place) * (place + 5) for place in range(20)]
    elif kind == "empty":
        data.texts = [" " * place for place in range(20)]
    elif kind == "some empty":
        data.texts[::3] = [""] * 7
    else:
        data.texts = ["ab"[place % 2] for place in range(20)]
        assert fold_count(data) == 0  # all but two are copies
    task = make_task(make_base(), data)
    found = search.propose(task, None)
    run = found.build()
    scores = class_logits(run, [*data.texts, "", "film 語 zzz"])
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores[:20], found.fit(found.examples).scores(found.examples), atol=1e-3)


def test_more_tokens_than_there_are_positions_are_refused(make_base: MakeBase) -> None:
    base = make_base("lab", learnt=True, positions="learned", maxlen=24)
    with pytest.raises(UserError, match=r"--length 25.* 24"):
        search.propose(make_task(base, reviews(20), length=25), None)


@pytest.mark.usefixtures("quick_search")
def test_every_example_is_held_out_once_and_copies_together(make_base: MakeBase) -> None:
    data = reviews(30)
    data.texts[4], data.labels[4] = data.texts[2], data.labels[2]
    task = make_task(make_base(), data, freeze="base")
    assert len(task.folds) == MOST_FOLDS == 10
    assert sorted(np.concatenate([outside for _, outside in task.folds]).tolist()) == list(range(30))
    for inside, outside in task.folds:
        assert not set(inside.tolist()) & set(outside.tolist())
        assert (2 in outside) == (4 in outside)
    assert not np.isnan(search.propose(task, None).logits).any()
    with pytest.raises(UserError, match="tokenizer"):
        make_task(Run(make_base().model), data)


def classes_of(*sizes: int) -> LabelledData:
    """So many different texts of each class."""
    labels = [f"class {number}" for number, size in enumerate(sizes) for _ in range(size)]
    texts = [f"text {place}" for place in range(len(labels))]
    sources = [("x.csv", 2 + place) for place in range(len(labels))]
    return LabelledData(texts, [(each,) for each in labels], sorted(set(labels)), False, sources)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((50, 50), MOST_FOLDS),
        ((6, 6), 6),
        ((3, 7, 40), 7),  # the median class
        ((4, 6), 5),
        ((2,) * 77, 2),
        ((1, 8, 8), 8),  # a single example does not decide
        ((1, 1, 1, 5, 5), 2),
        ((1, 8), 0),  # nor can two classes be told apart without it
        ((1, 1), 0),
        ((2, 2), 2),
        ((1, 1, 2, 2), 2),
    ],
    ids=str,
)
def test_the_number_of_folds(sizes: tuple[int, ...], expected: int) -> None:
    data = classes_of(*sizes)
    assert fold_count(data) == expected
    if expected:
        for inside, outside in folds(data, expected, 0):
            assert len(inside)
            assert len(outside)


def test_copies_count_once_for_the_number_of_folds(make_base: MakeBase) -> None:
    """There are never more folds than different texts of the median class."""
    data = classes_of(20, 20)
    data.texts = [f"text {place % 4} of {place // 20}" for place in range(40)]
    assert fold_count(data) == 4
    assert len(make_task(make_base(), data).folds) == 4
    data.texts = ["the same"] * 40
    assert fold_count(data) == 0
    assert make_task(make_base(), data).folds == []


@pytest.mark.usefixtures("quick_search")
@pytest.mark.parametrize("searched", [40, 75], ids=["many inside", "few inside"])
@pytest.mark.parametrize("beside", [False, True])
def test_of_many_examples_some_are_held_out_once(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch, beside: bool, searched: int
) -> None:
    for module in ("candidate.SEARCHED", "linear.SEARCHED"):
        monkeypatch.setattr(f"rehead.finetune.candidates.{module}", searched)
    data = reviews(80)
    task = make_task(make_base(), data, freeze=None if beside else "base")
    (inside, outside), *rest = task.folds
    assert not rest
    assert len(outside) == 8
    found = search.propose(task, None)
    assert "held-out tenth" in found.notes[0]
    known = ~np.isnan(found.logits[:, 0])
    np.testing.assert_array_equal(np.flatnonzero(known), outside)
    expected = found.fit(found.examples.take(inside)).scores(found.examples.take(outside))
    np.testing.assert_allclose(found.logits[outside], expected, atol=1e-5)
    assert len(found.settings) <= 2
    run = found.build()
    names = {view.name for view in run.model.head_config.views}  # type: ignore[union-attr]
    assert beside or names == {"bag"}
    new = reviews(40, 1)
    assert (class_logits(run, new.texts).argmax(1) == np.arange(40) % 2).mean() > 0.85


@pytest.mark.usefixtures("quick_search")
def test_of_many_examples_few_combinations_are_tried(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best of those on the held-out tenth is taken; its labels are seen by no classifier that is judged."""
    for module in ("candidate.SEARCHED", "linear.SEARCHED"):
        monkeypatch.setattr(f"rehead.finetune.candidates.{module}", 40)
    data = misleading(reviews(120))
    task = make_task(make_base(), data)
    judged: list[Candidate] = []
    plain = search._fitted_to

    def remember(*given: Any) -> Candidate:
        judged.append(plain(*given))
        return judged[-1]

    monkeypatch.setattr(search, "_fitted_to", remember)
    found = search.propose(task, None)
    assert len(judged) == len(search.BESIDE) + len(search.HINGE_ALPHAS[1]) - 1
    assert not {"bag", "lsa"} & {name for name, weight in judged[0].settings[0].items() if weight}  # the plain one
    best = min(judged, key=lambda each: each.loss)
    assert found.settings[0] == best.settings[0]
    assert len({each.settings[0]["alpha"] for each in judged}) > 1
    (_, outside), truth = task.folds[0], task.truth.copy()
    truth[outside] = 1 - truth[outside]
    monkeypatch.setattr(search, "find_temperature", lambda *_, **__: 1.0)
    settings = best.settings[0]
    one, two = (
        plain(task, dataclasses.replace(found.examples, truth=each), settings, task.folds).logits
        for each in (task.truth, truth)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("better", [False, True])
def test_the_usual_combination_is_kept_unless_another_is_better(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch, better: bool
) -> None:
    """By more than a standard error, on the same held-out examples; the plain words and characters are compared too."""
    task = make_task(make_base(), reviews(search.HINGED))
    plain, judged = search._fitted_to, []

    def fitted_to(*given: Any) -> Candidate:
        made = plain(*given)
        usual = made.settings[0]["bag"] == 1.0 and made.settings[0]["alpha"] == search.HINGE_ALPHAS[0][0]
        sure = 4.0 if better and not usual else 0.1
        made.logits = np.where(np.eye(2)[task.truth] > 0, sure, -sure)
        judged.append(made)
        return made

    monkeypatch.setattr(search, "_fitted_to", fitted_to)
    found = search.propose(task, None)
    assert found.settings[0]["hinge"] == 1.0
    assert (found.settings[0]["bag"] == 1.0) == (not better)
    assert len(found.settings) == (2 if better else 1)
    assert used(judged[0].settings[0]) == {"words", "characters", "hinge"}
    assert not judged[0].settings[0]["naive_bayes"]


def test_what_is_searched_for_by_ridge_regression(make_base: MakeBase) -> None:
    """Few examples, many classes, balanced classes, or vectors alone; else by hinge loss."""

    def by_ridge(data: LabelledData, **options: Any) -> bool:
        found = search.propose(make_task(make_base(), data, **options), None)
        assert len({each.get("hinge", 0.0) for each in found.settings}) == 1
        return not found.settings[0].get("hinge")

    assert not by_ridge(reviews(search.HINGED))
    assert by_ridge(reviews(search.HINGED - 2))
    assert by_ridge(reviews(search.HINGED), class_weight="balanced")
    assert by_ridge(reviews(search.HINGED), freeze="base")
    assert not by_ridge(multilabel(search.HINGED))
    assert by_ridge(multilabel(search.HINGED - 2))
    assert by_ridge(classes_of(*[4] * search.MANY_CLASSES))


@pytest.mark.usefixtures("quick_search")
def test_many_multilabel_examples_are_all_scored_out_of_fold(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thresholds of rare labels are tuned on all of their examples, not on the held-out tenth."""
    for module in ("candidate.SEARCHED", "linear.SEARCHED"):
        monkeypatch.setattr(f"rehead.finetune.candidates.{module}", 40)
    data = multilabel(60)
    task = make_task(make_base(), data)
    found = search.propose(task, None)
    assert len(task.folds) == 1
    assert not np.isnan(found.logits).any()
    for inside, outside in folds(data, search.THRESHOLD_FOLDS, task.options.seed):
        expected = found.fit(found.examples.take(inside)).scores(found.examples.take(outside))
        np.testing.assert_allclose(found.logits[outside], expected, atol=1e-5)


@pytest.mark.usefixtures("quick_search")
def test_rare_classes_are_searched_with_the_others(make_base: MakeBase) -> None:
    """Of a class with one text none is left when it is held out, which counts against all settings alike."""
    three = reviews(60, names=("bad", "good", "so"))
    data = subset(three, [each for each in range(60) if three.labels[each] != ("so",) or each < 3])
    found = search.propose(make_task(make_base(), data), None)
    assert np.isfinite(found.logits).all()
    assert found.loss < 0.3
