"""Self-training: what a classifier is sure of among unlabelled documents, it learns from as if it had been labelled.

The surest fifth of the unlabelled documents, classes in the proportion of the labelled ones, joins the examples; all of
it together counts twice as much as these. More of it, or more rounds, made it worse: a linear classifier that is shown
its own guesses learns its own faults (docs/few-labels.md). It is kept only if left-out examples gain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from rehead.finetune.features import Features
from rehead.finetune.linear import Examples, Found, Linear, Setting, fit_average
from rehead.finetune.probe import Probe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MOST = 10_000  # unlabelled documents that are read
SHARE = 0.2  # of them that is believed
WEIGHT = 2.0  # how much these count together, against all examples


def self_trained(probe: Probe, unlabelled: Features) -> tuple[Found, Linear]:
    """Train again with unlabelled documents: what left-out examples are then given, and the classifier of all."""
    examples, settings = probe.examples, probe.found.settings
    logits = np.full((len(examples), examples.classes), np.nan)
    for inside, outside in probe.folds:
        linear = _round(examples.some(inside), settings, unlabelled)
        logits[outside] = linear.scores(examples.features.some(outside))
    return Found(settings, logits), _round(examples, settings, unlabelled)


def _round(examples: Examples, settings: Sequence[Setting], unlabelled: Features) -> Linear:
    """Fit to examples, label the unlabelled documents, and fit to both."""
    features, truth = examples.features, examples.truth
    first = fit_average(examples, settings)
    believed, guess = surest(first.scores(unlabelled), np.bincount(truth, minlength=examples.classes))
    if not len(believed):
        return first
    joined = Features(
        np.concatenate((features.directions, unlabelled.directions[believed])),
        sparse.vstack((features.words, unlabelled.words[believed])).tocsr(),
    )
    weights = np.concatenate((np.ones(len(truth)), np.full(len(guess), WEIGHT * len(truth) / len(guess))))
    both = dataclasses.replace(examples, features=joined, truth=np.concatenate((truth, guess)), weights=weights)
    return fit_average(both, settings)


def surest(logits: NDArray[Any], counts: Ints) -> tuple[Ints, Ints]:
    """Choose the surest guesses, classes in proportion to `counts` (K,): which documents, and their classes."""
    guess = logits.argmax(1)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    sure = shares.max(1) / shares.sum(1)
    wanted = SHARE * len(logits) * counts / max(1, counts.sum())
    chosen = []
    for label in range(len(counts)):
        members = np.flatnonzero(guess == label)
        chosen.append(members[np.argsort(-sure[members], kind="stable")][: round(wanted[label])])
    believed = np.concatenate(chosen)
    return believed, guess[believed]
