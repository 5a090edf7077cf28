"""Temperatures, against a search over everything."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.finetune.calibration import (
    COLDEST,
    HOTTEST,
    calibrate,
    find_temperature,
    fold_temperature,
    probabilities,
)
from rehead.finetune.metrics import log_loss
from rehead.model.config import Classifier, ViewConfig, preset
from rehead.model.model import Model
from rehead.runs.scoring import classifier_head, score_texts
from rehead.views.encoded import EncodedTexts


def sure(count: int, factor: float, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a classifier that is `factor` times as sure as it should be, and the truth drawn as it should be."""
    chance = np.random.RandomState(0)
    scores = 2 * chance.randn(count, classes)
    shares = probabilities(scores, multilabel=False)
    truth = np.array([chance.choice(classes, p=each) for each in shares])
    return scores * factor, truth


@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0])
def test_the_temperature_takes_back_what_was_too_sure(factor: float) -> None:
    logits, truth = sure(4000, factor)
    assert find_temperature(logits, truth) == pytest.approx(factor, rel=0.1)
    found = calibrate(logits, truth)
    assert found.error_after < 0.03
    if factor != 1:
        assert found.error_after < found.error_before / 3
    assert found.documents == 4000
    assert "before" in str(found)


def test_it_is_the_likeliest_of_all_temperatures() -> None:
    logits, truth = sure(3000, 3.0)
    tried = np.exp(np.linspace(-2, 3, 500))
    losses = [log_loss(probabilities(logits / each, multilabel=False), truth) for each in tried]
    assert find_temperature(logits, truth) == pytest.approx(tried[int(np.argmin(losses))], rel=0.02)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_temperature_stays_between_its_limits(factor: float) -> None:
    found = find_temperature(*sure(500, factor))
    assert found == pytest.approx(COLDEST if factor < 1 else HOTTEST, rel=1e-3)


def test_several_labels_have_one_temperature() -> None:
    chance = np.random.RandomState(0)
    scores = 2 * chance.randn(3000, 2)
    truth = (chance.rand(3000, 2) < probabilities(scores, multilabel=True)).astype(np.float32)
    assert find_temperature(3 * scores, truth) == pytest.approx(3, rel=0.1)


def test_few_documents_do_not_make_it_certain() -> None:
    """All right: the likeliest temperature would be none at all, and every probability 1."""
    logits, truth = np.array([[2.0, -2.0], [-2.0, 2.0], [1.0, -1.0]]), np.array([0, 1, 0])
    found = find_temperature(logits, truth)
    assert 0.2 < found < 3
    assert probabilities(logits / found, multilabel=False).max() < 0.999
    assert find_temperature(np.zeros((0, 2)), np.zeros(0, np.int64)) == 1
    assert np.isfinite(find_temperature(np.zeros((5, 2)), np.zeros(5, np.int64)))


@pytest.mark.parametrize("multilabel", [False, True])
def test_an_offset_is_not_divided(multilabel: bool) -> None:
    """What is known without evidence stays as it is, whatever the temperature."""
    chance = np.random.RandomState(0)
    scores, offset = 2 * chance.randn(4000, 3), np.array([-2.0, 0.0, 1.0])
    shares = probabilities(scores + offset, multilabel=multilabel)
    if multilabel:
        truth = (chance.rand(4000, 3) < shares).astype(np.float32)
    else:
        truth = np.array([chance.choice(3, p=each) for each in shares])
    assert find_temperature(3 * scores, truth, offset=offset) == pytest.approx(3, rel=0.1)
    assert find_temperature(3 * scores, truth) != pytest.approx(3, rel=0.1)


@pytest.mark.parametrize("multilabel", [False, True])
def test_a_balanced_temperature_is_that_of_classes_of_one_size(multilabel: bool) -> None:
    """As if the rare class had been repeated until there are as many of it."""
    chance = np.random.RandomState(0)
    truth = (np.arange(600) < 100).astype(np.int64)
    logits = chance.randn(600, 2)
    logits[np.arange(600), truth] += np.where(truth == 1, 0.3, 3.0)  # what is rare is known less well
    repeated = np.concatenate([np.arange(600), np.tile(np.arange(100), 4)])
    if multilabel:
        truth = np.stack([truth, truth], 1).astype(np.float32)
        logits = (logits[:, 1:] - logits[:, :1]) * [1.0, 1.0]
    found = find_temperature(logits, truth, balanced=True)
    assert found == pytest.approx(find_temperature(logits[repeated], truth[repeated]), rel=0.02)
    assert found > 1.2 * find_temperature(logits, truth)


def test_folding_divides_the_scores() -> None:
    """Of every view, and the bias."""
    import torch

    config = preset("bag", ntokens=30, nhid=8, nbuckets=16)
    tokens = ViewConfig(name="tokens", columns=46, sparse=True)
    model = Model(config, Classifier(classes=3, views=(*config.classifier(3).views, tokens))).eval()
    ids = EncodedTexts(ids=[np.arange(6), np.arange(6, 12)])
    head = classifier_head(model)
    torch.nn.init.normal_(head.of("tokens").weight)
    before = score_texts(model, ids)
    fold_temperature(head, 2.5)
    np.testing.assert_allclose(score_texts(model, ids), before / 2.5, rtol=1e-5)
