"""Self-training: the vectors teach the words.

A classifier of a few hundred labels knows the vectors well and the exact words hardly: most of them are in no labelled
document. It is right about most unlabelled ones, though, so the words learn from its guesses on these, each of which
counts as much as it is sure. They err elsewhere than the vectors do, and both together are better than either: on film
reviews with 500 labels 88.5 becomes 89.9 % (docs/few-labels.md). A second round lets other words learn from what both
say. It is co-training (Blum and Mitchell 1998), one way.

That the whole classifier learns its own surest guesses, vectors included, was tried first and made it worse: it learns
its own faults. What comes out is a linear classifier again, and is kept only if left-out examples gain.

Shapes: N documents, K classes, C rows that have weights.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from rehead.finetune.features import Features, unevenness
from rehead.finetune.linear import Examples, Found, Linear, Setting, fit_average
from rehead.finetune.logistic import one_thread, separate
from rehead.finetune.probe import Probe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOST = 30_000  # unlabelled documents that are read
EXAMPLE = 3.0  # how much a labelled document counts; the surest guess counts 1
STRENGTH = 10.0  # how little the words' weights are held back
FOUND = 3  # documents a row must be found in
ROUNDS = 2
MANY, FEWER = 400, 2  # examples from which on so many folds are enough to judge by
AT_ONCE = 4  # folds that are computed at the same time, at most: each holds the unlabelled words once more


def self_trained(probe: Probe, unlabelled: Features) -> tuple[Found, Linear]:
    """Have the words learn from guesses: what left-out examples are then given, and the classifier of all."""
    examples, settings = probe.examples, probe.found.settings
    folds = probe.folds[: FEWER if len(examples) >= MANY else None]
    parts = [examples.some(inside) for inside, _ in folds]
    at_once = min(AT_ONCE, os.cpu_count() or 1)
    with one_thread(), ThreadPoolExecutor(at_once) as pool:  # liblinear lets others compute
        *judged, linear = pool.map(lambda part: _taught(part, settings, unlabelled), [*parts, examples])
    logits = np.full((len(examples), examples.classes), np.nan)
    for each, (_, outside) in zip(judged, folds, strict=True):
        logits[outside] = each.scores(examples.features.some(outside))
    return Found(settings, logits), linear


def _taught(examples: Examples, settings: Sequence[Setting], unlabelled: Features) -> Linear:
    """Fit to examples; then, in each round, guess the unlabelled documents and add words that have learnt from that."""
    linear = fit_average(examples, settings)
    scores, multilabel = linear.scores(unlabelled), examples.truth.ndim == 2
    size = size_of(scores, multilabel=multilabel)
    for _ in range(ROUNDS):
        words = words_of_guesses(examples, unlabelled, scores)
        of_words = size_of(words.word_scores(unlabelled), multilabel=multilabel)
        linear = together(linear, words, size / np.maximum(of_words, 1e-12))
        scores = linear.scores(unlabelled)
    return linear


def words_of_guesses(examples: Examples, unlabelled: Features, scores: Floats) -> Linear:
    """Fit words alone to examples and to guesses, which are given as scores (N, K)."""
    from scipy import sparse

    words = sparse.vstack((unlabelled.words, examples.features.words)).tocsr()
    multilabel = examples.truth.ndim == 2
    truth = np.concatenate((scores > 0 if multilabel else scores.argmax(1), examples.truth))
    weights = np.concatenate((sureness(scores, multilabel=multilabel), np.full(examples.truth.shape, EXAMPLE)))
    uneven = unevenness(words, truth, examples.classes)
    often = np.bincount(words.indices, minlength=words.shape[1]) >= min(FOUND, words.shape[0])
    rows = np.flatnonzero((uneven > 0) & often)
    inputs = words[:, rows].multiply(uneven[rows][None]).tocsr()
    weight, bias = separate(inputs, truth, examples.classes, STRENGTH, weights, balanced=examples.balanced)
    nothing = np.zeros((examples.classes, examples.features.directions.shape[1]))
    return Linear(nothing, rows, weight * uneven[rows], bias)


def sureness(scores: Floats, *, multilabel: bool = False) -> Floats:
    """How much more likely than by chance the likeliest class is: (N,), from 0 to 1.

    Where documents have several labels: how much likelier yes is than no, or no than yes, of each: (N, K).
    """
    if multilabel:
        either: Floats = np.tanh(np.abs(scores) / 2)
        return either
    shares = np.exp(scores - scores.max(1, keepdims=True))
    classes = scores.shape[1]
    found: Floats = (classes / shares.sum(1) - 1) / (classes - 1)
    return found


def size_of(scores: Floats, *, multilabel: bool = False) -> Floats:
    """How far scores (N, K) lie apart, between the classes of a document: the root of the mean square, ().

    Where documents have several labels: between documents, for each label: (K,).
    """
    apart = scores - scores.mean(0 if multilabel else 1, keepdims=True)
    size: Floats = np.sqrt((apart**2).mean(0 if multilabel else None))
    return size


def together(first: Linear, second: Linear, share: Floats) -> Linear:
    """Add two classifiers; the second counts `share` times as much as it says: a number, or one for each class (K,)."""
    rows, share = np.union1d(first.rows, second.rows), np.broadcast_to(share, len(first.bias))
    words = np.zeros((len(first.bias), len(rows)))
    for each, factor in ((first, np.ones_like(share)), (second, share)):
        words[:, np.searchsorted(rows, each.rows)] += factor[:, None] * each.words
    directions = first.directions + share[:, None] * second.directions
    return Linear(directions, rows, words, first.bias + share * second.bias)
