"""Document vectors teach the words: each step against the same written out, and nothing of held-out labels in it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from rehead.finetune.candidates import linear as linear_candidate
from rehead.finetune.candidates import self_training
from rehead.finetune.candidates.candidate import Candidate, Task
from rehead.finetune.candidates.self_training import (
    LABELLED_WEIGHT,
    WORDS_C,
    confidence,
    fit_words,
    sample,
    score_size,
    teach_words,
)
from rehead.finetune.examples import Examples, read_unlabelled
from rehead.finetune.linear import naive_bayes_scale
from rehead.finetune.options import FitOptions
from rehead.text.documents import LabelledData
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews

pytestmark = pytest.mark.usefixtures("quick_search")
KINDS = [("bad", "good"), ("bad", "good", "so")]


def read(make_base: MakeBase, data: LabelledData, texts: list[str]) -> tuple[Task, Candidate, Examples]:
    """The best linear classifier of few examples, and documents without labels as it reads them."""
    task = Task.make(data, make_base(), FitOptions(), texts)
    best = linear_candidate.propose(task, None)
    return task, best, read_unlabelled(task.base, best.examples, texts)


def propose(task: Task, best: Candidate) -> Candidate:
    found = self_training.propose(task, best)
    assert isinstance(found, Candidate)
    return found


def written_out(examples: Examples, unlabelled: Examples, truth: Any, classes: int) -> Any:
    """The words of both, unlabelled documents first, each word by how unevenly it occurs."""
    table = np.concatenate([unlabelled.features["words"].toarray(), examples.features["words"].toarray()])
    columns, scale = naive_bayes_scale(sparse.csr_matrix(table), truth, classes, 3)
    return table[:, columns] * scale


def close(given: Any, expected: Any) -> None:
    """liblinear regularises the bias too, and stops early."""
    assert np.corrcoef(given, expected)[0, 1] > 0.99
    assert np.abs(given - expected).max() < 0.25 * np.abs(expected).max()


@pytest.mark.parametrize("names", KINDS, ids=len)
def test_words_learn_from_labels_and_from_pseudo_labels_by_confidence(
    make_base: MakeBase, names: tuple[str, ...]
) -> None:
    _, best, unlabelled = read(make_base, reviews(36, names=names), reviews(60, 4, names=names).texts)
    examples, classes = best.examples, len(names)
    linear = best.fit(examples)
    scores = linear.scores(unlabelled)
    found = fit_words(examples, unlabelled, scores)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    sure = (classes * shares.max(1) - 1) / (classes - 1)
    assert confidence(scores) == pytest.approx(sure)
    truth = np.concatenate([scores.argmax(1), examples.truth])
    weights = np.concatenate([sure, np.full(len(examples), LABELLED_WEIGHT)])
    table = written_out(examples, unlabelled, truth, classes)
    for label in range(classes):
        model = LogisticRegression(C=WORDS_C, tol=1e-8, max_iter=5000)
        expected = model.fit(table, truth == label, sample_weight=weights).decision_function(table[:60])
        given = found.view_scores(unlabelled, "words")[:, label] + found.bias[label]
        close(2 * given if classes == 2 else given, expected)
    assert not found.weights["bag"].any()
    # Both are added at the same size.
    words = teach_words(examples, linear, unlabelled).scores(unlabelled) - scores
    words = words - words.mean(0)  # but for the bias
    assert 0.5 < score_size(words) / score_size(scores) < 2


def test_score_size() -> None:
    assert score_size(np.array([[1.0, -1.0], [4.0, 2.0]])) == 1.0
    np.testing.assert_allclose(score_size(np.array([[1.0, -5.0], [3.0, 1.0]]), multilabel=True), [1.0, 3.0])


def test_each_of_several_labels_is_learnt_for_itself(make_base: MakeBase) -> None:
    task, best, unlabelled = read(make_base, multilabel(48), multilabel(60, 4).texts)
    examples, before = best.examples, best.fit(best.examples)
    scores = before.scores(unlabelled)
    found = fit_words(examples, unlabelled, scores)
    shares = 1 / (1 + np.exp(-scores))
    assert confidence(scores, multilabel=True) == pytest.approx(np.abs(2 * shares - 1))
    truth = np.concatenate([shares > 0.5, examples.truth > 0])
    weights = np.concatenate([np.abs(2 * shares - 1), np.full(examples.truth.shape, LABELLED_WEIGHT)])
    table = written_out(examples, unlabelled, truth, 3)
    for label in range(3):
        model = LogisticRegression(C=WORDS_C, tol=1e-8, max_iter=5000)
        expected = model.fit(table, truth[:, label], sample_weight=weights[:, label]).decision_function(table[:60])
        close(found.view_scores(unlabelled, "words")[:, label] + found.bias[label], expected)
    taught = propose(task, best).fit(examples).scores(unlabelled)
    ratio = score_size(taught - scores, multilabel=True) / score_size(scores, multilabel=True)
    assert ratio == pytest.approx(np.full(3, 1.5), abs=0.5)


def test_held_out_labels_are_not_seen(make_base: MakeBase) -> None:
    task, best, _ = read(make_base, reviews(36), reviews(60, 4).texts)
    outside, rest = task.folds[0][1], task.folds[1][1]
    truth = best.examples.truth.copy()
    truth[outside] = 1 - truth[outside]
    other = dataclasses.replace(best, examples=dataclasses.replace(best.examples, truth=truth))
    one, two = (propose(task, each).logits for each in (best, other))
    np.testing.assert_array_equal(one[outside], two[outside])
    assert not np.allclose(one[rest], two[rest])
    assert not np.isnan(one).any()


def test_it_is_not_tried_without_text_or_folds(make_base: MakeBase) -> None:
    task, best, _ = read(make_base, reviews(20), [])
    assert isinstance(self_training.propose(task, best), str)
    task = dataclasses.replace(task, unlabelled=["film"], folds=[])
    assert isinstance(self_training.propose(task, best), str)


def test_a_sample_of_very_much_text_stays_in_order() -> None:
    texts = [str(place) for place in range(100)]
    assert sample(texts, 100, 0) is texts
    drawn = [int(each) for each in sample(texts, 7, 0)]
    assert drawn == sorted(set(drawn))
    assert len(drawn) == 7
    assert drawn != [int(each) for each in sample(texts, 7, 1)]
