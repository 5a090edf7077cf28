"""The quick head: what is fitted after every label, in milliseconds, on features that are there already.

Ridge regression on the labels, in closed form. One eigendecomposition, of the documents' inner products or of the
features', whichever is smaller, gives every strength of regularisation, and the score of every labelled text by a
classifier that was fitted to all the others (leave-one-out): strength and temperature are chosen by the log loss of
these. So the head has out-of-fold probabilities of all labels for nothing, and estimates are made of them.

A prior, from words that were given for the classes, counts as much as the same log loss says: nothing, once labels know
better.

It is not the classifier of the end: that is made by the full recipe (`rehead finetune`).

Shapes: N labelled texts, W texts, D features, K classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

BIAS = 10.0  # square of the constant feature, which is hardly regularised
ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
TEMPERATURES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0)
PRIORS = (0.0, 3.0, 10.0, 30.0)  # weights of the seeds' scores, which are cosines
FIRST_PRIOR = 10.0  # before there is anything to choose it by
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)  # with several labels per text
FEW = 8  # labels below which nothing is chosen: the middle of each list is taken
FLOOR = 1e-4  # no probability is lower: a few labels cannot say "never"
ROWS = 16_384  # scored at once


@dataclass
class Head:
    """A linear classifier, and how its scores become probabilities."""

    weight: Floats
    "(D, K)"
    bias: Floats
    "(K,)"
    temperature: float
    prior: float
    "Weight of the seeds' scores."
    multilabel: bool
    out_of_fold: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    "Probabilities of the labelled texts, each by the others: (N, K)."
    threshold: float = 0.5
    "With several labels per text: those that are as probable are given; chosen by the out-of-fold micro-F1."
    fitted: Fitted | None = field(default=None, repr=False)
    "How it was fitted, to ask what it would be without two of the texts."

    def probabilities(self, features: Floats, prior: Floats | None = None) -> Floats:
        """Give the probability of each class, W × K; in one label per text they sum to 1."""
        found = np.empty((len(features), len(self.bias)), np.float32)
        for begin in range(0, len(features), ROWS):
            some = slice(begin, begin + ROWS)
            scores = features[some] @ self.weight + self.bias
            found[some] = shares(
                scores, self.temperature, self.prior, None if prior is None else prior[some], self.multilabel
            )
        return found

    def decide(self, probabilities: Floats) -> Floats:
        """Decide labels: zeros and ones, (W, K)."""
        if self.multilabel:
            return (probabilities >= self.threshold).astype(np.float32)
        found = np.zeros(probabilities.shape, np.float32)
        if probabilities.size:
            found[np.arange(len(found)), probabilities.argmax(1)] = 1
        return found


@dataclass
class Fitted:
    """A fit, as far as leaving two texts out needs it."""

    solver: _Dual | _Primal
    alpha: float
    targets: NDArray[Any]
    "(N, K)"
    root: NDArray[Any]
    "Square roots of the texts' weights: (N,)."
    prior: Floats | None


def without_two(head: Head, rows: NDArray[np.int64]) -> Iterator[Floats]:
    """Give, for each of these labelled texts, its probabilities by fits without it and another one of them.

    Each is (R, K), one line per other text; the line of the text itself is that of leaving out it alone.
    """
    fitted = head.fitted
    if fitted is None:
        return
    inner = fitted.solver.residual_maker(fitted.alpha, rows)
    residual = fitted.solver.residual(fitted.alpha)[rows]
    diagonal = np.diagonal(inner)
    for place, row in enumerate(rows.tolist()):
        both = diagonal[place] * diagonal - inner[place] ** 2
        both[place] = 1.0
        change = (diagonal[:, None] * residual[place] - inner[place][:, None] * residual) / both[:, None]
        change[place] = residual[place] / diagonal[place]
        scores = fitted.targets[row] - change / fitted.root[row]
        prior = None if fitted.prior is None else fitted.prior[row]
        yield shares(scores, head.temperature, head.prior, prior, head.multilabel)


def shares(
    scores: NDArray[Any],
    temperature: float,
    weight: float,
    prior: NDArray[Any] | None,
    multilabel: bool,
) -> Floats:
    """Turn scores into probabilities."""
    logits = temperature * scores
    if prior is not None and weight:
        logits = logits + weight * prior
    if multilabel:
        found = 1 / (1 + np.exp(-np.clip(2 * logits, -30, 30)))
        return np.clip(found, FLOOR, 1 - FLOOR).astype(np.float32)
    if not logits.shape[1]:  # no class has been named yet
        return np.zeros(logits.shape, np.float32)
    logits = logits - logits.max(1, keepdims=True)
    odds = np.exp(logits)
    found = odds / odds.sum(1, keepdims=True)
    smooth: Floats = ((1 - FLOOR * found.shape[1]) * found + FLOOR).astype(np.float32)
    return smooth


def fit_head(
    features: Floats,
    truth: NDArray[Any],
    *,
    multilabel: bool,
    prior: Floats | None = None,
    weights: NDArray[Any] | None = None,
) -> Head:
    """Fit a head to labelled texts: features (N, D), truth (N, K) of zeros and ones.

    `prior`: scores by the seeds, (N, K). `weights`: how much each text counts, (N,).
    """
    count, width = features.shape
    classes = truth.shape[1]
    if not count:
        zero = np.zeros((width, classes), np.float32)
        return Head(
            zero, np.zeros(classes, np.float32), 1.0, FIRST_PRIOR, multilabel, np.zeros((0, classes), np.float32)
        )
    root = np.ones(count) if weights is None else np.sqrt(np.asarray(weights, np.float64))
    x = np.concatenate([features, np.full((count, 1), BIAS**0.5, features.dtype)], 1).astype(np.float64)
    x *= root[:, None]
    targets = (2.0 * truth - 1) if multilabel or classes == 2 else 2.0 * truth - 2 / max(1, classes)
    y = targets * root[:, None]
    solver = _Dual(x, y) if count <= width else _Primal(x, y)
    best: tuple[float, float, float, float] | None = None
    kept = np.zeros((count, classes))
    for alpha in ALPHAS if count >= FEW else (ALPHAS[3],):
        left_out = solver.left_out(alpha) / root[:, None]
        for temperature in TEMPERATURES if count >= FEW else (TEMPERATURES[2],):
            for weight in (0.0,) if prior is None else PRIORS if count >= FEW else (FIRST_PRIOR,):
                loss = _loss(shares(left_out, temperature, weight, prior, multilabel), truth, multilabel)
                if best is None or loss < best[0]:
                    best, kept = (loss, alpha, temperature, weight), left_out
    assert best is not None  # noqa: S101 (the lists are not empty)
    _, alpha, temperature, weight = best
    solution, out_of_fold = solver.weights(alpha), shares(kept, temperature, weight, prior, multilabel)
    return Head(
        np.ascontiguousarray(solution[:-1], np.float32),
        (BIAS**0.5 * solution[-1]).astype(np.float32),
        temperature,
        weight,
        multilabel,
        out_of_fold,
        _threshold(out_of_fold, truth) if multilabel and count >= FEW else 0.5,
        Fitted(solver, alpha, targets, root, prior),
    )


def _threshold(found: Floats, truth: NDArray[Any]) -> float:
    """Choose the threshold with the best micro-F1, the highest of equals."""

    def micro_f1(threshold: float) -> float:
        given = found >= threshold
        return float(2 * (given * truth).sum() / max(1.0, given.sum() + truth.sum()))

    return max(reversed(THRESHOLDS), key=micro_f1)


def _loss(found: Floats, truth: NDArray[Any], multilabel: bool) -> float:
    right = np.log(np.where(truth > 0, found, 1 - found if multilabel else 1.0))
    return -float(right.sum()) / len(found)


class _Dual:
    """Fewer texts than features: by the kernel of the texts."""

    def __init__(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        self.x, self.y = x, y
        values, self.vectors = np.linalg.eigh(x @ x.T)
        self.values = np.maximum(values, 0)
        self.turned = self.vectors.T @ y

    def left_out(self, alpha: float) -> NDArray[Any]:
        """Score each text by a fit to the others: (N, K)."""
        inverse = 1 / (self.values + alpha)
        solved = self.vectors @ (inverse[:, None] * self.turned)
        diagonal = (self.vectors**2) @ inverse
        found: NDArray[Any] = self.y - solved / diagonal[:, None]
        return found

    def residual(self, alpha: float) -> NDArray[Any]:
        """Give what the fit leaves of the targets, divided by alpha: (N, K)."""
        found: NDArray[Any] = self.vectors @ (self.turned / (self.values + alpha)[:, None])
        return found

    def residual_maker(self, alpha: float, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Give these rows and columns of the matrix that turns targets into residuals: (R, R)."""
        some = self.vectors[rows]
        found: NDArray[Any] = (some / (self.values + alpha)) @ some.T
        return found

    def weights(self, alpha: float) -> NDArray[Any]:
        """Give the weights, (D + 1, K)."""
        found: NDArray[Any] = self.x.T @ (self.vectors @ (self.turned / (self.values + alpha)[:, None]))
        return found


class _Primal:
    """More texts than features: by the normal equations."""

    def __init__(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        self.y = y
        values, self.vectors = np.linalg.eigh(x.T @ x)
        self.values = np.maximum(values, 0)
        self.x = x @ self.vectors
        self.turned = self.x.T @ y

    def left_out(self, alpha: float) -> NDArray[Any]:
        """Score each text by a fit to the others: (N, K)."""
        inverse = 1 / (self.values + alpha)
        fitted = self.x @ (inverse[:, None] * self.turned)
        leverage = np.minimum((self.x**2) @ inverse, 1 - 1e-9)[:, None]
        found: NDArray[Any] = (fitted - leverage * self.y) / (1 - leverage)
        return found

    def residual(self, alpha: float) -> NDArray[Any]:
        """Give what the fit leaves of the targets: (N, K)."""
        found: NDArray[Any] = self.y - self.x @ (self.turned / (self.values + alpha)[:, None])
        return found

    def residual_maker(self, alpha: float, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Give these rows and columns of the matrix that turns targets into residuals: (R, R)."""
        some = self.x[rows]
        found: NDArray[Any] = np.eye(len(rows)) * (1 + 1e-9) - (some / (self.values + alpha)) @ some.T
        return found

    def weights(self, alpha: float) -> NDArray[Any]:
        """Give the weights, (D + 1, K)."""
        found: NDArray[Any] = self.vectors @ (self.turned / (self.values + alpha)[:, None])
        return found
