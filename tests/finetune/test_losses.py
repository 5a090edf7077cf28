"""The losses of documents, by hand, and what settings are compared by."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.finetune.calibration import probabilities
from rehead.finetune.losses import log_losses, selection_losses


def test_log_losses() -> None:
    scores = np.array([[1.0, 3.0], [0.0, 0.0]])
    np.testing.assert_allclose(log_losses(scores, np.array([1, 0])), [np.log(1 + np.exp(-2.0)), np.log(2)])
    table = np.array([[1, 0]], np.float32)
    expected = (np.log(1 + np.exp(-1.0)) + np.log(1 + np.exp(3.0))) / 2
    np.testing.assert_allclose(log_losses(scores[:1], table), [expected])


def test_balanced_losses_are_means_of_the_classes() -> None:
    """As if the rare class had been repeated until there are as many of it; of several labels, for each of them."""
    chance = np.random.RandomState(0)
    scores, truth = chance.randn(8, 2), np.array([0, 1, 0, 0, 0, 1, 0, 0])
    repeated = np.concatenate([np.arange(8), [1, 5, 1, 5]])
    for losses in (log_losses, selection_losses):
        expected = losses(scores[repeated], truth[repeated]).mean()
        assert losses(scores, truth, balanced=True).mean() == pytest.approx(expected)
        assert losses(scores, truth).mean() != pytest.approx(expected)
    table = np.stack([truth, np.zeros(8)], 1).astype(np.float32)
    alone = np.stack([np.zeros(8), scores[:, 0]], 1)
    of_first = log_losses(alone[repeated], truth[repeated]).mean()
    of_second = np.logaddexp(0, scores[:, 1]).mean()
    assert log_losses(scores, table, balanced=True).mean() == pytest.approx((of_first + of_second) / 2)


def test_settings_are_compared_by_the_probability_of_the_wrong_classes() -> None:
    scores = np.array([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
    truth = np.array([1, 0, 0])
    right = np.exp([3.0, 0.0, 0.0]) / np.exp(scores).sum(1)
    np.testing.assert_allclose(selection_losses(scores, truth), 1 - right)
    np.testing.assert_allclose(
        selection_losses(scores, truth), 1 - probabilities(scores, multilabel=False)[np.arange(3), truth]
    )


@pytest.mark.parametrize("balanced", [False, True])
def test_of_several_labels_by_the_log_loss(balanced: bool) -> None:
    chance = np.random.RandomState(0)
    scores, table = chance.randn(20, 3), (chance.rand(20, 3) < 0.3).astype(np.float32)
    expected = log_losses(scores, table, balanced=balanced)
    np.testing.assert_array_equal(selection_losses(scores, table, balanced=balanced), expected)


def test_very_large_scores() -> None:
    """A document that is certainly right loses nothing, and what is certainly wrong loses one at most."""
    scores = np.array([[1e4, -1e4], [-1e4, 1e4], [40.0, 0.0]])
    found = selection_losses(scores, np.zeros(3, np.int64))
    np.testing.assert_allclose(found, [0.0, 1.0, 0.0], atol=1e-15)
    assert np.isfinite(log_losses(scores, np.zeros(3, np.int64))).all()
