"""Results that nobody measured, for tests of the page: what a comparison on film reviews might have found."""

from __future__ import annotations

import numpy as np

from rehead.compare.answer import answer
from rehead.compare.results import (
    FORMAT,
    Bin,
    Confusion,
    Control,
    Curve,
    CurvePoint,
    DataFacts,
    Guards,
    Kind,
    LeakFacts,
    Method,
    Mistake,
    Paired,
    Reach,
    Reliability,
    Results,
    RunFacts,
    Score,
)
from rehead.compare.statistics import Difference, Interval, Mcnemar, Summary

COUNTS = [20, 100, 500, 1600]
REACHED: dict[Kind, list[float]] = {
    "scratch": [0.52, 0.58, 0.66, 0.741],
    "pretrained": [0.60, 0.74, 0.832, 0.861],
    "frozen": [0.68, 0.80, 0.861, 0.874],
    "recipe": [0.70, 0.829, 0.872, 0.886],
    "tfidf": [0.61, 0.72, 0.814, 0.860],
    "tfidf_chars": [0.59, 0.71, 0.812, 0.858],
    "nbsvm": [0.60, 0.728, 0.826, 0.864],
}
TITLES: dict[Kind, str] = {
    "scratch": "from scratch",
    "pretrained": "pretrained, fine-tuned",
    "frozen": "pretrained, frozen + linear head",
    "recipe": "default recipe",
    "tfidf": "TF-IDF + logistic regression",
    "tfidf_chars": "TF-IDF, words and characters",
    "nbsvm": "NB-SVM",
}
MISCHIEF = '<script>alert("x")</script> & <img src="http://example.org/x.png"> a film that is "fine" ' + "very " * 90


def made_results(ahead: float = 0.022, seeds: int = 3, classes: tuple[str, ...] = ("negative", "positive")) -> Results:
    """Results in which the recipe is so far ahead of the best baseline."""
    reached = REACHED | {"recipe": [*REACHED["recipe"][:-1], REACHED["nbsvm"][-1] + ahead]}
    methods = [
        Method(
            kind,
            kind,
            title,
            f"What {title} does, in a sentence.",
            "runs/base" if kind in REACHED else None,
            10_968_602,
        )
        for kind, title in TITLES.items()
    ]
    size = len(classes)
    results = Results(
        format=FORMAT,
        answer=[],
        data=DataFacts(
            labelled="imdb:train",
            valid="imdb:valid",
            test="imdb:test",
            classes=dict.fromkeys(classes, 2000 // size),
            sizes={"train": 1600, "valid": 400, "test": 2000},
            multilabel=False,
            words=174,
        ),
        methods=methods,
        counts=COUNTS,
        seeds=seeds,
        scores=[
            Score(
                kind, labels, summary(value), summary(value - 0.004), [value - 0.005, value, value + 0.005][:seeds],
                12.3 if kind in ("tfidf", "nbsvm") else 64.5, 4200.0, 0.021,
                ["penalty C = 10 by 5-fold cross-validation (85.9 % right)"] if kind == "tfidf" else [],
            )
            for kind, values in reached.items()
            for labels, value in zip(COUNTS, values, strict=True)
        ],
        paired=[
            paired("scratch", "pretrained", 0.12, seeds),
            paired("nbsvm", "recipe", ahead, seeds),
        ],
        curves=[curve("scratch", 0.74, seeds), curve("pretrained", 0.86, seeds)],
        reaches=[
            Reach("scratch", 1600, 0.741, seeds, seeds, 9.3, 41.0),
            Reach("pretrained", 1600, 0.741, seeds, seeds, 0.7, 3.1),
        ],
        confusions=[Confusion("recipe", 1600, confusion(size)), Confusion("nbsvm", 1600, confusion(size))],
        reliabilities=[
            Reliability(kind, 1600, [Bin(0.5 + step / 20, 0.5 + step / 20 - off, 200) for step in range(1, 10)])
            for kind, off in (("recipe", 0.01), ("nbsvm", 0.05))
        ],
        mistakes=[
            Mistake(MISCHIEF, "imdb", 4711, classes[0], classes[-1], 0.994, classes[-1]),
            Mistake("great " * 40, "imdb", 12, classes[-1], classes[0], 0.981, None),
        ],
        guards=Guards(
            LeakFacts(2000, 0, ["runs/base: 21,000 documents, none of them in the test part."], 0),
            [Control("recipe", 1600, 0.507, 0.5, 0.55), Control("nbsvm", 1600, 0.493, 0.5, 0.55)],
            1,
        ),
        run=RunFacts(
            "rehead compare imdb:train --valid imdb:valid --test imdb:test --from runs/base --out runs/report",
            {"seeds": seeds, "labels": COUNTS}, {"rehead": "0.1.0", "python": "3.11.7"}, 2, 431.0, "2026-11-16",
            ["runs/base: pretrained with the objective bag on 20,875 documents, 95,000,000 tokens in 80 s."],
        ),
    )  # fmt: skip
    results.answer = answer(results)
    return results


def summary(mean: float) -> Summary:
    return Summary(mean, 0.005, Interval(mean - 0.012, mean + 0.012), Interval(mean - 0.015, mean + 0.015))


def paired(first: str, second: str, gain: float, seeds: int, labels: int = 1600) -> Paired:
    p = 0.0009 if abs(gain) > 0.01 else 0.31
    return Paired(
        first, second, labels, Difference(gain, Interval(gain - 0.011, gain + 0.011)), p, [Mcnemar(40, 90, p)] * seeds
    )


def curve(kind: str, best: float, seeds: int) -> Curve:
    return Curve(
        kind,
        1600,
        [
            [
                CurvePoint(epoch, 4.4 * epoch, 0.5 + (best - 0.5) * (1 - np.exp(-epoch / 3)) + 0.006 * seed, 0.5, 0.69)
                for epoch in range(16)
            ]
            for seed in range(seeds)
        ],
    )


def confusion(size: int) -> list[list[float]]:
    return [[900.0 if row == column else 100.0 / max(1, size - 1) for column in range(size)] for row in range(size)]
