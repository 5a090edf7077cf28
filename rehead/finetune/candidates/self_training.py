"""Self-training on unlabelled text, one way: the document vectors teach the exact words (co-training).

A classifier of a few hundred labels knows the vectors well and the exact words hardly: most of them occur in no
labelled document. It is right about most unlabelled ones, though, so the words are fitted to its pseudo-labels for
these, each weighted by confidence. Words err on other documents than vectors do, and both together are better than
either: on film reviews with 500 labels 88.5 becomes 89.9 % (docs/experiments/few-labels.md). A second round fits words
to what both say. It is co-training (Blum and Mitchell 1998), in one direction.

Fitting the whole classifier, vectors included, to its own surest pseudo-labels was tried first and made it worse: it
learns its own mistakes. What comes out is a linear classifier again.

Shapes: N documents, K classes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from rehead.finetune.build import build_linear
from rehead.finetune.candidates.candidate import Candidate, Task
from rehead.finetune.examples import Examples, read_unlabelled
from rehead.finetune.linear import LinearClassifier, mean_classifier, naive_bayes_scale
from rehead.finetune.logistic import fit_one_vs_rest, one_thread
from rehead.text.order import shuffled
from rehead.text.random_streams import Stream

if TYPE_CHECKING:
    from rehead.finetune.candidates.candidate import Floats

MAX_DOCUMENTS = 30_000  # unlabelled ones that are read
LABELLED_WEIGHT = 3.0  # of a labelled document; the most confident pseudo-label weighs 1
WORDS_C = 10.0
MIN_DOCUMENTS = 3  # in which a word must occur
ROUNDS = 2
MANY, FEWER_FOLDS = 400, 2  # from so many examples on, so many folds are enough to judge by
PARALLEL = 4  # folds computed at the same time, at most: each holds the unlabelled words once more


def propose(task: Task, best: Candidate | None) -> Candidate | str:
    """Fit words to pseudo-labels: out-of-fold scores, and the classifier of all examples."""
    if not task.unlabelled:
        return "no unlabelled text was given"
    if best is None or not task.folds:
        return "nothing could be held out to judge it by"
    if "words" not in best.examples.features:
        return "it teaches exact words, which are not read"
    examples, before = best.examples, best.fit
    unlabelled = read_unlabelled(task.base, examples, sample(task.unlabelled, MAX_DOCUMENTS, task.options.seed))

    def fit(some: Examples) -> LinearClassifier:
        return teach_words(some, before(some), unlabelled)

    folds = task.folds[: FEWER_FOLDS if len(examples) >= MANY else None]
    parts = [examples.take(inside) for inside, _ in folds]
    with one_thread(), ThreadPoolExecutor(min(PARALLEL, os.cpu_count() or 1)) as pool:  # liblinear frees the GIL
        *judged, linear = pool.map(fit, [*parts, examples])
    logits = np.full((len(examples), examples.classes), np.nan)
    for each, (_, outside) in zip(judged, folds, strict=True):
        logits[outside] = each.scores(examples.take(outside))
    return dataclasses.replace(
        best,
        name="self-training",
        logits=logits,
        fit=fit,
        build=lambda: build_linear(task.base, examples, linear, task.train),
        notes=[],
    )


def sample(texts: Sequence[str], count: int, seed: int) -> Sequence[str]:
    """Draw at most so many texts; they stay in their order."""
    if len(texts) <= count:
        return texts
    chosen = np.sort(shuffled(np.arange(count), len(texts), seed, Stream.UNLABELLED))
    return [texts[int(each)] for each in chosen]


def teach_words(examples: Examples, linear: LinearClassifier, unlabelled: Examples) -> LinearClassifier:
    """In each round, pseudo-label the unlabelled documents and add words that were fitted to that."""
    scores = linear.scores(unlabelled)
    size = score_size(scores, multilabel=examples.multilabel)
    for _ in range(ROUNDS):
        words = fit_words(examples, unlabelled, scores)
        own = score_size(words.view_scores(unlabelled, "words"), multilabel=examples.multilabel)
        share = np.broadcast_to(size / np.maximum(own, 1e-12), len(linear.bias))
        linear = mean_classifier([linear, words], [np.ones_like(share), share])
        scores = linear.scores(unlabelled)
    return linear


def fit_words(examples: Examples, unlabelled: Examples, scores: Floats) -> LinearClassifier:
    """Fit words alone to the labels and to pseudo-labels, which are given as scores (N, K)."""
    from scipy import sparse

    words = sparse.vstack((unlabelled.features["words"], examples.features["words"])).tocsr()
    multilabel = examples.multilabel
    truth = np.concatenate((scores > 0 if multilabel else scores.argmax(1), examples.truth))
    known = np.full(examples.truth.shape, LABELLED_WEIGHT)
    weights = np.concatenate((confidence(scores, multilabel=multilabel), known))
    columns, scale = naive_bayes_scale(words, truth, examples.classes, MIN_DOCUMENTS)
    inputs = words[:, columns].multiply(scale[None]).tocsr()
    weight, bias = fit_one_vs_rest(inputs, truth, examples.classes, WORDS_C, weights, balanced=examples.balanced)
    parts: dict[str, Floats] = {"words": weight * scale}
    other = {view.name: np.zeros((examples.classes, view.columns)) for view in examples.views if view.name != "words"}
    return LinearClassifier({**other, **parts}, {"words": columns}, bias)


def confidence(scores: Floats, *, multilabel: bool = False) -> Floats:
    """How much more likely than by chance the likeliest class is: (N,), from 0 to 1; (N, K) if multilabel."""
    if multilabel:
        either: Floats = np.tanh(np.abs(scores) / 2)
        return either
    shares = np.exp(scores - scores.max(1, keepdims=True))
    classes = scores.shape[1]
    found: Floats = (classes / shares.sum(1) - 1) / (classes - 1)
    return found


def score_size(scores: Floats, *, multilabel: bool = False) -> Floats:
    """Root mean square of how far scores (N, K) differ between the classes of a document: ().

    If multilabel, between documents, for each label: (K,).
    """
    apart = scores - scores.mean(0 if multilabel else 1, keepdims=True)
    size: Floats = np.sqrt((apart**2).mean(0 if multilabel else None))
    return size
