"""What a linear model makes of the same labels: the two baselines that are hardest to beat, and no straw men.

    tfidf    TF-IDF of words and pairs of words (sublinear counts, rows of length one), logistic regression
    nbsvm    NB-SVM (Wang and Manning 2012): words and pairs that are there or not, weighted by their naive-Bayes
             log-count ratio, a linear support vector machine, its weights interpolated with their mean size (β = 0.25)

Both read words, single characters of scripts that are written without spaces, and punctuation, which is worth a point
on film reviews. Their penalty, and whether words that a single text has are left out, are chosen by cross-validation on
the training labels, from 20 labels up; with a single example of a class there is nothing to fold, and what is usual is
taken. NB-SVM's ratios are made anew in every fold, since they know the labels. The answers held out by the folds also
say how steep an SVM's probabilities are.

Several classes, and several labels, are one against the rest. On 1,600 film reviews a baseline takes 5 s on one core,
nearly all of it for counting words; liblinear in its dual form takes 0.05 s where the usual solver takes 0.4 s.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from rehead.finetune.splits import folds, most_folds
from rehead.finetune.targets import targets
from rehead.text.documents import LabelledData
from rehead.text.word_hashes import UNSPACED

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Name = Literal["tfidf", "nbsvm"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

TOKEN = rf"(?u)[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]"
PENALTIES: dict[Name, tuple[float, ...]] = {
    "tfidf": (0.3, 1, 3, 10, 30, 100, 300),
    "nbsvm": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1),
}
USUAL: dict[Name, float] = {"tfidf": 10, "nbsvm": 0.1}  # where there is nothing to cross-validate
FOLDS = 5
SMOOTHING, INTERPOLATION = 1.0, 0.25
RARE_FROM = 5_000  # texts, from which on words that a single one has are left out unasked


@dataclass(frozen=True)
class Choice:
    """What cross-validation has chosen."""

    penalty: float
    rarest: int
    "Words are left out that fewer texts have."
    steepness: float
    "What scores are multiplied with to be the logarithms of odds."
    right: float
    "Share of the held-out examples that were right."


@dataclass
class Baseline:
    """A linear model that has learnt."""

    predict: Callable[[Sequence[str]], Floats]
    "Texts → probabilities (N, K)."
    seconds: float
    "What learning took, cross-validation included."
    notes: list[str]


def fit_baseline(name: Name, train: LabelledData, names: Sequence[str], seed: int = 0) -> Baseline:
    """Train a baseline, its penalty chosen by cross-validation. `names` gives the classes their order."""
    from sklearn.feature_extraction.text import CountVectorizer

    started = time.perf_counter()
    truth = targets(train, names, multilabel=True) > 0
    counter = CountVectorizer(ngram_range=(1, 2), token_pattern=TOKEN, dtype=np.float64)
    counts = counter.fit_transform(train.texts)
    learn = _learn_tfidf if name == "tfidf" else _learn_nbsvm
    asked = truth if train.multilabel or len(names) != 2 else truth[:, 1:]  # (N, questions of yes or no)
    several = most_folds(train, FOLDS)
    if several < 2:
        chosen = Choice(USUAL[name], 1, 1.0, 0.0)
        notes = [f"penalty C = {chosen.penalty:g}: a class has one example, too few for cross-validation"]
    else:
        chosen = _choose(learn, PENALTIES[name], counts, asked, folds(train, several, seed), train.multilabel)
        words = "words of one text left out, " if chosen.rarest > 1 else ""
        notes = [
            f"{words}penalty C = {chosen.penalty:g} by {several}-fold cross-validation ({100 * chosen.right:.1f} % "
            "right)"
        ]
    kept = _found_in(counts, chosen.rarest)
    score = learn(counts[:, kept], asked, chosen.penalty)

    def predict(texts: Sequence[str]) -> Floats:
        return _probabilities(chosen.steepness * score(counter.transform(texts)[:, kept]), train.multilabel)

    return Baseline(predict, time.perf_counter() - started, notes)


def _found_in(counts: csr_matrix, texts: int) -> Ints:
    """Which words are found in so many texts at least."""
    return np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1]) >= texts)


def _learn_tfidf(counts: csr_matrix, asked: Flags, penalty: float) -> Callable[[csr_matrix], Floats]:
    """Learn TF-IDF + logistic regression; give what scores counts. (N, words) → (N, questions)."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    weigh = TfidfTransformer(sublinear_tf=True).fit(counts)
    rows = weigh.transform(counts)
    models = [
        _constant(wanted)
        or LogisticRegression(C=penalty, solver="liblinear", dual=True, max_iter=1000, random_state=0)
        .fit(rows, wanted)
        .decision_function
        for wanted in asked.T
    ]
    return lambda given: np.stack([model(weigh.transform(given)) for model in models], 1)


def _learn_nbsvm(counts: csr_matrix, asked: Flags, penalty: float) -> Callable[[csr_matrix], Floats]:
    """Learn NB-SVM; give what scores counts. (N, words) → (N, questions)."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    there = counts.sign()
    models = []
    for wanted in asked.T:
        if constant := _constant(wanted):
            models.append(constant)
            continue
        yes = SMOOTHING + np.asarray(there[wanted].sum(0)).ravel()
        no = SMOOTHING + np.asarray(there[~wanted].sum(0)).ravel()
        ratio = np.log(yes / yes.sum()) - np.log(no / no.sum())  # (words,)
        svm = LinearSVC(C=penalty, dual=True, max_iter=2000, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a weak penalty converges slowly, and matters little
            svm.fit(there.multiply(ratio).tocsr(), wanted)
        weights = svm.coef_[0]
        weights = (1 - INTERPOLATION) * np.abs(weights).mean() + INTERPOLATION * weights
        models.append(_linear(ratio * weights, float(svm.intercept_[0]) * INTERPOLATION))
    return lambda given: np.stack([model(given.sign()) for model in models], 1)


def _linear(weights: Floats, bias: float) -> Callable[[csr_matrix], Floats]:
    return lambda rows: np.asarray(rows @ weights + bias)


def _constant(wanted: Flags) -> Callable[[csr_matrix], Floats] | None:
    """Answer what all training examples, or none, have: there is nothing to learn from."""
    if 0 < wanted.sum() < len(wanted):
        return None
    score = 5.0 if wanted.all() else -5.0
    return lambda rows: np.full(rows.shape[0], score)


def _choose(
    learn: Callable[[csr_matrix, Flags, float], Callable[[csr_matrix], Floats]],
    penalties: Sequence[float],
    counts: csr_matrix,
    asked: Flags,
    folds: Sequence[tuple[Ints, Ints]],
    multilabel: bool,
) -> Choice:
    """Find what gets most right on what was held out; ties go by the loss."""
    found: list[tuple[float, Choice]] = []
    for rarest in (2,) if len(asked) >= RARE_FROM else (1, 2):
        kept = counts[:, _found_in(counts, rarest)]
        if not kept.shape[1]:
            continue
        for penalty in penalties:
            held_out = np.zeros(asked.shape)
            for inside, outside in folds:
                held_out[outside] = learn(kept[inside], asked[inside], penalty)(kept[outside])
            losses = {float(steep): _loss(steep * held_out, asked) for steep in 2.0 ** np.arange(-4, 5)}
            steepness = min(losses, key=losses.__getitem__)
            right = _right(held_out, asked, multilabel)
            found.append((losses[steepness], Choice(penalty, rarest, steepness, right)))
    return min(found, key=lambda each: (-each[1].right, each[0]))[1]


def _probabilities(scores: Floats, multilabel: bool) -> Floats:
    """Turn scores into probabilities. (N, questions) → (N, K)."""
    yes = 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
    if multilabel:
        return np.asarray(yes)
    if scores.shape[1] == 1:
        return np.concatenate([1 - yes, yes], 1)
    return np.asarray(yes / yes.sum(1, keepdims=True))


def _loss(scores: Floats, asked: Flags) -> float:
    """Mean log loss over all questions."""
    return float(np.logaddexp(0, np.where(asked, -scores, scores)).mean())


def _right(scores: Floats, asked: Flags, multilabel: bool) -> float:
    """Share of documents that were labelled rightly; with several labels, share of the answers."""
    if multilabel or scores.shape[1] == 1:
        return float(((scores > 0) == asked).mean())
    return float(asked[np.arange(len(asked)), scores.argmax(1)].mean())
