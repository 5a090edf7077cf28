"""Score a comparison: reveal the test labels, once, and evaluate all predictions against them.

This is the only place that reveals them, and it runs after the last trial.

Shapes: S seeds, N test documents, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rehead.compare.answer import answer
from rehead.compare.data import Splits
from rehead.compare.experiment import Outcome, Trial
from rehead.compare.guards import control_limit
from rehead.compare.kinds import BASELINES
from rehead.compare.results import (
    FORMAT,
    Bin,
    Confusion,
    Control,
    Curve,
    Guards,
    Method,
    Mistake,
    Paired,
    Reach,
    Reliability,
    Results,
    RunFacts,
    Score,
)
from rehead.compare.statistics import (
    Interval,
    Summary,
    accuracy_over_documents,
    f1,
    f1_over_documents,
    mcnemar,
    over_seeds,
    paired_bootstrap,
    permutation_test,
    standard_deviation,
)
from rehead.finetune.metrics import Average, calibration_error, confusion, predicted_labels

MISTAKES = 8
BINS = 10

Flags = NDArray[np.bool_]
Floats = NDArray[np.float32]


@dataclass
class _Scored:
    """The predictions of a method for one training set size, by seed."""

    outcomes: list[Outcome]
    predicted: Flags
    "(S, N, K) predicted labels"
    right: Flags
    "(S, N) whether all labels of a document are correct"
    probabilities: Floats = field(repr=False)
    "(S, N, K)"


def score(
    outcomes: dict[Trial, Outcome], methods: Sequence[Method], counts: Sequence[int], splits: Splits, run: RunFacts
) -> Results:
    """Reveal the test labels, and score every trial against them."""
    labels = splits.test.reveal_labels()
    place = {name: number for number, name in enumerate(splits.names)}
    truth = np.zeros((len(labels), len(place)), bool)
    for row, given in enumerate(labels):
        truth[row, [place[name] for name in given]] = True
    multilabel = splits.facts.multilabel
    table = {
        (method.key, count): _scored(outcomes, method.key, count, truth, multilabel)
        for method in methods
        for count in counts
        if any((each.method, each.labels, each.shuffled) == (method.key, count, False) for each in outcomes)
    }
    splits.facts.classes = dict(zip(splits.names, truth.sum(0).tolist(), strict=True))
    results = Results(
        format=FORMAT,
        answer=[],
        data=splits.facts,
        methods=list(methods),
        counts=list(counts),
        seeds=max(len(each.outcomes) for each in table.values()),
        scores=[_score(key, count, each, truth, multilabel) for (key, count), each in table.items()],
        paired=[],
        curves=[
            Curve(key, count, [outcome.curve for outcome in each.outcomes])
            for (key, count), each in table.items()
            if all(outcome.curve for outcome in each.outcomes)
        ],
        reaches=[],
        confusions=[],
        reliabilities=[],
        mistakes=[],
        guards=Guards(splits.leaks, _controls(outcomes, methods, truth, multilabel), splits.test.opened),
        run=run,
    )
    results.paired = _pairs(results, table)
    results.reaches = _reaches(results)
    shown = _shown(results)
    most = counts[-1]
    if not multilabel:
        results.confusions = [_confusion(key, most, table[key, most], truth) for key in shown]
    results.reliabilities = [_reliability(key, most, table[key, most], truth, multilabel) for key in shown]
    results.mistakes = _mistakes(results, table, truth, splits)
    if splits.leaks.seen:
        rest = ~splits.seen
        if rest.any():
            splits.leaks.unseen_accuracy = {
                method.key: float(table[method.key, most].right[:, rest].mean()) for method in methods
            }
    results.answer = answer(results)
    return results


def _scored(outcomes: dict[Trial, Outcome], key: str, count: int, truth: Flags, multilabel: bool) -> _Scored:
    own = [
        each for trial, each in outcomes.items() if (trial.method, trial.labels, trial.shuffled) == (key, count, False)
    ]
    predicted = np.stack([_predicted(each, multilabel) for each in own])
    return _Scored(own, predicted, (predicted == truth).all(2), np.stack([each.probabilities for each in own]))


def _predicted(outcome: Outcome, multilabel: bool) -> Flags:
    """Decide by the probabilities: the most probable class, or every label that reaches its threshold. (N, K)."""
    decided = predicted_labels(outcome.probabilities, multilabel=multilabel, rule=outcome.rule)
    return np.asarray(decided if multilabel else np.eye(outcome.probabilities.shape[1], dtype=bool)[decided])


def _score(key: str, count: int, scored: _Scored, truth: Flags, multilabel: bool) -> Score:
    by_seed = scored.right.mean(1).tolist()
    target = truth if multilabel else truth.argmax(1)
    seconds = sum(each.predict_seconds for each in scored.outcomes)
    return Score(
        method=key,
        labels=count,
        accuracy=_summary(by_seed, accuracy_over_documents(scored.right)),
        macro_f1=_f1_summary(truth, scored.predicted, "macro"),
        micro_f1=_f1_summary(truth, scored.predicted, "micro") if multilabel else None,
        by_seed=by_seed,
        train_seconds=float(np.mean([each.train_seconds for each in scored.outcomes])),
        documents_per_second=len(scored.outcomes) * len(truth) / max(seconds, 1e-9),
        calibration_error=float(np.mean([calibration_error(each, target) for each in scored.probabilities])),
        notes=list(dict.fromkeys(chain.from_iterable(each.notes for each in scored.outcomes))),
    )


def _f1_summary(truth: Flags, predicted: Flags, average: Average) -> Summary:
    values = [f1(truth, each, average) for each in predicted]
    return _summary(values, f1_over_documents(truth, predicted, average))


def _summary(values: list[float], over_documents: Interval) -> Summary:
    spread = standard_deviation(values) if len(values) > 1 else None
    return Summary(float(np.mean(values)), spread, over_seeds(values), over_documents)


def _pairs(results: Results, table: dict[tuple[str, int], _Scored]) -> list[Paired]:
    """Compare scratch with pretrained, pretrained bases of one architecture, and baselines with the headline method."""
    wanted: list[tuple[str, str]] = []
    firsts: dict[str, str] = {}
    scratch = [each for each in results.methods if each.kind == "scratch"]
    for method in results.methods:
        if method.kind == "pretrained" and scratch:
            twin = next((each for each in scratch if each.architecture == method.architecture), scratch[0])
            wanted.append((twin.key, method.key))
            if (first := firsts.setdefault(method.architecture, method.key)) != method.key:
                wanted.append((first, method.key))
    ours = results.ours
    if ours is not None:
        wanted += [(each.key, ours.key) for each in results.methods if each.kind in BASELINES]
    return [
        Paired(
            first,
            second,
            count,
            paired_bootstrap(table[first, count].right, table[second, count].right),
            permutation_test(table[first, count].right, table[second, count].right),
            [mcnemar(one, two) for one, two in zip(table[first, count].right, table[second, count].right, strict=True)],
        )
        for first, second in wanted
        for count in results.counts
        if (first, count) in table and (second, count) in table
    ]


def _reaches(results: Results) -> list[Reach]:
    """Find how soon each curve reaches the best validation accuracy of scratch, by seed."""
    found: list[Reach] = []
    kinds = {each.key: each for each in results.methods}
    for pair in results.paired:
        if kinds[pair.first].kind != "scratch":
            continue
        curves = {each.method: each for each in results.curves if each.labels == pair.labels}
        if pair.first not in curves or pair.second not in curves:
            continue
        best = [max(point.accuracy for point in seed) for seed in curves[pair.first].seeds]
        for key in (pair.first, pair.second):
            if any((each.method, each.labels) == (key, pair.labels) for each in found):
                continue
            firsts = [
                next((point for point in seed if point.accuracy >= target), None)
                for seed, target in zip(curves[key].seeds, best, strict=False)  # some have fewer seeds
            ]
            reached = [point for point in firsts if point is not None]
            found.append(
                Reach(
                    key,
                    pair.labels,
                    float(np.mean(best)),
                    len(reached),
                    len(firsts),
                    float(np.mean([each.epoch for each in reached])) if reached else None,
                    float(np.mean([each.seconds for each in reached])) if reached else None,
                )
            )
    return found


def _shown(results: Results) -> list[str]:
    """Choose the methods with a confusion matrix and reliability diagram: headline, best baseline, others trained."""
    linear = results.best(BASELINES)
    keys = [results.ours.key] if results.ours else []
    keys += [linear.method] if linear else []
    keys += [each.key for each in results.methods if each.kind in ("pretrained", "scratch")]
    return list(dict.fromkeys(keys))


def _confusion(key: str, count: int, scored: _Scored, truth: Flags) -> Confusion:
    real, size = truth.argmax(1), truth.shape[1]
    matrix = np.mean([confusion(real, each.argmax(1), size) for each in scored.predicted], axis=0)
    return Confusion(key, count, matrix.tolist())


def _reliability(key: str, count: int, scored: _Scored, truth: Flags, multilabel: bool) -> Reliability:
    """Bin the predictions of all seeds by confidence, into bins of equal size."""
    if multilabel:
        confidence, right = scored.probabilities.ravel(), np.broadcast_to(truth, scored.predicted.shape).ravel()
    else:
        confidence, right = scored.probabilities.max(2).ravel(), scored.right.ravel()
    bins = [
        Bin(float(confidence[which].mean()), float(right[which].mean()), len(which))
        for which in np.array_split(np.argsort(confidence, kind="stable"), BINS)
        if len(which)
    ]
    return Reliability(key, count, bins)


def _mistakes(results: Results, table: dict[tuple[str, int], _Scored], truth: Flags, splits: Splits) -> list[Mistake]:
    """Find the errors of the headline method with the highest confidence, averaged over the seeds."""
    ours, linear = results.ours, results.best(BASELINES)
    if ours is None:
        return []
    multilabel, most = splits.facts.multilabel, results.counts[-1]
    own = table[ours.key, most]
    mean = own.probabilities.mean(0)  # (N, K)
    predicted = own.predicted.mean(0) > 0.5 if multilabel else np.eye(truth.shape[1], dtype=bool)[mean.argmax(1)]
    wrong = predicted != truth
    confidence = np.where(wrong, np.where(predicted, mean, 1 - mean if multilabel else 0.0), 0.0).max(1)  # (N,)
    found = []
    for row in np.argsort(-confidence, kind="stable")[:MISTAKES].tolist():
        if not wrong[row].any():
            break
        baseline = None
        if linear is not None:
            scored = table[linear.method, most]
            voted = scored.predicted.mean(0)[row] > 0.5 if multilabel else _top(scored.probabilities.mean(0)[row])
            baseline = _names(voted, splits.names)
        source, line = splits.test.sources[row]
        names = _names(truth[row], splits.names), _names(predicted[row], splits.names)
        found.append(Mistake(splits.test.texts[row], source, line, *names, float(confidence[row]), baseline))
    return found


def _top(probabilities: Floats) -> Flags:
    return np.asarray(np.arange(len(probabilities)) == probabilities.argmax())


def _names(flags: Flags, names: Sequence[str]) -> str:
    return ", ".join(name for name, there in zip(names, flags, strict=True) if there) or "nothing"


def _controls(
    outcomes: dict[Trial, Outcome], methods: Sequence[Method], truth: Flags, multilabel: bool
) -> list[Control]:
    """Score the trials with shuffled labels: their recall, averaged over seeds and classes, must be at chance."""
    present = truth.any(0) & ~truth.all(0) if multilabel else truth.any(0)  # (K,) classes of the test set

    def classes_of(table: Flags) -> Flags:
        """Select a column per class; a multilabel one makes two, with and without. (…, N, K) → (…, N, C)."""
        return np.concatenate((table[..., present], ~table[..., present]), -1) if multilabel else table[..., present]

    true_classes = classes_of(truth)
    documents = true_classes.sum(0)
    if not documents.size:
        return []
    classes = 2 if multilabel else len(documents)
    found = []
    for method in methods:
        own = {trial: each for trial, each in outcomes.items() if trial.method == method.key and trial.shuffled}
        if not own:
            continue
        predicted = classes_of(np.stack([_predicted(each, multilabel) for each in own.values()]))  # (S, N, C)
        recall = float(((predicted & true_classes).sum(1) / documents).mean())
        limit = control_limit(classes, documents, predicted.mean((0, 1)), len(own))
        found.append(Control(method.key, next(iter(own)).labels, recall, 1 / classes, limit))
    return found
