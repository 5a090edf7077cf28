"""A classifier of few labels teaches words and characters: against a ridge written out. Held-out labels stay unseen."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from rehead.finetune import ridge
from rehead.finetune.calibration import calibrated_losses, probabilities
from rehead.finetune.candidates import linear as linear_candidate
from rehead.finetune.candidates import self_training
from rehead.finetune.candidates.candidate import Candidate, Task
from rehead.finetune.candidates.self_training import (
    ALPHAS,
    LABELLED_WEIGHT,
    SHARES,
    SHARPNESS,
    USUAL,
    StudentTrainer,
    choose_share,
    regression_of,
    sample,
    score_size,
    sharpened,
)
from rehead.finetune.examples import Examples, read_unlabelled
from rehead.finetune.linear import fit, regression_targets
from rehead.finetune.options import FitOptions
from rehead.finetune.ridge import BIAS
from rehead.runs.scoring import class_logits
from rehead.text.documents import LabelledData
from tests.finetune.conftest import MakeBase
from tests.finetune.naive_bayes_reference import unevenness
from tests.finetune.sets import misleading, multilabel, reviews

pytestmark = pytest.mark.usefixtures("quick_search")
KINDS = [("bad", "good"), ("bad", "good", "so")]


def read(make_base: MakeBase, data: LabelledData, texts: list[str], **options: Any) -> tuple[Task, Candidate, Examples]:
    """The best linear classifier of few examples, and documents without labels as it reads them."""
    task = Task.make(data, make_base(), FitOptions(**options), texts)
    best = linear_candidate.propose(task, None)
    return task, best, read_unlabelled(task.base, best.examples, texts)


def propose(task: Task, best: Candidate) -> Candidate:
    found = self_training.propose(task, best)
    assert isinstance(found, Candidate)
    return found


def trainer_of(examples: Examples, unlabelled: Examples) -> StudentTrainer:
    return StudentTrainer(examples, unlabelled, [view for view in examples.views if view.sparse])


def students_written_out(examples: Examples, unlabelled: Examples, known: Any, soft: Any, wanted: Any) -> list[Any]:
    """Scores of the unlabelled documents, without the bias, by ridges on words and characters side by side."""
    weights = np.concatenate([np.full(len(known), LABELLED_WEIGHT), np.ones(len(unlabelled))])
    targets = np.concatenate([wanted, soft])
    names = [view.name for view in examples.views if view.sparse]
    tables = []
    for name in names:
        table = np.concatenate([examples.take(known).features[name].toarray(), unlabelled.features[name].toarray()])
        tables.append(table * unevenness(table, targets, weights) / len(names) ** 0.5)
    whole = np.hstack([*tables, np.full((len(weights), 1), BIAS**0.5)])
    found = []
    for alpha in ALPHAS:
        model = Ridge(alpha, fit_intercept=False, solver="svd")
        weight = model.fit(whole, targets, sample_weight=weights).coef_[:, :-1]
        found.append(whole[len(known) :, :-1] @ weight.T)
    return found


@pytest.mark.parametrize("kind", ["two", "three", "balanced", "multilabel", "multilabel, balanced"])
def test_the_student_is_a_ridge_on_what_the_teacher_says(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Of some of the examples, and twice: the second time it is taught by the mean of both."""
    monkeypatch.setattr(ridge, "TOLERANCE", 1e-7)
    monkeypatch.setattr(self_training, "STEPS", (300, 300))
    several, balanced = "multilabel" in kind, "balanced" in kind
    names = KINDS[kind != "two"]
    data = multilabel(48) if several else reviews(36, names=names)
    more = multilabel(60, 4).texts if several else reviews(60, 4, names=names).texts
    _, best, unlabelled = read(make_base, data, more, class_weight="balanced" if balanced else None)
    examples, known = best.examples, np.arange(5, 30)
    teacher = fit(examples.take(known), {"power": 2.0, "alpha": 1.0, "bag": 1.0, "words": 1.0, "temperature": 0.3})
    found = trainer_of(examples, unlabelled).teach(teacher, known)

    truth = examples.truth[known]
    wanted, prior = regression_targets(truth, examples.classes, balanced=balanced and not several)
    bias = teacher.bias + (prior if several and balanced else 0.0)
    said = scores = teacher.scores(unlabelled) - teacher.bias + bias
    for _ in range(2):
        soft = regression_of(sharpened(scores, prior, multilabel=several), prior, multilabel=several)
        size, each = (
            score_size(said, multilabel=several),
            students_written_out(examples, unlabelled, known, soft, wanted),
        )
        own = np.mean([one * size / score_size(one, multilabel=several) for one in each], axis=0)
        scores = (said - bias + own) / 2 + bias
    given = found.scores(unlabelled)
    np.testing.assert_allclose(given, own, atol=0.01 * np.abs(given).max())
    # It is about as large as the teacher, has no bias, and reads words and characters alone.
    ratio = score_size(given, multilabel=several) / score_size(teacher.scores(unlabelled), multilabel=several)
    assert ((ratio > 0.8) & (ratio <= 1.001)).all()
    assert not found.bias.any()
    assert not found.weights["bag"].any()
    assert not found.weights["lsa"].any()
    assert found.weights["words"].any()
    assert found.weights["characters"].any()


def test_a_student_reads_no_more_than_the_commonest_ngrams(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, others = reviews(40, seed=1), reviews(60, seed=2).texts
    _, best, unlabelled = read(make_base, data, others)
    monkeypatch.setattr(self_training, "MAX_COLUMNS", 12)
    trainer = trainer_of(best.examples, unlabelled)
    student = trainer.teach(best.fit(best.examples), np.arange(len(data)))
    limited = 0
    for view in trainer.views:
        seen = [each.features[view.name].toarray() > 0 for each in (best.examples, unlabelled)]
        frequency = np.concatenate(seen).sum(0)
        columns = student.columns[view.name]
        assert student.weights[view.name].shape == (2, len(columns))
        assert len(columns) == min(12, len(frequency))
        rest = np.delete(frequency, columns)
        assert not len(rest) or frequency[columns].min() >= rest.max()
        limited += len(rest) > 0
    assert limited
    scores = sum(
        unlabelled.features[view.name][:, student.columns[view.name]] @ student.weights[view.name].T
        for view in trainer.views
    )
    np.testing.assert_allclose(student.scores(unlabelled), scores, atol=1e-6)


def test_few_steps_are_near_enough(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    _, best, unlabelled = read(make_base, reviews(36), reviews(60, 4).texts)
    trainer, everything = trainer_of(best.examples, unlabelled), np.arange(36)
    teacher = best.fit(best.examples)
    quick = trainer.teach(teacher, everything).scores(unlabelled)
    monkeypatch.setattr(self_training, "STEPS", (300, 300))
    monkeypatch.setattr(ridge, "TOLERANCE", 1e-7)
    exact = trainer.teach(teacher, everything).scores(unlabelled)
    assert np.abs(quick - exact).max() < 0.1 * np.abs(exact).max()


def test_shares_of_classes_are_moved_half_way() -> None:
    """By hand: a teacher who gives everything to the first class, though labels are even."""
    scores = np.log(np.array([[0.8, 0.2], [0.6, 0.4]])) / SHARPNESS
    found = sharpened(scores, np.log([0.5, 0.5]), multilabel=False)
    factors = (0.5 / np.array([0.7, 0.3])) ** 0.5
    expected = np.array([[0.8, 0.2], [0.6, 0.4]]) * factors
    np.testing.assert_allclose(found, expected / expected.sum(1, keepdims=True))
    assert 0.5 < found[:, 0].mean() < 0.7
    even = np.array([[0.8, 0.2], [0.2, 0.8]])  # what is as it should be stays
    np.testing.assert_allclose(sharpened(np.log(even) / SHARPNESS, np.log([0.5, 0.5]), multilabel=False), even)
    # A class without examples, whose share is tiny, is not lifted; one that is never said does no harm.
    given = sharpened(np.array([[0.0, -800.0, -5.0]] * 4), np.log([0.5, 0.49, 0.01]), multilabel=False)
    assert np.isfinite(given).all()
    np.testing.assert_allclose(given.sum(1), 1)


def test_what_is_said_may_be_sharpened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_training, "SHARPNESS", 2.0)
    monkeypatch.setattr(self_training, "MATCHING", 0.0)
    scores, prior = np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([0.3, -1.0])
    found = sharpened(scores, np.log([0.5, 0.5]), multilabel=False)
    np.testing.assert_allclose(found, np.exp(2 * scores) / np.exp(2 * scores).sum(1, keepdims=True))
    found = sharpened(scores, prior, multilabel=True)  # away from the share of the label
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-(2 * (scores - prior) + prior))))
    monkeypatch.setattr(self_training, "SHARPNESS", 1.0)
    np.testing.assert_allclose(sharpened(scores, prior, multilabel=True), probabilities(scores, multilabel=True))


@pytest.mark.parametrize("balanced", [False, True])
def test_certain_probabilities_are_regressed_on_as_labels_are(balanced: bool) -> None:
    truth = np.array([0, 0, 0, 1, 1, 2])
    expected, prior = regression_targets(truth, 4, balanced=balanced)  # one class has no examples
    np.testing.assert_allclose(regression_of(np.eye(4)[truth], prior, multilabel=False), expected)
    table = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]], np.float32)
    expected, prior = regression_targets(table, 3, balanced=False)
    np.testing.assert_allclose(regression_of(table, prior, multilabel=True), expected, rtol=1e-6)


def test_score_size() -> None:
    assert score_size(np.array([[1.0, -1.0], [4.0, 2.0]])) == 1.0
    np.testing.assert_allclose(score_size(np.array([[1.0, -5.0], [3.0, 1.0]]), multilabel=True), [1.0, 3.0])


@pytest.mark.parametrize("kind", ["single", "multilabel"])
def test_held_out_labels_are_not_seen(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(self_training, "SHARES", (0.5,))  # the choice among several sees them
    data, more = (
        (multilabel(36), multilabel(60, 4).texts) if kind == "multilabel" else (reviews(36), reviews(60, 4).texts)
    )
    task, best, _ = read(make_base, data, more)
    outside, rest = task.folds[0][1], task.folds[1][1]
    truth = best.examples.truth.copy()
    truth[outside] = 1 - truth[outside]
    other = dataclasses.replace(best, examples=dataclasses.replace(best.examples, truth=truth))
    one, two = (propose(task, each).logits for each in (best, other))
    np.testing.assert_array_equal(one[outside], two[outside])
    assert not np.allclose(one[rest], two[rest])


def test_it_is_judged_on_some_of_the_folds(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    """On five, or with many examples on two: by teachers that were fitted to the others."""
    task, best, unlabelled = read(make_base, reviews(36), reviews(60, 4).texts)
    assert len(task.folds) > 5
    for many, count in ((37, 5), (36, 2)):
        monkeypatch.setattr(self_training, "MANY", many)
        logits = propose(task, best).logits
        held_out = np.concatenate([outside for _, outside in task.folds[:count]])
        np.testing.assert_array_equal(np.flatnonzero(~np.isnan(logits[:, 0])), np.sort(held_out))
    inside, outside = task.folds[1]
    teacher = best.fit(best.examples.take(inside))
    student = trainer_of(best.examples, unlabelled).teach(teacher, inside)
    some = best.examples.take(outside)
    expected = [teacher.scores(some) + share * student.scores(some) for share in SHARES]
    assert any(np.allclose(logits[outside], each) for each in expected)


def test_the_share_is_the_one_that_is_chosen_by_losses(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    data = misleading(reviews(60))
    task, best, _ = read(make_base, data, misleading(reviews(100, 4), 5).texts)
    found, alone = propose(task, best), {}
    for share in SHARES:
        monkeypatch.setattr(self_training, "SHARES", (share,))
        alone[share] = propose(task, best)
    chosen = choose_share({share: calibrated_losses(each.logits, task.truth) for share, each in alone.items()})
    np.testing.assert_array_equal(found.logits, alone[chosen].logits)


def test_another_share_has_to_be_better_by_a_standard_error() -> None:
    losses = {share: np.array([0.4, 0.6, 0.5, 0.3]) for share in SHARES}
    assert choose_share(losses) == USUAL
    losses[0.5] = losses[USUAL] - [0.3, -0.3, 0.3, -0.2]  # better on average, by less than its standard error
    assert choose_share(losses) == USUAL
    losses[0.5] = losses[USUAL] - [0.2, 0.1, 0.2, 0.1]
    assert choose_share(losses) == 0.5


@pytest.mark.parametrize("kind", ["single", "multilabel"])
def test_what_is_built_is_the_teacher_and_a_share_of_the_student(
    make_base: MakeBase, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(self_training, "SHARES", (0.5,))
    data, more = (
        (multilabel(36), multilabel(60, 4).texts) if kind == "multilabel" else (reviews(36), reviews(60, 4).texts)
    )
    task, best, unlabelled = read(make_base, data, more)
    found = propose(task, best)
    assert (found.name, found.frozen) == ("self-training", True)
    teacher = best.fit(best.examples)
    student = trainer_of(best.examples, unlabelled).teach(teacher, np.arange(36))
    expected = teacher.scores(unlabelled) + 0.5 * student.scores(unlabelled)
    np.testing.assert_allclose(class_logits(found.build(), more), expected, atol=1e-3)


def test_it_is_not_tried_without_text_folds_or_words(make_base: MakeBase) -> None:
    task, best, _ = read(make_base, reviews(20), [])
    assert "unlabelled" in str(self_training.propose(task, best))
    task = dataclasses.replace(task, unlabelled=["film"])
    assert "fewer" in str(self_training.propose(task, best))
    assert "fewer" in str(self_training.propose(dataclasses.replace(task, unlabelled=task.train.texts * 2), best))
    task = dataclasses.replace(task, unlabelled=reviews(20, 4).texts)
    assert isinstance(self_training.propose(task, None), str)
    assert isinstance(self_training.propose(dataclasses.replace(task, folds=[]), best), str)
    assert isinstance(self_training.propose(task, best), Candidate)
    task, best, _ = read(make_base, reviews(20), ["film"], freeze="base")
    assert "words" in str(self_training.propose(task, best))


def test_text_that_says_nothing_does_no_harm(make_base: MakeBase) -> None:
    """None of its n-grams is known: the student is not blown up to the size of the teacher."""
    task, best, _ = read(make_base, reviews(20), [2 * each for each in "木林森龍山川田火水土金日月星花草鳥魚虫石"])
    found = propose(task, best)
    known = ~np.isnan(found.logits[:, 0])
    assert np.isfinite(found.logits[known]).all()
    expected = class_logits(best.build(), reviews(10, 1).texts)
    np.testing.assert_allclose(class_logits(found.build(), reviews(10, 1).texts), expected, atol=1e-4)


def test_of_very_long_texts_fewer_are_read(make_base: MakeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    task, best, _ = read(make_base, reviews(20), ["film"])
    texts, seen = reviews(100, 4).texts, list[int]()
    plain = self_training.read_unlabelled

    def remember(base: Any, like: Any, some: Any, **rest: Any) -> Any:
        seen.append(len(some))
        return plain(base, like, some, **rest)

    monkeypatch.setattr(self_training, "read_unlabelled", remember)
    task = dataclasses.replace(task, unlabelled=texts)
    new = set(texts) - set(task.train.texts)
    for limit in (30, 10):
        monkeypatch.setattr(self_training, "MAX_CHARACTERS", limit * sum(map(len, new)) / len(new) + 1)
        said = self_training.propose(task, best)
    assert seen == [30]
    assert "too long" in str(said)


def test_a_sample_of_very_much_text_stays_in_order() -> None:
    texts = [str(place) for place in range(100)]
    assert sample(texts, 100, 0) is texts
    drawn = [int(each) for each in sample(texts, 7, 0)]
    assert drawn == sorted(set(drawn))
    assert len(drawn) == 7
    assert drawn != [int(each) for each in sample(texts, 7, 1)]
