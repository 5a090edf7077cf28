"""Probabilities that mean what they say: one temperature, found on documents that were not trained on.

A classifier that was trained until it is right is surer than it should be. Dividing its scores by one number, the
temperature, changes no decision between classes and mends most of that. It is the number under which the truth of the
held-out documents is likeliest, and it is folded into the head's weights: a run needs nothing extra, and neither does
an export.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.logistic import log_losses
from rehead.finetune.measures import calibration_error
from rehead.finetune.targets import balance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.model.heads import ClassifierHead

    Floats = NDArray[np.float64]

COLDEST, HOTTEST = 0.05, 20.0
EXACT = 1e-9  # of the logarithm of the temperature


@dataclass
class Calibration:
    """What was found."""

    temperature: float
    error_before: float
    error_after: float
    "Expected calibration error on the documents that the temperature was found on."
    documents: int
    origin: str
    "Where these documents came from."

    def details(self) -> dict[str, Any]:
        """Give it as JSON can hold it."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"calibrated on {self.documents:,} {self.origin} documents: temperature {self.temperature:.2f}, expected "
            f"calibration error {100 * self.error_before:.1f} % before, {100 * self.error_after:.1f} % after"
        )


def calibrate(logits: NDArray[Any], truth: NDArray[Any], origin: str = "validation") -> Calibration:
    """Find the temperature for scores (N, K) and the truth, (N,) or (N, K); tell what it does to the error."""
    found = find_temperature(logits, truth)
    multilabel = truth.ndim == 2
    before = calibration_error(probabilities(logits, multilabel=multilabel), truth)
    after = calibration_error(probabilities(logits / found, multilabel=multilabel), truth)
    return Calibration(round(found, 6), before, after, len(truth), origin)


def find_temperature(logits: NDArray[Any], truth: NDArray[Any], weights: NDArray[Any] | float = 1.0) -> float:
    """Find the temperature of the highest likelihood: by Brent's method, since the loss has one minimum.

    As a prior, add two pseudo-documents, one right and one wrong, with the mean margin of the others: where there are
    few and all are right, the likeliest temperature would be 0. `weights`, in the shape of the truth: sample weights.
    """
    from scipy.optimize import minimize_scalar

    if not len(truth):
        return 1.0
    scores = logits.astype(np.float64)
    found = minimize_scalar(
        lambda heat: _loss(scores, truth, np.exp(heat), weights),
        bounds=(np.log(COLDEST), np.log(HOTTEST)),
        method="bounded",
        options={"xatol": EXACT},
    )
    return float(np.exp(found.x))


def fold_temperature(head: ClassifierHead, temperature: float) -> None:
    """Divide all that the head will ever score by the temperature."""
    import torch

    with torch.no_grad():
        for parameter in head.parameters():
            parameter.div_(temperature)


def probabilities(logits: NDArray[Any], *, multilabel: bool) -> Floats:
    """Turn scores (N, K) into probabilities: shares of one whole, or one yes or no for each label."""
    scores = logits.astype(np.float64)
    if multilabel:
        yes: Floats = 1 / (1 + np.exp(-np.clip(scores, -700, 700)))
        return yes
    shares: Floats = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    return shares


def _loss(logits: Floats, truth: NDArray[Any], temperature: float, weights: NDArray[Any] | float) -> float:
    """Sum −log of the probability of the truth, with the two documents that are thought to be there."""
    scores = logits / temperature
    if truth.ndim == 2:
        signed = np.where(truth > 0, scores, -scores)
        sure = float(np.abs(scores).mean())
        return float((weights * np.logaddexp(0, -signed)).sum()) + _two(sure) * int(truth.shape[1])
    top = scores.max(1, keepdims=True)
    whole = np.log(np.exp(scores - top).sum(1)) + top[:, 0]
    right = scores[np.arange(len(truth)), truth]
    gaps = np.sort(scores, 1)
    sure = float((gaps[:, -1] - gaps[:, -2]).mean()) if scores.shape[1] > 1 else 0.0
    return float((weights * (whole - right)).sum()) + _two(sure)


def _two(sure: float) -> float:
    """What one right and one wrong guess of this sureness lose together."""
    return float(np.logaddexp(0, -sure) + np.logaddexp(0, sure))


def calibrated_losses(logits: Floats, truth: NDArray[Any], *, balanced: bool = False) -> Floats:
    """Give the log loss of each held-out example under the best temperature: (n,)."""
    known = ~np.isnan(logits[:, 0])
    logits, truth = logits[known], truth[known]
    temperature = find_temperature(logits, truth, balance(truth) if balanced else 1.0)
    return log_losses(logits / temperature, truth, balanced=balanced)
