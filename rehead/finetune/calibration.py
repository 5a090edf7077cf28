"""Calibrate probabilities by temperature scaling on held-out documents.

A classifier fitted to its training set is overconfident. Dividing its logits by one number, the temperature, changes no
prediction and corrects most of that. The temperature minimises the log loss of held-out documents and is folded into
the head's weights, so that runs and exports need no extra parameter.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.finetune.losses import selection_losses
from rehead.finetune.metrics import calibration_error
from rehead.finetune.targets import balanced_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.model.heads import ClassifierHead

    Floats = NDArray[np.float64]

COLDEST, HOTTEST = 0.002, 20.0
TOLERANCE = 1e-9  # of the logarithm of the temperature


@dataclass
class Calibration:
    """The result of calibration."""

    temperature: float
    error_before: float
    error_after: float
    "Expected calibration error on the documents used for calibration."
    documents: int
    origin: str
    "Origin of these documents: validation or out-of-fold."

    def details(self) -> dict[str, Any]:
        """Convert to a JSON-compatible dict."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"calibrated on {self.documents:,} {self.origin} documents: temperature {self.temperature:.2f}, expected "
            f"calibration error {100 * self.error_before:.1f} % before, {100 * self.error_after:.1f} % after"
        )


def calibrate(logits: NDArray[Any], truth: NDArray[Any], origin: str = "validation") -> Calibration:
    """Find the temperature for logits (N, K) and truth (N,) or (N, K), and the calibration error before and after."""
    found = find_temperature(logits, truth)
    multilabel = truth.ndim == 2
    before = calibration_error(probabilities(logits, multilabel=multilabel), truth)
    after = calibration_error(probabilities(logits / found, multilabel=multilabel), truth)
    return Calibration(round(found, 6), before, after, len(truth), origin)


def find_temperature(
    logits: NDArray[Any], truth: NDArray[Any], *, offset: NDArray[Any] | float = 0.0, balanced: bool = False
) -> float:
    """Find the temperature that minimises the log loss, by Brent's method: the loss has a single minimum.

    As a prior, add two pseudo-documents of the mean margin, one right and one wrong: if there are few documents and all
    are right, the optimum would be a temperature of 0. `offset` (K,) is added to the logits after they were divided.
    """
    from scipy.optimize import minimize_scalar

    if not len(truth):
        return 1.0
    scores, weights = logits.astype(np.float64), balanced_weights(truth) if balanced else 1.0
    found = minimize_scalar(
        lambda log_temperature: _loss(scores / np.exp(log_temperature) + offset, truth, weights),
        bounds=(np.log(COLDEST), np.log(HOTTEST)),
        method="bounded",
        options={"xatol": TOLERANCE},
    )
    return float(np.exp(found.x))


def fold_temperature(head: ClassifierHead, temperature: float) -> None:
    """Divide the head's weights, and so its logits, by the temperature."""
    import torch

    with torch.no_grad():
        for parameter in head.parameters():
            parameter.div_(temperature)


def probabilities(logits: NDArray[Any], *, multilabel: bool) -> Floats:
    """Turn logits (N, K) into probabilities: softmax, or a sigmoid for each label."""
    scores = logits.astype(np.float64)
    if multilabel:
        sigmoid: Floats = 1 / (1 + np.exp(-np.clip(scores, -700, 700)))
        return sigmoid
    softmax: Floats = np.exp(scores - scores.max(1, keepdims=True))
    softmax /= softmax.sum(1, keepdims=True)
    return softmax


def _loss(scores: Floats, truth: NDArray[Any], weights: NDArray[Any] | float) -> float:
    """Sum the log losses, those of the two pseudo-documents included."""
    if truth.ndim == 2:
        signed = np.where(truth > 0, scores, -scores)
        margin = float(np.abs(scores).mean())
        return float((weights * np.logaddexp(0, -signed)).sum()) + _prior_loss(margin) * int(truth.shape[1])
    top = scores.max(1, keepdims=True)
    log_sum = np.log(np.exp(scores - top).sum(1)) + top[:, 0]
    right = scores[np.arange(len(truth)), truth]
    ranked = np.sort(scores, 1)
    margin = float((ranked[:, -1] - ranked[:, -2]).mean()) if scores.shape[1] > 1 else 0.0
    return float((weights * (log_sum - right)).sum()) + _prior_loss(margin)


def _prior_loss(margin: float) -> float:
    """Log loss of the two pseudo-documents, one right and one wrong, at this margin."""
    return float(np.logaddexp(0, -margin) + np.logaddexp(0, margin))


def calibrated_losses(logits: Floats, truth: NDArray[Any], *, balanced: bool = False) -> Floats:
    """Compute the loss of each held-out example after temperature scaling: (n,). Rows of NaN are skipped."""
    known = ~np.isnan(logits[:, 0])
    logits, truth = logits[known], truth[known]
    temperature = find_temperature(logits, truth, balanced=balanced)
    return selection_losses(logits / temperature, truth, balanced=balanced)
