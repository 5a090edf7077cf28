"""Learning from one's own surest guesses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rehead.finetune import self_training
from rehead.finetune.features import read_documents
from rehead.finetune.linear import fit_average
from rehead.finetune.options import FitOptions
from rehead.finetune.probe import Probe, find_probe
from rehead.finetune.self_training import self_trained, surest
from rehead.model.reading import encode
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import reviews


def test_the_surest_of_each_class_in_proportion() -> None:
    sure = np.array([0.1, 3.0, 1.0, 2.0, 0.5, 4.0, 0.2, 1.5, 5.0, 0.3])
    side = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    logits = np.where(side[:, None] == np.arange(2), sure[:, None], 0.0)
    believed, guess = surest(logits, np.array([7, 7]))  # a fifth of ten: one each
    assert believed.tolist() == [1, 8]
    assert guess.tolist() == [0, 1]
    believed, guess = surest(np.repeat(logits, 2, axis=0), np.array([30, 10]))  # a fifth of twenty: three, one
    assert believed.tolist() == [2, 3, 6, 16]
    assert guess.tolist() == [0, 0, 0, 1]
    believed, _ = surest(logits, np.array([0, 5]))
    assert believed.tolist() == [8, 5]
    assert not len(surest(logits[:0], np.array([1, 1]))[0])


@pytest.fixture
def probe(make_base: MakeBase) -> Probe:
    return find_probe(reviews(24), make_base(), FitOptions(), words=True)


def test_it_fits_again_with_what_it_believes(make_base: MakeBase, probe: Probe) -> None:
    base = make_base()
    assert base.tokenizer is not None
    texts = encode(base.tokenizer, reviews(50, 4).texts)
    features, _ = read_documents(base.model, texts, probe.examples.space)
    found, linear = self_trained(probe, features)
    examples = probe.examples
    first = fit_average(examples, probe.found.settings)
    believed, guess = surest(first.scores(features), np.bincount(examples.truth))
    assert len(believed) == 10
    everything, _ = read_documents(
        base.model,
        [*encode(base.tokenizer, reviews(24).texts), *(texts[each] for each in believed)],
        probe.examples.space,
    )
    weights = np.array([1.0] * 24 + [2.0 * 24 / 10] * 10)
    truth = np.concatenate((examples.truth, guess))
    both = dataclasses.replace(examples, features=everything, truth=truth, weights=weights)
    expected = fit_average(both, probe.found.settings)
    scores = linear.scores(examples.features)
    np.testing.assert_allclose(scores, expected.scores(examples.features), atol=1e-6)
    assert not np.allclose(scores, first.scores(examples.features), atol=1e-3)
    assert not np.isnan(found.logits).any()


def test_left_out_labels_are_not_seen(make_base: MakeBase, probe: Probe) -> None:
    base = make_base()
    assert base.tokenizer is not None
    features, _ = read_documents(base.model, encode(base.tokenizer, reviews(50, 4).texts), probe.examples.space)
    outside = probe.folds[0][1]
    truth = probe.examples.truth.copy()
    truth[outside] = 1 - truth[outside]
    other = dataclasses.replace(probe, examples=dataclasses.replace(probe.examples, truth=truth))
    one, _ = self_trained(probe, features)
    two, _ = self_trained(other, features)
    np.testing.assert_array_equal(one.logits[outside], two.logits[outside])
    rest = probe.folds[1][1]
    assert not np.allclose(one.logits[rest], two.logits[rest])


def test_with_too_few_to_believe_nothing_changes(
    make_base: MakeBase, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_training, "SHARE", 0.0)
    _, linear = self_trained(probe, probe.examples.features)
    features = probe.examples.features
    np.testing.assert_array_equal(linear.scores(features), probe.linear.scores(features))
