"""What fitting gives: the classifier, its validation curve, what the user should know; and how a run is finished.

Whatever way a classifier was made, it is calibrated, measured and described here.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import rehead
from rehead.finetune.calibration import HOTTEST, calibrate, fold_temperature, probabilities
from rehead.finetune.metrics import Metrics, compute_metrics, predicted_labels
from rehead.finetune.options import FitOptions, Metric
from rehead.finetune.thresholds import tune_rule
from rehead.runs.run import Run
from rehead.runs.scoring import classifier_head
from rehead.text.documents import LabelledData
from rehead.text.labelled import check_classes
from rehead.text.long_documents import LongRule

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEW = 10  # examples of a class, below which the user is told
NEVER = 5  # examples of a class, from which on the user is told that it is never predicted
SHOWN = 5  # classes that such a note names
SIGNIFICANT = 1.64  # standard errors that chance exceeds one time in twenty


@dataclass
class Point:
    """What validation found at one moment of training."""

    epoch: float
    step: int
    seconds: float
    train_loss: float | None
    "Mean training loss since the point before; None before the first step."
    loss: float
    accuracy: float
    macro_f1: float


@dataclass
class Fitted:
    """A classifier, and how it was made."""

    run: Run
    curve: list[Point]
    "What validation found: before the first step, then after every epoch. Empty if nothing was trained by gradient."
    notes: list[str]
    "What the user should know, a sentence each."
    seconds: float
    valid: Metrics | None = None
    "Scores of the final classifier on the validation part, or out-of-fold."


def describe_data(train: LabelledData) -> list[str]:
    """Refuse what cannot be learnt from; say which classes have few examples, and how many have a single one."""
    check_classes(train, allow_single=True)
    counts = Counter(itertools.chain.from_iterable(train.labels))
    few = sorted((name for name in counts if counts[name] < FEW), key=lambda name: counts[name])
    if not few:
        return []
    shown = _first([f"{name!r} {counts[name]}" for name in few])
    notes = [f"note: few examples of {len(few)} of {len(counts)} classes ({shown}): expect little of these"]
    if single := sum(count == 1 for count in counts.values()):
        notes.append(f"note: a single example of {single} of {len(counts)} classes: trained on, but not evaluated")
    return notes


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def describe_metric(metric: Metric, *, multilabel: bool, balanced_loss: bool) -> str:
    """Say what candidates and settings were compared by, and what the decisions are tuned for."""
    loss = "log loss" if multilabel else "expected error"
    loss = f"class-balanced {loss}" if balanced_loss else loss
    aim = {"macro-f1": "macro-F1", "micro-f1": "micro-F1"}.get(metric, "the mean of exact match and micro-F1")
    decided = f"thresholds are tuned for {aim}"
    if not multilabel:
        decided = decided if metric == "macro-f1" else "the most probable class is predicted"
    return f"metric {metric}: compared by {loss}; {decided}"


def describe_cut(count: int, total: int, max_length: int, long: LongRule) -> str:
    """Say how many documents are longer than is read at once, and what is read of them."""
    what = {
        "head": "their beginning is read",
        "tail": "their end is read",
        "head+tail": "a quarter from the beginning and three quarters from the end are read",
        "windows": "they are read in windows, whose scores are averaged",
    }[long]
    return f"{count:,} of {total:,} documents are longer than {max_length:,} tokens: {what}"


def describe_fit(
    method: str, options: FitOptions, train: LabelledData, valid: LabelledData | None, base: Run | None
) -> dict[str, Any]:
    """Say how a classifier was made, as JSON can hold it: what every way of fitting has in common."""
    known = {each.name for each in dataclasses.fields(FitOptions)}
    examples: dict[str, Any] = {"train": len(train), "train_fingerprint": train.fingerprint()}
    if valid is not None:
        examples |= {"valid": len(valid), "valid_fingerprint": valid.fingerprint()}
    return {
        "objective": "classify",
        "method": method,
        "options": {name: value for name, value in dataclasses.asdict(options).items() if name in known},
        "seed": options.seed,
        "examples": examples,
        "base": None
        if base is None or base.model.config.empty
        else {name: base.details.get(name) for name in ("objective", "seed", "tokens")},
        "rehead": rehead.__version__,
    }


def calibrate_run(
    run: Run, logits: NDArray[Any], truth: NDArray[Any], origin: str = "validation"
) -> tuple[Metrics, list[str]]:
    """Calibrate a classifier by scores (N, K) of held-out documents, tune how it decides, and measure it on them.

    Gives the measurements, and what the user should know. The run's details are completed.
    """
    head, names = classifier_head(run.model), run.labels or []
    multilabel = head.config.multilabel
    found = calibrate(logits, truth, origin)
    fold_temperature(head, found.temperature)
    run.details["calibration"] = found.details()
    notes = [str(found)]
    shares = probabilities(logits / found.temperature, multilabel=multilabel)
    metric = run.details.get("options", {}).get("metric", "accuracy")
    rule = tune_rule(shares, truth, metric)
    run.details |= rule.details()
    if rule.at_least_one:
        notes.append(
            "every example has a label, so every text is given its most probable one, also below its threshold"
        )
    elif rule.thresholds is None and metric == "macro-f1":
        notes.append("thresholds do not raise macro-F1 beyond chance: the most probable class is predicted")
    guess = predicted_labels(shares, multilabel=multilabel, rule=rule)
    measured = compute_metrics(shares, truth, names, rule)
    if said := collapsed(guess, truth, names, origin):
        notes.append(f"{said} {_advice(run.details)}")
        run.details["collapsed"] = True
    elif found.temperature > 0.99 * HOTTEST or (not multilabel and by_chance(guess, truth)):
        notes.append(
            f"warning: accuracy on {len(truth):,} {origin} examples is no better than chance. Check that texts and "
            "labels belong together, or give more examples."
        )
    elif said := never_predicted(measured, origin):
        notes.append(f"{said} {_advice_for_rare(run.details)}")
    scores = {name: getattr(measured, name) for name in ("accuracy", "macro_f1", "micro_f1", "loss")}
    run.details["validation"] = {name: score for name, score in scores.items() if score is not None}
    return measured, notes


def never_predicted(measured: Metrics, origin: str) -> str | None:
    """Name, in a sentence, the classes with enough documents that none was predicted as, the rarest first."""
    found = [each for each in measured.classes if each.count >= NEVER and not each.guessed]
    if not found:
        return None
    found.sort(key=lambda each: each.count)
    names = _first([f"{each.name!r} {each.count:,}" for each in found])
    return (
        f"warning: never predicted on {origin} examples, of which there are: {names} ({len(found)} of "
        f"{len(measured.classes)} classes)."
    )


def collapsed(guess: NDArray[Any], truth: NDArray[Any], names: Sequence[str], origin: str) -> str | None:
    """Tell, in a sentence, if all documents were given the same labels although theirs differ."""
    if len(guess) < 2 or (guess != guess[0]).any() or (truth == truth[0]).all():
        return None
    if guess.ndim == 2:
        said = ", ".join(repr(name) for name, there in zip(names, guess[0], strict=True) if there) or "no label at all"
    else:
        said = repr(names[int(guess[0])])
    return f"warning: the classifier gives every {origin} document the same prediction, {said}."


def by_chance(guess: NDArray[Any], truth: NDArray[Any]) -> bool:
    """Tell whether predictions (N,) are as good as chance often makes them: all but one time in twenty.

    What is compared is balanced accuracy (the mean recall of the classes), which unlike accuracy does not rise where
    everything is given the largest class. By chance a class is predicted as often for its own documents as for all.
    """
    present, counts = np.unique(truth, return_counts=True)
    recall = np.array([(guess[truth == each] == each).mean() for each in present])
    chance = np.array([(guess == each).mean() for each in present])
    error = (chance * (1 - chance) / counts).sum() ** 0.5
    return bool((recall - chance).sum() <= SIGNIFICANT * error)


def _advice_for_rare(details: dict[str, Any]) -> str:
    """Say what may help a class that is never predicted, by how the classifier was made."""
    options = details.get("options", {})
    given = {"--metric macro-f1": options.get("metric") == "macro-f1"}
    given["--class-weight balanced"] = options.get("class_weight") == "balanced"
    ways = [way for way, already in given.items() if not already]
    return f"Try {' or '.join(ways)}." if ways else "Give more examples of these."


def _advice(details: dict[str, Any]) -> str:
    """Say what may help against a collapse, by how the classifier was made."""
    ways = ["Give more examples"]
    if details["method"] == "gradient":
        ways += ["train longer (--epochs)", "change the learning rate (--lr)"]
    if details["options"]["class_weight"] is None:
        ways.append("balance the classes (--class-weight balanced)")
    return f"{', or '.join(ways)}."
