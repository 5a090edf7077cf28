"""Linear baselines: the classifiers on n-grams that are hardest to beat.

    tfidf         TF-IDF of words and bigrams (sublinear tf, L2-normalised), logistic regression
    tfidf_chars   the same features and TF-IDF of character n-grams, each L2-normalised, side by side
    nbsvm         NB-SVM (Wang and Manning 2012): binary words and bigrams, weighted by their naive-Bayes log-count
                  ratio, a linear support vector machine, its weights interpolated with their mean magnitude (β = 0.25)
    fasttext      fastText's supervised classifier (fasttext_baseline.py), if its package is installed

Multiclass and multilabel sets are one-vs-rest. Hyperparameters are chosen by 5-fold cross-validation on the training
labels, one after the other: `C`, then `min_df` (1 or 2; up to 200 texts together with C, which was 1.9 points better
for NB-SVM on six draws of 100 film reviews; from 5,000 texts on it is 2), then for multilabel data whether class
weights are balanced. If a class has a single example, cross-validation is impossible and the default C is used.
Everything that depends on the texts or labels of a fold (vocabulary, idf, NB-SVM's ratios) is recomputed in it.

- One label per text: the best accuracy wins, ties go to the lower log loss. The out-of-fold scores also fit the slope
  of the sigmoid that turns scores into probabilities (Platt scaling without intercept).
- Multilabel: the accuracy over all pairs of text and label would reward predicting no rare label at all. So C and
  min_df are chosen by log loss, class weights by the mean of exact match and micro-F1 with tuned thresholds.

From 2,000 texts on the search has 3 folds and uses a stratified subset of 3,000 at most; the final model is fitted to
all of them. On 1,600 film reviews `tfidf` and `nbsvm` take 3 s of CPU time, `tfidf_chars` 10 s.
liblinear's dual solver takes 0.05 s where lbfgs takes 0.4 s. Prediction is in batches, so memory is bounded by the
training texts.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from rehead.compare.multilabel import Calibration, calibrate, sigmoid
from rehead.compare.ngrams import NgramCounter, frequent_columns
from rehead.finetune.metrics import BY_DEFAULT, DecisionRule
from rehead.finetune.splits import first_copies, folds, max_folds, nested_subsets
from rehead.finetune.targets import subset, targets
from rehead.finetune.thresholds import Decisions, choose_rule
from rehead.text.documents import LabelledData

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Name = Literal["tfidf", "tfidf_chars", "nbsvm", "fasttext"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

C_GRID: dict[Name, tuple[float, ...]] = {
    "tfidf": (0.3, 1, 3, 10, 30, 100, 300),
    "tfidf_chars": (0.3, 1, 3, 10, 30, 100),
    "nbsvm": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1),
}
DEFAULT_C: dict[Name, float] = {"tfidf": 10, "tfidf_chars": 10, "nbsvm": 0.1}  # where cross-validation is impossible
FOLDS = 5
LARGE_FOLDS, LARGE_FROM = 3, 2_000  # fewer folds from this number of texts on
SEARCHED = 3_000  # maximum number of texts that hyperparameters are searched on
THOROUGH = 200  # up to this number of texts, every C is tried with every min_df
RARE_FROM = 5_000  # texts; from this size on min_df is 2
SMOOTHING, INTERPOLATION = 1.0, 0.25
BATCH = 2_000  # texts that are predicted at once

Blocks = list["csr_matrix"]
"Counts of words, and of characters if they are read: (N, n-grams) each."
Vectorizer = Callable[[Blocks], "csr_matrix"]
"Counts → features (N, F)."
Model = Callable[["csr_matrix"], Floats]
"Features (N, F) → scores (N,) of one question."


@dataclass(frozen=True)
class Settings:
    """Hyperparameters of a baseline."""

    c: float
    "Inverse regularisation strength, scikit-learn's C."
    min_df: int
    "Ignore n-grams that occur in fewer texts."
    balanced: bool = False
    "Balanced class weights."


@dataclass(frozen=True)
class Tried:
    """Cross-validated hyperparameters."""

    settings: Settings
    calibration: Calibration
    accuracy: float
    "Out-of-fold accuracy; of multilabel data, over all pairs of document and label."
    decisions: Decisions | None
    "Multilabel only: how labels are decided."


@dataclass
class Baseline:
    """A trained baseline."""

    predict: Callable[[Sequence[str]], Floats]
    "Texts → probabilities (N, K)."
    seconds: float
    "Training time, cross-validation included."
    notes: list[str]
    rule: DecisionRule = BY_DEFAULT
    "How it decides."


def fit_baseline(name: Name, train: LabelledData, names: Sequence[str], seed: int = 0) -> Baseline:
    """Train a baseline with hyperparameters chosen by cross-validation; `names` are the classes, in order."""
    started = time.perf_counter()
    if name == "fasttext":
        from rehead.compare.fasttext_baseline import fit_fasttext

        trained, notes, rule = fit_fasttext(train, names, seed)
        return Baseline(trained, time.perf_counter() - started, notes, rule)
    truth = targets(train, names, multilabel=True) > 0
    binary = truth if train.multilabel or len(names) != 2 else truth[:, 1:]  # (N, questions): one-vs-rest targets
    counter = NgramCounter(characters=name == "tfidf_chars")
    blocks = counter.fit_transform(train.texts)
    chosen, notes = _choose(name, train, blocks, binary, seed)
    kept = [frequent_columns(block, chosen.settings.min_df) for block in blocks]
    blocks = [block[:, columns] for block, columns in zip(blocks, kept, strict=True)]
    vectorize = _vectorizer(name, blocks)
    models = _fit(name, vectorize(blocks), binary, chosen.settings)

    def predict_batch(texts: Sequence[str]) -> Floats:
        counts = [block[:, columns] for block, columns in zip(counter.transform(texts), kept, strict=True)]
        log_odds = chosen.calibration.log_odds(_scores(models, vectorize(counts)))
        return _probabilities(log_odds, train.multilabel)

    def predict(texts: Sequence[str]) -> Floats:
        batches = [predict_batch(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        return np.concatenate(batches) if batches else np.zeros((0, len(names)))

    rule = BY_DEFAULT if chosen.decisions is None else chosen.decisions.rule
    return Baseline(predict, time.perf_counter() - started, notes, rule)


def _choose(name: Name, train: LabelledData, blocks: Blocks, binary: Flags, seed: int) -> tuple[Tried, list[str]]:
    """Choose the hyperparameters by cross-validation; also say how, in a sentence."""
    rare = 2 if len(train) >= RARE_FROM else 1
    searched, rows = train, np.arange(len(train))
    if len(train) > SEARCHED:
        rows = nested_subsets(train, [SEARCHED], seed)[SEARCHED]
        searched = subset(train, rows)
    most = FOLDS if len(searched) < LARGE_FROM else LARGE_FOLDS
    nfolds = max_folds(searched, most)
    if train.multilabel and nfolds >= 2:  # a fold without examples of a label costs that label alone
        nfolds = min(most, len(np.unique(first_copies(searched.texts))))
    if nfolds < 2:
        settings = Settings(DEFAULT_C[name], rare)
        scale = Calibration(1.0, None, 0.0)
        return Tried(settings, scale, 0.0, None), [
            f"C = {settings.c:g}, the default: a class has one example, too few for cross-validation"
        ]
    chosen = _search(
        name, [block[rows] for block in blocks], binary[rows], folds(searched, nfolds, seed), train.multilabel, rare
    )
    portion = f" on {len(rows):,} of {len(train):,} examples" if len(rows) < len(train) else ""
    if train.multilabel and len(rows) < len(train):  # class weights and thresholds profit from all examples
        both = [dataclasses.replace(chosen.settings, balanced=balanced) for balanced in (False, True)]
        chosen = max(_try(name, blocks, binary, folds(train, LARGE_FOLDS, seed), True, both), key=_decided)
    settings = chosen.settings
    note = f"C = {settings.c:g} and min_df = {settings.min_df} by {nfolds}-fold cross-validation{portion}"
    if chosen.decisions is None:
        note += f" (accuracy {100 * chosen.accuracy:.1f} %)"
    else:
        weights = "balanced" if settings.balanced else "no"
        note += (
            f", {weights} class weights, tuned thresholds (micro-F1 {100 * chosen.decisions.micro_f1:.1f} %, "
            f"macro-F1 {100 * chosen.decisions.macro_f1:.1f} %)"
        )
    return chosen, [note]


def _search(
    name: Name, blocks: Blocks, binary: Flags, folds: Sequence[tuple[Ints, Ints]], multilabel: bool, rare: int
) -> Tried:
    """Choose C, then min_df, then class weights: the best of those tried, each with the best of what was chosen before.

    `rare` is the smallest min_df.
    """

    def attempt(settings: Sequence[Settings]) -> list[Tried]:
        return _try(name, blocks, binary, folds, multilabel, settings)

    def key(each: Tried) -> tuple[float, float]:
        return (each.calibration.loss, 0.0) if multilabel else (-each.accuracy, each.calibration.loss)

    thorough = len(binary) <= THOROUGH
    tried: list[Tried] = []
    for min_df in (1, 2):
        if min_df < rare or not any(len(frequent_columns(block, min_df)) for block in blocks):
            continue
        c = [min(tried, key=key).settings.c] if tried and not thorough else C_GRID[name]
        tried += attempt([Settings(each, min_df) for each in c])
    best = min(tried, key=key)
    if not multilabel:
        return best
    (balanced,) = attempt([dataclasses.replace(best.settings, balanced=True)])
    return max((best, balanced), key=_decided)


def _decided(tried: Tried) -> float:
    return tried.decisions.by("accuracy") if tried.decisions else 0.0


def _try(
    name: Name,
    blocks: Blocks,
    binary: Flags,
    folds: Sequence[tuple[Ints, Ints]],
    multilabel: bool,
    settings: Sequence[Settings],
) -> list[Tried]:
    """Cross-validate settings that share a min_df: the features of a fold are made once for all of them."""
    out_of_fold = [np.zeros(binary.shape) for _ in settings]
    for train, held_out in folds:
        # The vocabulary is that of the fold. Otherwise the words that only held-out texts have would get the largest
        # idf and shrink the others, by L2 normalisation. In texts that are predicted later, unknown words are ignored.
        kept = [frequent_columns(block[train], settings[0].min_df) for block in blocks]
        seen, unseen = (
            [block[rows][:, k] for block, k in zip(blocks, kept, strict=True)] for rows in (train, held_out)
        )
        vectorize = _vectorizer(name, seen)
        features, others = vectorize(seen), vectorize(unseen)
        for scores, each in zip(out_of_fold, settings, strict=True):
            scores[held_out] = _scores(_fit(name, features, binary[train], each), others)
    found = []
    for scores, each in zip(out_of_fold, settings, strict=True):
        scale = calibrate(scores, binary, multilabel=multilabel)
        decisions = choose_rule(sigmoid(scale.log_odds(scores)), binary, folds) if multilabel else None
        found.append(Tried(each, scale, _accuracy(scores, binary, multilabel), decisions))
    return found


def _vectorizer(name: Name, counts: Blocks) -> Vectorizer:
    """Fit what turns counts into features: TF-IDF of each block, side by side; for NB-SVM, presence."""
    from scipy.sparse import hstack

    if name == "nbsvm":
        return lambda blocks: blocks[0].sign()
    from sklearn.feature_extraction.text import TfidfTransformer

    fitted = [TfidfTransformer(sublinear_tf=True).fit(block) if block.shape[1] else None for block in counts]
    return lambda blocks: hstack(
        [tfidf.transform(block) if tfidf else block for tfidf, block in zip(fitted, blocks, strict=True)], format="csr"
    )


def _fit(name: Name, features: csr_matrix, binary: Flags, settings: Settings) -> list[Model]:
    """Fit a model for each question."""
    from sklearn.exceptions import ConvergenceWarning

    fit = _fit_nbsvm if name == "nbsvm" else _fit_logistic_regression
    with warnings.catch_warnings():
        # A large C converges slowly, and the rest hardly matters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [_constant(target, features) or fit(features, target, settings) for target in binary.T]


def _fit_logistic_regression(features: csr_matrix, target: Flags, settings: Settings) -> Model:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=settings.c,
        class_weight="balanced" if settings.balanced else None,
        solver="liblinear",
        dual=True,
        max_iter=1000,
        random_state=0,
    ).fit(features, target)
    return _linear(model.coef_[0], float(model.intercept_[0]))


def _fit_nbsvm(present: csr_matrix, target: Flags, settings: Settings) -> Model:
    from sklearn.svm import LinearSVC

    positive = SMOOTHING + np.asarray(present[target].sum(0)).ravel()
    negative = SMOOTHING + np.asarray(present[~target].sum(0)).ravel()
    ratio = np.log(positive / positive.sum()) - np.log(negative / negative.sum())  # (words,)
    weight = "balanced" if settings.balanced else None
    svm = LinearSVC(C=settings.c, class_weight=weight, dual=True, max_iter=2000, random_state=0)
    svm.fit(present.multiply(ratio).tocsr(), target)
    weights = svm.coef_[0]
    weights = (1 - INTERPOLATION) * np.abs(weights).mean() + INTERPOLATION * weights
    return _linear(ratio * weights, float(svm.intercept_[0]) * INTERPOLATION)


def _linear(weights: Floats, bias: float) -> Model:
    return lambda features: np.asarray(features @ weights + bias)


def _constant(target: Flags, features: csr_matrix) -> Model | None:
    """Give a constant score where there is nothing to fit: all examples or none have the label, or no features."""
    if 0 < target.sum() < len(target):
        if features.shape[1]:
            return None
        score = float(np.log(target.sum() / (~target).sum()))
    else:
        score = 5.0 if target.all() else -5.0
    return lambda given: np.full(given.shape[0], score)


def _scores(models: Sequence[Model], features: csr_matrix) -> Floats:
    """Score every question. (N, F) → (N, questions)."""
    return np.stack([model(features) for model in models], 1)


def _probabilities(log_odds: Floats, multilabel: bool) -> Floats:
    """Turn log-odds into probabilities. (N, questions) → (N, K)."""
    positive = sigmoid(log_odds)
    if multilabel:
        return positive
    if log_odds.shape[1] == 1:
        return np.concatenate([1 - positive, positive], 1)
    return np.asarray(positive / positive.sum(1, keepdims=True))


def _accuracy(scores: Floats, binary: Flags, multilabel: bool) -> float:
    """Accuracy over the documents; for multilabel data, over all pairs of document and label."""
    if multilabel or scores.shape[1] == 1:
        return float(((scores > 0) == binary).mean())
    return float(binary[np.arange(len(binary)), scores.argmax(1)].mean())
