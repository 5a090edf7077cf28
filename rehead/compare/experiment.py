"""Run the trials: methods × training set sizes × seeds.

A trial trains a method, predicts the test texts without seeing their labels, and saves the predictions (`work/`, one
file per trial). So an interrupted comparison resumes at the next trial, and models, 300 MB each, need not be kept.
`plan.json` records the options; a resumed comparison must have the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rehead.compare.data import Splits, draw_subsets
from rehead.compare.guards import shuffle_labels
from rehead.compare.kinds import UNLABELLED
from rehead.compare.methods import TrainedMethod, train_method
from rehead.compare.options import CompareOptions
from rehead.compare.results import CurvePoint, Method, from_json
from rehead.disk import atomic_file, read_checksummed_json, write_checksummed_json
from rehead.errors import UserError
from rehead.finetune.candidates.candidate import sample
from rehead.finetune.metrics import DecisionRule
from rehead.progress import progress
from rehead.replacing import begin, working_directory
from rehead.runs.run import Run

PLAN, WORK, RESULTS, REPORT = "plan.json", "work", "results.json", "report.html"
FILES = (PLAN, WORK, RESULTS, REPORT)
# Options that may differ when a comparison is resumed.
MAY_CHANGE = ("quiet", "debug", "resume", "overwrite", "out")
CONTROL_LABELS = 500  # maximum training set size of a control: its variance does not shrink with more (see guards.py)


@dataclass(frozen=True)
class Trial:
    """One training of one method."""

    method: str
    labels: int
    seed: int
    shuffled: bool = False

    @property
    def name(self) -> str:
        """Name of its file; a run's path in the method's key is replaced by a digest."""
        kind, _, run = self.method.partition(":")
        which = f"-{hashlib.sha256(run.encode(errors='surrogateescape')).hexdigest()[:12]}" if run else ""
        return f"{kind}{which}-{self.labels}-{self.seed}{'-shuffled' if self.shuffled else ''}.npz"


@dataclass
class Outcome:
    """The result of a trial."""

    probabilities: NDArray[np.float32]
    "(test documents, K)"
    train_seconds: float
    predict_seconds: float
    curve: list[CurvePoint]
    notes: list[str]
    rule: DecisionRule


def list_trials(methods: Sequence[Method], counts: Sequence[int], options: CompareOptions) -> list[Trial]:
    """List all trials, seed by seed; the controls come last."""
    seeds = range(options.seed, options.seed + options.seeds)
    trials = [Trial(method.key, count, seed) for seed in seeds for count in counts for method in methods]
    if options.control:
        count = max((each for each in counts if each <= CONTROL_LABELS), default=counts[0])
        # A leak that reaches scratch reaches pretrained too, and training scratch is expensive.
        controlled = [each for each in methods if each.kind != "scratch"] or methods
        trials += [Trial(method.key, count, seed, True) for seed in seeds for method in controlled]
    return trials


def run_trials(
    trials: Sequence[Trial],
    methods: Sequence[Method],
    runs: dict[str, Run],
    splits: Splits,
    options: CompareOptions,
    directory: Path,
) -> dict[Trial, Outcome]:
    """Run the trials that have no saved outcome yet; return the outcomes of all."""
    work = directory / WORK
    work.mkdir(exist_ok=True)
    by_key = {method.key: method for method in methods}
    counts = sorted({trial.labels for trial in trials})
    found: dict[Trial, Outcome] = {}
    subsets: dict[int, Any] = {}
    with progress("comparing", len(trials), unit="trainings", quiet=options.quiet) as bar:
        for trial in trials:
            path = work / trial.name
            outcome = _read(path, (len(splits.test), len(splits.names)))
            if outcome is None:
                bar.note = _described(trial, by_key[trial.method])
                bar.update(bar.done)
                if trial.seed not in subsets:
                    subsets = {trial.seed: draw_subsets(splits, counts, trial.seed)}  # of one seed at a time
                train, valid = subsets[trial.seed][trial.labels]
                if trial.shuffled:
                    train, valid = shuffle_labels(train, trial.seed), shuffle_labels(valid, trial.seed)
                method = by_key[trial.method]
                run = runs.get(method.run or "")
                unlabelled = None
                if method.kind == "recipe" and splits.unlabelled is not None:  # one sample, so its features are cached
                    unlabelled = sample(splits.unlabelled.texts, UNLABELLED, options.seed)
                trained = train_method(method, run, train, valid, trial.seed, options, unlabelled)
                outcome = _predict_test(trained, splits)
                _write(path, outcome)
            found[trial] = outcome
            bar.advance()
        bar.note = ""
    return found


def _described(trial: Trial, method: Method) -> str:
    shuffled = "shuffled " if trial.shuffled else ""
    return f"{method.title}, {trial.labels:,} {shuffled}labels, seed {trial.seed}"


def _predict_test(trained: TrainedMethod, splits: Splits) -> Outcome:
    """Predict the test texts; their labels stay sealed."""
    began = time.perf_counter()
    probabilities = trained.predict(splits.test.texts).astype(np.float32)
    seconds = time.perf_counter() - began
    return Outcome(probabilities, trained.seconds, seconds, trained.curve, trained.notes, trained.rule)


def open_directory(options: CompareOptions, fingerprints: dict[str, Any]) -> Path:
    """Create the directory that the comparison is made in; with --resume, check that its plan is the same."""
    out, work = options.out, working_directory(options.out)
    asked = {name: value for name, value in dataclasses.asdict(options).items() if name not in MAY_CHANGE}
    now = json.loads(json.dumps({"options": asked, "data": fingerprints}))
    if options.resume:
        if work == out and (out / RESULTS).exists():
            raise UserError(f"{out} is complete: there is nothing to resume. Choose another --out.")
        if not (work / PLAN).exists():
            raise UserError(f"{out} holds no comparison to resume ({PLAN} is missing). Drop --resume.")
        _check_same(out, read_checksummed_json(work / PLAN), now)
        return work
    work = begin(out, FILES if options.overwrite else None)
    with atomic_file(work / PLAN) as partial:
        write_checksummed_json(partial, now)
    return work


def _check_same(out: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    for name, value in now["options"].items():
        if before["options"].get(name) != value:
            flag = "--from" if name == "base" else f"--{name.replace('_', '-')}"
            raise UserError(f"{out} was started with another {flag}. Resume it with the same options.")
    if before["data"] != now["data"]:
        raise UserError(
            f"{out} was started with other data or other runs, so it cannot be resumed. Choose another --out."
        )


def _write(path: Path, outcome: Outcome) -> None:
    """Save an outcome atomically."""
    facts = {each.name: getattr(outcome, each.name) for each in dataclasses.fields(outcome)}
    probabilities = facts.pop("probabilities")
    facts["curve"] = [dataclasses.asdict(point) for point in outcome.curve]
    facts["rule"] = dataclasses.asdict(outcome.rule)
    with atomic_file(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, probabilities=probabilities, facts=np.array(json.dumps(facts)))


def _read(path: Path, shape: tuple[int, int]) -> Outcome | None:
    """Load an outcome; None if the file is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            probabilities = saved["probabilities"]
            facts = json.loads(str(saved["facts"]))
        curve = [from_json(CurvePoint, each) for each in facts.pop("curve")]
        rule = DecisionRule(**facts.pop("rule"))
        outcome = Outcome(probabilities=probabilities, curve=curve, rule=rule, **facts)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    return outcome if probabilities.shape == shape else None
