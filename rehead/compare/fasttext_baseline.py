"""fastText's supervised classifier as a baseline (Joulin and others 2016): an optional package does the training.

A text is the mean of the vectors of its words, bigrams and, if cross-validation prefers them, character n-grams; on it
stands a softmax (multilabel: a sigmoid per label). The words are those of the other baselines, lower-cased, with
punctuation marks. The number of epochs, then character n-grams, are chosen by 3-fold cross-validation on the training
labels, on 3,000 examples at most; with long texts, numbers of epochs that would take minutes are not tried. fastText's
other settings are its defaults, except for a learning rate of 0.5, which its tutorial recommends, and smaller tables.
One thread, so that the same labels and seed give the same model.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rehead.compare.ngrams import TOKEN
from rehead.errors import UserError
from rehead.finetune.metrics import BY_DEFAULT, DecisionRule
from rehead.finetune.splits import folds, max_folds, nested_subsets
from rehead.finetune.targets import subset, targets
from rehead.finetune.thresholds import choose_rule
from rehead.text.documents import LabelledData

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EPOCHS = (5, 15, 50, 150)
DEFAULT_EPOCHS = 50  # where cross-validation is impossible
CHARACTER_NGRAMS = (3, 6)  # fastText's own, for its word vectors
FOLDS, SEARCHED = 3, 3_000
LONGEST = 20_000_000  # words that a training may read, epochs × words of the texts: a minute
FIXED = {"dim": 50, "lr": 0.5, "wordNgrams": 2, "thread": 1, "verbose": 0}
BUCKETS, BUCKETS_PER_WORD = 200_000, 20  # rows for n-grams: initialising many takes longer than training on a few texts
LABEL = "__label__"
WORD = re.compile(TOKEN)


@dataclass(frozen=True)
class Settings:
    """What is chosen by cross-validation."""

    epochs: int
    characters: bool = False


def import_fasttext() -> Any:  # noqa: ANN401 (an untyped package)
    """Import the package; a clear error if it is not installed."""
    try:
        import fasttext
    except ImportError:
        raise UserError("--methods fasttext needs the fastText package: pip install 'rehead[fasttext]'.") from None
    return fasttext


def fit_fasttext(
    train: LabelledData, names: Sequence[str], seed: int = 0
) -> tuple[Callable[[Sequence[str]], Floats], list[str], DecisionRule]:
    """Train with epochs and character n-grams chosen by cross-validation.

    Returns a function from texts to probabilities (N, K), notes, and how it decides.
    """
    import_fasttext()
    rows = nested_subsets(train, [SEARCHED], seed)[SEARCHED] if len(train) > SEARCHED else np.arange(len(train))
    searched = subset(train, rows)
    nfolds = max_folds(searched, FOLDS)
    if nfolds < 2:
        settings, rule = Settings(DEFAULT_EPOCHS), BY_DEFAULT
        note = f"{settings.epochs} epochs, the default: a class has one example, too few for cross-validation"
    else:
        parts = folds(searched, nfolds, seed)
        settings, out_of_fold = _search(searched, names, parts, seed)
        truth, rule = targets(searched, names, multilabel=True) > 0, BY_DEFAULT
        if train.multilabel:
            decisions = choose_rule(out_of_fold, truth, parts)
            rule = decisions.rule
            score = f"micro-F1 {100 * decisions.micro_f1:.1f} %, macro-F1 {100 * decisions.macro_f1:.1f} %"
        else:
            score = f"accuracy {100 * _accuracy(out_of_fold, truth):.1f} %"
        note = (
            f"{settings.epochs} epochs, {'with' if settings.characters else 'without'} character n-grams, by "
            f"{nfolds}-fold cross-validation ({score})"
        )
    return _train(train, names, settings, seed), [note], rule


def _search(
    data: LabelledData, names: Sequence[str], parts: Sequence[tuple[Ints, Ints]], seed: int
) -> tuple[Settings, Floats]:
    """Choose epochs, then character n-grams: by accuracy, ties by log loss; multilabel: by log loss.

    Returns the settings and their out-of-fold probabilities.
    """
    truth = targets(data, names, multilabel=True) > 0
    words = _count_words(data.texts)

    def attempt(settings: Settings) -> tuple[float, float, Settings, Floats]:
        out_of_fold = np.zeros(truth.shape)
        for train, held_out in parts:
            predict = _train(subset(data, train), names, settings, seed)
            out_of_fold[held_out] = predict([data.texts[each] for each in held_out])
        safe = np.clip(out_of_fold, 1e-6, 1 - 1e-6)
        loss = float(-np.log(np.where(truth, safe, 1 - safe)).mean())
        return 0.0 if data.multilabel else -_accuracy(out_of_fold, truth), loss, settings, out_of_fold

    epochs = [each for each in EPOCHS if each * words <= LONGEST] or [EPOCHS[0]]
    tried = [attempt(Settings(each)) for each in epochs]
    tried.append(attempt(Settings(min(tried, key=lambda each: each[:2])[2].epochs, characters=True)))
    *_, settings, out_of_fold = min(tried, key=lambda each: each[:2])
    return settings, out_of_fold


def _accuracy(probabilities: Floats, truth: NDArray[np.bool_]) -> float:
    return float(truth[np.arange(len(truth)), probabilities.argmax(1)].mean())


def _train(
    data: LabelledData, names: Sequence[str], settings: Settings, seed: int
) -> Callable[[Sequence[str]], Floats]:
    """Train a model: texts → probabilities (N, K). Classes without examples get 0."""
    fasttext = import_fasttext()
    place = {name: number for number, name in enumerate(names)}
    buckets = min(BUCKETS, BUCKETS_PER_WORD * _count_words(data.texts) + 1)
    shortest, longest = CHARACTER_NGRAMS if settings.characters else (0, 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        with path.open("w", encoding="utf-8", errors="replace", newline="\n") as file:
            for text, labels in zip(data.texts, data.labels, strict=True):
                said = [f"{LABEL}{place[each]}" for each in labels] or [f"{LABEL}{len(names)}"]  # a class for no label
                file.write(f"{' '.join(said)} {_words(text)}\n")
        model = fasttext.train_supervised(
            str(path),
            epoch=settings.epochs,
            minn=shortest,
            maxn=longest,
            bucket=buckets,
            loss="ova" if data.multilabel else "softmax",
            seed=seed,
            **FIXED,
        )

    def predict(texts: Sequence[str]) -> Floats:
        found = np.zeros((len(texts), len(names) + 1))
        if not texts:
            return found[:, :-1]
        for row, labels, scores in zip(found, *model.predict([_words(text) for text in texts], k=-1), strict=True):
            row[[int(label.removeprefix(LABEL)) for label in labels]] = scores
        shares = np.clip(found[:, :-1], 0, 1)
        return shares if data.multilabel else shares / np.maximum(shares.sum(1, keepdims=True), 1e-9)

    return predict


def _count_words(texts: Sequence[str]) -> int:
    return sum(len(WORD.findall(text)) for text in texts)


def _words(text: str) -> str:
    """Separate words and punctuation marks by spaces. What looks like a label of fastText is taken apart."""
    return " ".join(WORD.findall(text.lower().replace(LABEL, "label ")))
