"""Linear baselines: the two bag-of-words classifiers that are hardest to beat.

    tfidf    TF-IDF of unigrams and bigrams (sublinear tf, L2-normalised), logistic regression
    nbsvm    NB-SVM (Wang and Manning 2012): binary unigrams and bigrams, weighted by their naive-Bayes log-count ratio,
             a linear support vector machine, its weights interpolated with their mean magnitude (β = 0.25)

Tokens are words, single characters of scripts written without spaces, and punctuation marks, which are worth a point on
film reviews. `C` and `min_df` (1 or 2) are chosen by cross-validation on the training labels; if a class has a single
example, cross-validation is impossible and the default C is used. NB-SVM's ratios are recomputed in every fold, since
they depend on the labels. The out-of-fold scores also fit the slope of the sigmoid that turns scores into
probabilities (Platt scaling without intercept).

Multiclass and multilabel sets are one-vs-rest. On 1,600 film reviews a baseline takes 5 s on one core, nearly all of it
for counting words; liblinear's dual solver takes 0.05 s where lbfgs takes 0.4 s.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from rehead.finetune.splits import folds, max_folds
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
C_GRID: dict[Name, tuple[float, ...]] = {
    "tfidf": (0.3, 1, 3, 10, 30, 100, 300),
    "nbsvm": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1),
}
DEFAULT_C: dict[Name, float] = {"tfidf": 10, "nbsvm": 0.1}  # where cross-validation is impossible
FOLDS = 5
SMOOTHING, INTERPOLATION = 1.0, 0.25
RARE_FROM = 5_000  # texts; from this size on only min_df=2 is tried


Scorer = Callable[["csr_matrix"], Floats]
"Counts (N, words) → scores (N, questions)."


@dataclass(frozen=True)
class Choice:
    """Hyperparameters chosen by cross-validation."""

    c: float
    "Inverse regularisation strength, scikit-learn's C."
    min_df: int
    "Ignore words and bigrams that occur in fewer texts."
    slope: float
    "Factor that turns scores into log-odds."
    accuracy: float
    "Out-of-fold accuracy."


@dataclass
class Baseline:
    """A trained baseline."""

    predict: Callable[[Sequence[str]], Floats]
    "Texts → probabilities (N, K)."
    seconds: float
    "Training time, cross-validation included."
    notes: list[str]


def fit_baseline(name: Name, train: LabelledData, names: Sequence[str], seed: int = 0) -> Baseline:
    """Train a baseline with hyperparameters chosen by cross-validation; `names` are the classes, in order."""
    from sklearn.feature_extraction.text import CountVectorizer

    started = time.perf_counter()
    truth = targets(train, names, multilabel=True) > 0
    counter = CountVectorizer(ngram_range=(1, 2), token_pattern=TOKEN, dtype=np.float64)
    counts = counter.fit_transform(train.texts)
    fit = _fit_tfidf if name == "tfidf" else _fit_nbsvm
    binary = truth if train.multilabel or len(names) != 2 else truth[:, 1:]  # (N, questions): one-vs-rest targets
    nfolds = max_folds(train, FOLDS)
    if nfolds < 2:
        chosen = Choice(DEFAULT_C[name], 1, 1.0, 0.0)
        notes = [f"C = {chosen.c:g}, the default: a class has one example, too few for cross-validation"]
    else:
        chosen = _cross_validate(fit, C_GRID[name], counts, binary, folds(train, nfolds, seed), train.multilabel)
        notes = [
            f"C = {chosen.c:g} and min_df = {chosen.min_df} by {nfolds}-fold cross-validation "
            f"(accuracy {100 * chosen.accuracy:.1f} %)"
        ]
    kept = _frequent_columns(counts, chosen.min_df)
    score = fit(counts[:, kept], binary, chosen.c)

    def predict(texts: Sequence[str]) -> Floats:
        return _probabilities(chosen.slope * score(counter.transform(texts)[:, kept]), train.multilabel)

    return Baseline(predict, time.perf_counter() - started, notes)


def _frequent_columns(counts: csr_matrix, min_df: int) -> Ints:
    """Find the columns with a document frequency of at least `min_df`."""
    return np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1]) >= min_df)


def _fit_tfidf(counts: csr_matrix, binary: Flags, c: float) -> Scorer:
    """Fit TF-IDF and logistic regression."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    tfidf = TfidfTransformer(sublinear_tf=True).fit(counts)
    features = tfidf.transform(counts)
    models = [
        _constant(target)
        or LogisticRegression(C=c, solver="liblinear", dual=True, max_iter=1000, random_state=0)
        .fit(features, target)
        .decision_function
        for target in binary.T
    ]
    return lambda given: np.stack([model(tfidf.transform(given)) for model in models], 1)


def _fit_nbsvm(counts: csr_matrix, binary: Flags, c: float) -> Scorer:
    """Fit NB-SVM."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    present = counts.sign()
    models = []
    for target in binary.T:
        if constant := _constant(target):
            models.append(constant)
            continue
        positive = SMOOTHING + np.asarray(present[target].sum(0)).ravel()
        negative = SMOOTHING + np.asarray(present[~target].sum(0)).ravel()
        ratio = np.log(positive / positive.sum()) - np.log(negative / negative.sum())  # (words,)
        svm = LinearSVC(C=c, dual=True, max_iter=2000, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", ConvergenceWarning
            )  # a large C converges slowly, and the rest hardly matters
            svm.fit(present.multiply(ratio).tocsr(), target)
        weights = svm.coef_[0]
        weights = (1 - INTERPOLATION) * np.abs(weights).mean() + INTERPOLATION * weights
        models.append(_linear(ratio * weights, float(svm.intercept_[0]) * INTERPOLATION))
    return lambda given: np.stack([model(given.sign()) for model in models], 1)


def _linear(weights: Floats, bias: float) -> Callable[[csr_matrix], Floats]:
    return lambda features: np.asarray(features @ weights + bias)


def _constant(target: Flags) -> Callable[[csr_matrix], Floats] | None:
    """Give a constant score where all training examples, or none, have the label: there is nothing to fit."""
    if 0 < target.sum() < len(target):
        return None
    score = 5.0 if target.all() else -5.0
    return lambda features: np.full(features.shape[0], score)


def _cross_validate(
    fit: Callable[[csr_matrix, Flags, float], Scorer],
    grid: Sequence[float],
    counts: csr_matrix,
    binary: Flags,
    folds: Sequence[tuple[Ints, Ints]],
    multilabel: bool,
) -> Choice:
    """Choose C, min_df and the slope by out-of-fold accuracy; ties are broken by log loss."""
    found: list[tuple[float, Choice]] = []
    for min_df in (2,) if len(binary) >= RARE_FROM else (1, 2):
        kept = counts[:, _frequent_columns(counts, min_df)]
        if not kept.shape[1]:
            continue
        for c in grid:
            out_of_fold = np.zeros(binary.shape)
            for train, held_out in folds:
                out_of_fold[held_out] = fit(kept[train], binary[train], c)(kept[held_out])
            losses = {float(slope): _log_loss(slope * out_of_fold, binary) for slope in 2.0 ** np.arange(-4, 5)}
            slope = min(losses, key=losses.__getitem__)
            found.append((losses[slope], Choice(c, min_df, slope, _accuracy(out_of_fold, binary, multilabel))))
    return min(found, key=lambda each: (-each[1].accuracy, each[0]))[1]


def _probabilities(scores: Floats, multilabel: bool) -> Floats:
    """Turn scores into probabilities. (N, questions) → (N, K)."""
    positive = 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
    if multilabel:
        return np.asarray(positive)
    if scores.shape[1] == 1:
        return np.concatenate([1 - positive, positive], 1)
    return np.asarray(positive / positive.sum(1, keepdims=True))


def _log_loss(scores: Floats, binary: Flags) -> float:
    """Mean binary log loss over all questions."""
    return float(np.logaddexp(0, np.where(binary, -scores, scores)).mean())


def _accuracy(scores: Floats, binary: Flags, multilabel: bool) -> float:
    """Accuracy over the documents; for multilabel data, over all pairs of document and label."""
    if multilabel or scores.shape[1] == 1:
        return float(((scores > 0) == binary).mean())
    return float(binary[np.arange(len(binary)), scores.argmax(1)].mean())
