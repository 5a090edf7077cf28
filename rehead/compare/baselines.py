"""What a linear model makes of the same labels: the two baselines that are hardest to beat, and no straw men.

    tfidf    TF-IDF of words and pairs of words (sublinear counts, rows of length one), logistic regression
    nbsvm    NB-SVM (Wang and Manning 2012): words and pairs that are there or not, weighted by their naive-Bayes
             log-count ratio, a linear support vector machine, its weights interpolated with their mean size (β = 0.25)

Both read words, single characters of scripts that are written without spaces, and punctuation, which is worth a point
on film reviews. Their penalty is chosen by cross-validation on the training labels, from 20 labels up; with a single
example of a class there is nothing to fold, and a usual penalty is taken. NB-SVM's ratios are made anew in every fold,
since they know the labels. The answers held out by the folds also say how steep an SVM's probabilities are.

Several classes, and several labels, are one against the rest. On 1,600 film reviews a baseline takes 5 s on one core,
nearly all of it for counting words; liblinear in its dual form takes 0.05 s where the usual solver takes 0.4 s.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rehead.text.documents import LabelledData
from rehead.text.order import shuffled
from rehead.text.words import ALONE

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Name = Literal["tfidf", "nbsvm"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

TOKEN = rf"(?u)[{ALONE}]|[^\W{ALONE}]+|[^\w\s]"
PENALTIES: dict[Name, tuple[float, ...]] = {
    "tfidf": (0.3, 1, 3, 10, 30, 100, 300),
    "nbsvm": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1),
}
USUAL: dict[Name, float] = {"tfidf": 10, "nbsvm": 0.1}  # where there is nothing to cross-validate
FOLDS = 5
SMOOTHING, INTERPOLATION = 1.0, 0.25
RARE_FROM = 5_000  # documents, from which words that only one of them has are left out


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
    started = time.perf_counter()
    truth = label_table(train, names)
    counter = _counter(len(train))
    counts = counter.fit_transform(train.texts)
    learn = _learn_tfidf if name == "tfidf" else _learn_nbsvm
    asked = truth if train.multilabel or len(names) != 2 else truth[:, 1:]  # (N, questions of yes or no)
    folds = _folds(train, seed)
    chosen, steepness, notes = USUAL[name], 1.0, []
    if folds is not None:
        chosen, steepness, right = _choose(learn, PENALTIES[name], counts, asked, folds, train.multilabel)
        notes.append(f"penalty C = {chosen:g} by {folds.max() + 1}-fold cross-validation ({100 * right:.1f} % right)")
    else:
        notes.append(f"penalty C = {chosen:g}: a class has one example, too few for cross-validation")
    score = learn(counts, asked, chosen)

    def predict(texts: Sequence[str]) -> Floats:
        return _probabilities(steepness * score(counter.transform(texts)), train.multilabel)

    return Baseline(predict, time.perf_counter() - started, notes)


def label_table(data: LabelledData, names: Sequence[str]) -> Flags:
    """Write labels as a table of yes and no. (N, K)."""
    place = {name: number for number, name in enumerate(names)}
    table = np.zeros((len(data), len(names)), bool)
    for row, labels in enumerate(data.labels):
        table[row, [place[label] for label in labels]] = True
    return table


def _counter(documents: int) -> Any:  # noqa: ANN401 (scikit-learn has no types)
    from sklearn.feature_extraction.text import CountVectorizer

    rarest = 2 if documents >= RARE_FROM else 1
    return CountVectorizer(ngram_range=(1, 2), token_pattern=TOKEN, min_df=rarest, dtype=np.float64)


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


def _folds(train: LabelledData, seed: int) -> Ints | None:
    """Deal the examples of every class to the folds in turn, so that each fold has its share. (N,), or None."""
    members: dict[tuple[str, ...], list[int]] = {}
    for number, labels in enumerate(train.labels):
        members.setdefault(tuple(sorted(labels)), []).append(number)
    counts = Counter(label for labels in train.labels for label in labels)
    several = min(FOLDS, min(counts.values()))
    if several < 2:
        return None
    folds = np.zeros(len(train), np.int64)
    dealt = 0
    for labels in sorted(members):
        numbers = np.array(members[labels])
        order = shuffled(np.arange(len(numbers)), len(numbers), seed, len(numbers))
        folds[numbers[order]] = (dealt + np.arange(len(numbers))) % several
        dealt += len(numbers)
    return folds


def _choose(
    learn: Callable[[csr_matrix, Flags, float], Callable[[csr_matrix], Floats]],
    penalties: Sequence[float],
    counts: csr_matrix,
    asked: Flags,
    folds: Ints,
    multilabel: bool,
) -> tuple[float, float, float]:
    """Find the penalty that gets most right on what was held out, and the best steepness; ties go by the loss."""
    found = []
    for penalty in penalties:
        held_out = np.zeros(asked.shape)
        for fold in range(folds.max() + 1):
            inside = folds != fold
            held_out[~inside] = learn(counts[inside], asked[inside], penalty)(counts[~inside])
        losses = {float(steep): _loss(steep * held_out, asked) for steep in 2.0 ** np.arange(-4, 5)}
        steepness = min(losses, key=losses.__getitem__)
        found.append((_right(held_out, asked, multilabel), -losses[steepness], penalty, steepness))
    right, _, penalty, steepness = max(found)
    return penalty, steepness, right


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
