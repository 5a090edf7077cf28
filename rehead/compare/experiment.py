"""What is run: methods × numbers of labels × seeds, each as a trial that is done once and kept.

A trial trains a method, has it answer the test texts blindly, and writes its answers down (`work/`, one file a trial);
nobody has looked at the true ones yet. So a comparison that was interrupted goes on where it was, and models, 300 MB
each, need not be kept. `plan.json` says what was asked for; a comparison that is resumed must be asked the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rehead.compare.data import Parts, few
from rehead.compare.guards import shuffle_labels
from rehead.compare.kinds import UNLABELLED
from rehead.compare.methods import Learner, learn
from rehead.compare.options import CompareOptions
from rehead.compare.results import Method, Moment, from_json
from rehead.disk import check_overwrite, read_checksummed_json, write_checksummed_json
from rehead.errors import UserError
from rehead.finetune.candidates.self_training import sample
from rehead.progress import progress
from rehead.runs.run import Run

PLAN, WORK, RESULTS, REPORT = "plan.json", "work", "results.json", "report.html"
OURS = (PLAN, WORK, RESULTS, REPORT)
# What may change when a comparison is resumed.
FREE = ("quiet", "debug", "resume", "overwrite", "out")
CONTROL_LABELS = 500  # a control has this many labels at most: luck does not shrink with more


@dataclass(frozen=True)
class Trial:
    """One training of one method."""

    method: str
    labels: int
    seed: int
    shuffled: bool = False

    @property
    def name(self) -> str:
        """Name of its file; the path of a run, which a method's key may hold, is told by its digest."""
        kind, _, run = self.method.partition(":")
        which = f"-{hashlib.sha256(run.encode(errors='surrogateescape')).hexdigest()[:12]}" if run else ""
        return f"{kind}{which}-{self.labels}-{self.seed}{'-shuffled' if self.shuffled else ''}.npz"


@dataclass
class Outcome:
    """What a trial left behind."""

    probabilities: NDArray[np.float32]
    "(test documents, K)"
    train_seconds: float
    predict_seconds: float
    curve: list[Moment]
    notes: list[str]
    thresholds: list[float] | None


def list_trials(methods: Sequence[Method], counts: Sequence[int], options: CompareOptions) -> list[Trial]:
    """List all trials: whole seeds one after the other, the controls last."""
    seeds = range(options.seed, options.seed + options.seeds)
    trials = [Trial(method.key, count, seed) for seed in seeds for count in counts for method in methods]
    if options.control:
        count = max((each for each in counts if each <= CONTROL_LABELS), default=counts[0])
        # What scratch could be told, pretrained could be told as well; and training it is dear.
        told = [each for each in methods if each.kind != "scratch"] or methods
        trials += [Trial(method.key, count, seed, True) for seed in seeds for method in told]
    return trials


def run_trials(
    trials: Sequence[Trial],
    methods: Sequence[Method],
    runs: dict[str, Run],
    parts: Parts,
    options: CompareOptions,
    directory: Path,
) -> dict[Trial, Outcome]:
    """Do the trials that are not done yet; give what all of them left behind."""
    work = directory / WORK
    work.mkdir(exist_ok=True)
    by_key = {method.key: method for method in methods}
    counts = sorted({trial.labels for trial in trials})
    found: dict[Trial, Outcome] = {}
    drawn: dict[int, Any] = {}
    with progress("comparing", len(trials), unit="trainings", quiet=options.quiet) as bar:
        for trial in trials:
            path = work / trial.name
            outcome = _read(path, (len(parts.test), len(parts.names)))
            if outcome is None:
                bar.note = _described(trial, by_key[trial.method])
                bar.update(bar.done)
                if trial.seed not in drawn:
                    drawn = {trial.seed: few(parts, counts, trial.seed)}  # of one seed at a time
                train, valid = drawn[trial.seed][trial.labels]
                if trial.shuffled:
                    train, valid = shuffle_labels(train, trial.seed), shuffle_labels(valid, trial.seed)
                method = by_key[trial.method]
                run = runs.get(method.run or "")
                more = None
                if method.kind == "recipe" and parts.unlabelled is not None:  # the same for all trainings: read once
                    more = sample(parts.unlabelled.texts, UNLABELLED, options.seed)
                learner = learn(method, run, train, valid, trial.seed, options, more)
                outcome = _answers(learner, parts)
                _write(path, outcome)
            found[trial] = outcome
            bar.advance()
        bar.note = ""
    return found


def _described(trial: Trial, method: Method) -> str:
    shuffled = "shuffled " if trial.shuffled else ""
    return f"{method.title}, {trial.labels:,} {shuffled}labels, seed {trial.seed}"


def _answers(learner: Learner, parts: Parts) -> Outcome:
    """Have a classifier that has learnt answer the test texts, blindly."""
    began = time.perf_counter()
    probabilities = learner.predict(parts.test.texts).astype(np.float32)
    seconds = time.perf_counter() - began
    return Outcome(probabilities, learner.seconds, seconds, learner.curve, learner.notes, learner.thresholds)


def open_directory(options: CompareOptions, fingerprints: dict[str, Any]) -> Path:
    """Make room for a comparison, or compare the one that is there with what is asked for."""
    out = options.out
    asked = {name: value for name, value in dataclasses.asdict(options).items() if name not in FREE}
    now = json.loads(json.dumps({"options": asked, "data": fingerprints}))
    if options.resume:
        if (out / RESULTS).exists():
            raise UserError(f"{out} is finished: there is nothing to resume. Choose another --out.")
        if not (out / PLAN).exists():
            raise UserError(f"{out} holds no comparison to resume ({PLAN} is missing). Drop --resume.")
        _same(out, read_checksummed_json(out / PLAN), now)
        return out
    check_overwrite(out, OURS if options.overwrite else None)
    for name in OURS:
        if (out / name).is_dir():
            shutil.rmtree(out / name)
        else:
            (out / name).unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    write_checksummed_json(out / PLAN, now)
    return out


def _same(out: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    for name, value in now["options"].items():
        if before["options"].get(name) != value:
            flag = "--from" if name == "base" else f"--{name.replace('_', '-')}"
            raise UserError(f"{out} was begun with another {flag}. Resume it with the same options.")
    if before["data"] != now["data"]:
        raise UserError(f"{out} was begun with other data or other runs. It cannot go on.")


def _write(path: Path, outcome: Outcome) -> None:
    """Keep what a trial left behind: the file is whole or not there."""
    known = {each.name: getattr(outcome, each.name) for each in dataclasses.fields(outcome)}
    probabilities = known.pop("probabilities")
    known["curve"] = [dataclasses.asdict(moment) for moment in outcome.curve]
    beside = path.with_suffix(".partial")
    with beside.open("wb") as file:
        np.savez_compressed(file, probabilities=probabilities, facts=np.array(json.dumps(known)))
    beside.replace(path)


def _read(path: Path, shape: tuple[int, int]) -> Outcome | None:
    """Read what a trial left behind; None if there is nothing, or nothing whole."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            probabilities = kept["probabilities"]
            facts = json.loads(str(kept["facts"]))
        curve = [from_json(Moment, each) for each in facts.pop("curve")]
        outcome = Outcome(probabilities=probabilities, curve=curve, **facts)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    return outcome if probabilities.shape == shape else None
