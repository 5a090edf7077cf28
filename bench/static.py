"""A static table end to end: seconds to fit, and texts per second of prediction, against TF-IDF, sides interleaved.

    python bench/static.py trec.tsv.gz imdb --from package:wordllama --labels 500

A tenth of each set is held out and predicted, with the accuracy beside. The sides: the table with a linear head and
nothing else (`--freeze base`); the recipe, which puts words, characters and LSA of the text beside it; TF-IDF of words
and pairs with logistic regression, which is what is to be compared with; and that with character n-grams. The time of
the processor, one thread, best of several rounds. Seconds are those of one fit, loading the table included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from sets import HELD_OUT, read_set
from sides import best

from rehead.finetune.fit import fit_classifier
from rehead.finetune.options import FitOptions, Freeze
from rehead.finetune.splits import nested_subsets, split
from rehead.finetune.targets import subset, targets
from rehead.runs.scoring import class_probabilities
from rehead.runs.starting import open_base
from rehead.text.documents import LabelledData

if TYPE_CHECKING:
    from numpy.typing import NDArray

Predict = Callable[[list[str]], "NDArray[np.floating]"]


def fit_table(source: str, train: LabelledData, freeze: Freeze | None) -> Predict:
    """Fit a classifier to the table, and what the recipe puts beside it."""
    run = fit_classifier(train, None, base=open_base(source), options=FitOptions(freeze=freeze)).run
    return lambda texts: class_probabilities(run, texts)


def fit_tfidf(train: LabelledData, *, characters: bool) -> Predict:
    """Fit logistic regression to TF-IDF, nothing tuned."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union

    parts = [TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)]
    if characters:
        parts.append(TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True))
    model = make_pipeline(make_union(*parts), LogisticRegression(C=10, max_iter=1_000))
    model.fit(train.texts, targets(train, train.names, multilabel=False))
    predict: Predict = model.predict_proba
    return predict


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--from", dest="base", default="package:wordllama")
    parser.add_argument("--labels", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for path in given.sets:
        name, data, _ = read_set(path)
        inside, outside = split(data, HELD_OUT, 0)
        pool, test = subset(data, inside), subset(data, outside)
        count = max(given.labels, 2 * len(data.names))
        train = subset(pool, nested_subsets(pool, [count], 0)[count])
        ways: dict[str, Callable[[], Predict]] = {
            "the table alone": lambda train=train: fit_table(given.base, train, "base"),
            "the recipe on it": lambda train=train: fit_table(given.base, train, None),
            "TF-IDF, words": lambda train=train: fit_tfidf(train, characters=False),
            "TF-IDF, words and characters": lambda train=train: fit_tfidf(train, characters=True),
        }
        took, made = {}, {}
        for way, fit in ways.items():
            began = time.process_time()
            made[way] = fit()
            took[way] = time.process_time() - began
        seconds = best(
            {way: lambda call=call, texts=test.texts: call(texts) for way, call in made.items()}, given.rounds
        )
        truth = targets(test, train.names, multilabel=False)
        print(
            f"{name}: {count} labels, {len(test)} texts of {np.mean([len(each) for each in test.texts]):.0f} characters"
        )
        for way, call in made.items():
            speed, right = len(test) / seconds[way], 100 * np.mean(call(test.texts).argmax(1) == truth)
            ratio = seconds["TF-IDF, words"] / seconds[way]
            print(f"{way:<30}fit {took[way]:>6.1f} s{speed:>10,.0f} texts/s{ratio:>7.2f}×{right:>7.1f} %", flush=True)


if __name__ == "__main__":
    main()
