"""The end of a comparison: the answers of the test part are opened, once, and everything is scored against them.

This is the only place that opens them, and it is called when the last trial is done.

Shapes: S seeds, N test documents, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rehead.compare.answer import answer
from rehead.compare.data import Parts
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
    macro_f1,
    macro_f1_over_documents,
    mcnemar,
    over_seeds,
    paired_bootstrap,
    permutation_test,
    spread_of,
)
from rehead.finetune.measures import calibration_error, confusion

MISTAKES = 8
BINS = 10

Flags = NDArray[np.bool_]
Floats = NDArray[np.float32]


@dataclass
class _Scored:
    """One method with one number of labels, seed by seed."""

    outcomes: list[Outcome]
    answers: Flags
    "(S, N, K)"
    right: Flags
    "(S, N) all labels of a document right"
    probabilities: Floats = field(repr=False)
    "(S, N, K)"


def score(
    outcomes: dict[Trial, Outcome], methods: Sequence[Method], counts: Sequence[int], parts: Parts, run: RunFacts
) -> Results:
    """Open the answers, and score every trial against them."""
    labels = parts.test.open_answers()
    place = {name: number for number, name in enumerate(parts.names)}
    truth = np.zeros((len(labels), len(place)), bool)
    for row, given in enumerate(labels):
        truth[row, [place[name] for name in given]] = True
    multilabel = parts.facts.multilabel
    table = {
        (method.key, count): _scored(outcomes, method.key, count, truth, multilabel)
        for method in methods
        for count in counts
        if any((each.method, each.labels, each.shuffled) == (method.key, count, False) for each in outcomes)
    }
    parts.facts.classes = dict(zip(parts.names, truth.sum(0).tolist(), strict=True))
    results = Results(
        format=FORMAT,
        answer=[],
        data=parts.facts,
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
        guards=Guards(parts.leaks, _controls(outcomes, methods, truth, multilabel), parts.test.opened),
        run=run,
    )
    results.paired = _pairs(results, table)
    results.reaches = _reaches(results)
    shown = _shown(results)
    most = counts[-1]
    if not multilabel:
        results.confusions = [_confusion(key, most, table[key, most], truth) for key in shown]
    results.reliabilities = [_reliability(key, most, table[key, most], truth, multilabel) for key in shown]
    results.mistakes = _mistakes(results, table, truth, parts)
    if parts.leaks.seen:
        rest = ~parts.seen
        if rest.any():
            parts.leaks.unseen_accuracy = {
                method.key: float(table[method.key, most].right[:, rest].mean()) for method in methods
            }
    results.answer = answer(results)
    return results


def _scored(outcomes: dict[Trial, Outcome], key: str, count: int, truth: Flags, multilabel: bool) -> _Scored:
    own = [
        each for trial, each in outcomes.items() if (trial.method, trial.labels, trial.shuffled) == (key, count, False)
    ]
    answers = np.stack([_answered(each, multilabel) for each in own])
    return _Scored(own, answers, (answers == truth).all(2), np.stack([each.probabilities for each in own]))


def _answered(outcome: Outcome, multilabel: bool) -> Flags:
    """Turn probabilities into answers: the likeliest class, or every label from its threshold on. (N, K)."""
    probabilities = outcome.probabilities
    if multilabel:
        return np.asarray(probabilities >= (0.5 if outcome.thresholds is None else np.array(outcome.thresholds)))
    return np.asarray(np.eye(probabilities.shape[1], dtype=bool)[probabilities.argmax(1)])


def _score(key: str, count: int, scored: _Scored, truth: Flags, multilabel: bool) -> Score:
    by_seed = scored.right.mean(1).tolist()
    f1 = [macro_f1(truth, each) for each in scored.answers]
    target = truth if multilabel else truth.argmax(1)
    seconds = sum(each.predict_seconds for each in scored.outcomes)
    return Score(
        method=key,
        labels=count,
        accuracy=_summary(by_seed, accuracy_over_documents(scored.right)),
        macro_f1=_summary(f1, macro_f1_over_documents(truth, scored.answers)),
        by_seed=by_seed,
        train_seconds=float(np.mean([each.train_seconds for each in scored.outcomes])),
        documents_per_second=len(scored.outcomes) * len(truth) / max(seconds, 1e-9),
        calibration_error=float(np.mean([calibration_error(each, target) for each in scored.probabilities])),
        notes=list(dict.fromkeys(chain.from_iterable(each.notes for each in scored.outcomes))),
    )


def _summary(values: list[float], over_documents: Interval) -> Summary:
    spread = spread_of(values) if len(values) > 1 else None
    return Summary(float(np.mean(values)), spread, over_seeds(values), over_documents)


def _pairs(results: Results, table: dict[tuple[str, int], _Scored]) -> list[Paired]:
    """Compare scratch with what was pretrained from the same shape, and the baselines with ours."""
    wanted: list[tuple[str, str]] = []
    scratch = [each for each in results.methods if each.kind == "scratch"]
    for method in results.methods:
        if method.kind == "pretrained" and scratch:
            twin = next((each for each in scratch if each.run == method.run), scratch[0])
            wanted.append((twin.key, method.key))
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
    """Find how soon each curve gets to the best of scratch, seed by seed."""
    found: list[Reach] = []
    kinds = {each.key: each for each in results.methods}
    for pair in results.paired:
        if kinds[pair.first].kind != "scratch":
            continue
        curves = {each.method: each for each in results.curves if each.labels == pair.labels}
        if pair.first not in curves or pair.second not in curves:
            continue
        best = [max(moment.accuracy for moment in seed) for seed in curves[pair.first].seeds]
        for key in (pair.first, pair.second):
            if any((each.method, each.labels) == (key, pair.labels) for each in found):
                continue
            firsts = [
                next((moment for moment in seed if moment.accuracy >= target), None)
                for seed, target in zip(curves[key].seeds, best, strict=True)
            ]
            there = [moment for moment in firsts if moment is not None]
            found.append(
                Reach(
                    key,
                    pair.labels,
                    float(np.mean(best)),
                    len(there),
                    len(firsts),
                    float(np.mean([each.epoch for each in there])) if there else None,
                    float(np.mean([each.seconds for each in there])) if there else None,
                )
            )
    return found


def _shown(results: Results) -> list[str]:
    """Choose the methods that are looked at more closely: ours, the best baseline, pretrained, scratch."""
    linear = results.best(BASELINES)
    keys = [results.ours.key] if results.ours else []
    keys += [linear.method] if linear else []
    keys += [each.key for each in results.methods if each.kind in ("pretrained", "scratch")]
    return list(dict.fromkeys(keys))


def _confusion(key: str, count: int, scored: _Scored, truth: Flags) -> Confusion:
    real, size = truth.argmax(1), truth.shape[1]
    matrix = np.mean([confusion(real, each.argmax(1), size) for each in scored.answers], axis=0)
    return Confusion(key, count, matrix.tolist())


def _reliability(key: str, count: int, scored: _Scored, truth: Flags, multilabel: bool) -> Reliability:
    """Put answers of all seeds into bins of equally many, by how sure they are."""
    if multilabel:
        sure, right = scored.probabilities.ravel(), np.broadcast_to(truth, scored.answers.shape).ravel()
    else:
        sure, right = scored.probabilities.max(2).ravel(), scored.right.ravel()
    bins = [
        Bin(float(sure[which].mean()), float(right[which].mean()), len(which))
        for which in np.array_split(np.argsort(sure, kind="stable"), BINS)
        if len(which)
    ]
    return Reliability(key, count, bins)


def _mistakes(results: Results, table: dict[tuple[str, int], _Scored], truth: Flags, parts: Parts) -> list[Mistake]:
    """Find what our method, over all seeds, was most sure of and got wrong."""
    ours, linear = results.ours, results.best(BASELINES)
    if ours is None:
        return []
    multilabel, most = parts.facts.multilabel, results.counts[-1]
    own = table[ours.key, most]
    mean = own.probabilities.mean(0)  # (N, K)
    said = own.answers.mean(0) > 0.5 if multilabel else np.eye(truth.shape[1], dtype=bool)[mean.argmax(1)]
    wrong = said != truth
    sure = np.where(wrong, np.where(said, mean, 1 - mean if multilabel else 0.0), 0.0).max(1)  # (N,)
    found = []
    for row in np.argsort(-sure, kind="stable")[:MISTAKES].tolist():
        if not wrong[row].any():
            break
        other = None
        if linear is not None:
            theirs = table[linear.method, most]
            voted = theirs.answers.mean(0)[row] > 0.5 if multilabel else _top(theirs.probabilities.mean(0)[row])
            other = _names(voted, parts.names)
        source, line = parts.test.sources[row]
        truth_names, said_names = _names(truth[row], parts.names), _names(said[row], parts.names)
        found.append(Mistake(parts.test.texts[row], source, line, truth_names, said_names, float(sure[row]), other))
    return found


def _top(probabilities: Floats) -> Flags:
    return np.asarray(np.arange(len(probabilities)) == probabilities.argmax())


def _names(flags: Flags, names: Sequence[str]) -> str:
    return ", ".join(name for name, there in zip(names, flags, strict=True) if there) or "nothing"


def _controls(
    outcomes: dict[Trial, Outcome], methods: Sequence[Method], truth: Flags, multilabel: bool
) -> list[Control]:
    """Score what was taught with shuffled labels: the mean over seeds and classes must be chance."""
    told = truth.any(0) & ~truth.all(0) if multilabel else truth.any(0)  # (K,) what the test part asks for

    def classes_of(table: Flags) -> Flags:
        """Give a column for each class; a label among several makes two: there or not. (…, N, K) → (…, N, C)."""
        return np.concatenate((table[..., told], ~table[..., told]), -1) if multilabel else table[..., told]

    asked = classes_of(truth)
    documents = asked.sum(0)
    if not documents.size:
        return []
    classes = 2 if multilabel else len(documents)
    found = []
    for method in methods:
        own = {trial: each for trial, each in outcomes.items() if trial.method == method.key and trial.shuffled}
        if not own:
            continue
        answers = classes_of(np.stack([_answered(each, multilabel) for each in own.values()]))  # (S, N, C)
        recall = float(((answers & asked).sum(1) / documents).mean())
        limit = control_limit(classes, documents, answers.mean((0, 1)), len(own))
        found.append(Control(method.key, next(iter(own)).labels, recall, 1 / classes, limit))
    return found
