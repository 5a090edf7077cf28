"""A linear classifier on a base that stays as it is: what a few labels are best spent on.

    fitted = fit_probe(train, None, base=load("runs/base"))

Directions are read in the space of the base's unlabelled text, and exact words beside them where cross-validation says
that they help (`rehead.finetune.linear`). Probabilities are calibrated on documents that were left out. The classifier
that comes out is folded into the head of a run like any other.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

import rehead
from rehead.errors import UserError
from rehead.finetune.classify import Documents
from rehead.finetune.copies import reheaded, without_layers
from rehead.finetune.features import read_documents
from rehead.finetune.fit import Fitted, check_length, look_at, say_cut, settle, settle_scores
from rehead.finetune.linear import (
    STRENGTHS,
    WORDS,
    Examples,
    Found,
    Linear,
    Setting,
    average,
    best_strength,
    fit_average,
    search,
)
from rehead.finetune.logistic import losses_of, one_thread
from rehead.finetune.measures import Measured
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import folds, most_folds, split
from rehead.finetune.targets import some, targets
from rehead.model.heads import ClassifierHead
from rehead.model.reading import Reading, encode, is_bag
from rehead.model.run import Run
from rehead.text.documents import LabelledData

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

FOLDS = 5
MANY = 6_000  # examples, above which settings are chosen on so many of them
ASIDE = 0.1  # share that is left out, where there are that many


@dataclass
class Probe:
    """A search that is done: what it read, and what it found."""

    base: Run
    "The run whose documents' vectors these are: the one that was given, or the same without its layers."
    examples: Examples
    found: Found
    linear: Linear
    folds: list[tuple[Ints, Ints]]
    "Who was left out when the settings were chosen: for each time, the examples inside and those outside."
    notes: list[str]
    "What is read of long documents, and how the settings were chosen."
    reading: Reading = Reading()


def fit_probe(
    train: LabelledData,
    valid: LabelledData | None,
    *,
    base: Run,
    options: FitOptions | None = None,
    words: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Fitted:
    """Fit a linear classifier on the frozen base; `words`: on exact words, too, where they help."""
    options = FitOptions() if options is None else options
    began = time.perf_counter()
    notes = look_at(train)
    for note in notes:
        say(note)
    probe = find_probe(train, base, options, words=words)
    for note in probe.notes:
        say(note)
    fitted = finish(probe, train, valid, options, began, say)
    fitted.notes[:0] = [*notes, *probe.notes]
    return fitted


def find_probe(train: LabelledData, base: Run, options: FitOptions, *, words: bool) -> Probe:
    """Search for the best linear classifier, and fit it to all examples.

    Where layers read, they are read past, unless left-out examples gain by more than a standard error: what layers
    learn by guessing words tells documents apart less well, so far, than what lies under them (docs/pretraining.md).
    """
    if base.tokenizer is None:
        raise UserError("fine-tuning needs a run with a tokenizer to start from.")
    check_length(base.model, options.length)
    ids = encode(base.tokenizer, train.texts)
    through = search_on(base, train, ids, options, words=words)
    bare = without_layers(base)
    if bare is None or not through.folds:
        return through
    past = search_on(bare, train, ids, options, words=words)
    truth, balanced = through.examples.truth, through.examples.balanced
    known = ~np.isnan(through.found.logits[:, 0])
    losses = [losses_of(each.found.logits[known], truth[known], balanced=balanced) for each in (past, through)]
    gain = losses[0] - losses[1]
    pays = gain.mean() > gain.std() / len(gain) ** 0.5
    better = through if pays else past
    better.notes.append(
        f"documents are read {'through' if pays else 'past'} the layers: the loss of left-out examples is "
        f"{losses[1].mean():.3f} through them, {losses[0].mean():.3f} past them"
    )
    return better


def search_on(base: Run, train: LabelledData, ids: list[Ints], options: FitOptions, *, words: bool) -> Probe:
    """Search for the best linear classifier on a base as it reads; `ids` are the examples, encoded."""
    reading = Reading(options.length, "windows" if options.long is None else options.long)
    features, space = read_documents(base.model, ids, reading)
    notes, longest = [], reading.limit(base.model.base)
    if reading.long != "windows" and (cut := sum(len(each) > longest for each in ids)):
        notes.append(say_cut(cut, len(ids), longest, reading.long))
    truth = targets(train, train.names, multilabel=train.multilabel)
    examples = Examples(features, truth, space, len(train.names), options.class_weight == "balanced")
    with one_thread():
        found, left_out, note = _choose(train, examples, options.seed, WORDS if words else ())
        linear = fit_average(examples, found.settings)
    return Probe(base, examples, found, linear, left_out, [*notes, note], reading)


def _choose(
    train: LabelledData, examples: Examples, seed: int, words: Sequence[float]
) -> tuple[Found, list[tuple[Ints, Ints]], str]:
    """Choose the settings: by cross-validation, on a part of the examples where there are many."""
    if len(train) > MANY:
        aside = 1 - MANY / len(train)
        chosen = split(train, aside, seed)[0]
    else:
        chosen = np.arange(len(train))
    part = some(train, chosen)
    count = most_folds(part, FOLDS)
    if count < 2:
        logits = np.full((len(train), examples.classes), np.nan)
        note = "a class has one text only: nothing could be cross-validated"
        return Found([Setting(2.0, 0.0, 10.0)], logits), [], note
    left_out = folds(part, count, seed)
    found = search(examples.some(chosen), left_out, words)
    note = f"settings chosen by {count}-fold cross-validation on {len(part):,} of {len(train):,} examples"
    if len(part) < len(train):
        left_out = [split(train, ASIDE, seed)]
        found = _again(examples, left_out, found.settings[0], words)
    return found, left_out, f"{note}: {'; '.join(map(str, found.settings))}"


def _again(examples: Examples, left_out: list[tuple[Ints, Ints]], best: Setting, words: Sequence[float]) -> Found:
    """Look again, near what a part of many examples has chosen, with all of them but some that are left out."""
    strengths = [each for each in STRENGTHS if best.strength / 4 <= each <= best.strength * 4]
    weights = {best.words, *(each for each in words if best.words <= each <= 4 * max(best.words, 1))}
    tried = [
        best_strength(examples, left_out, power, weight, strengths)
        for power in sorted({best.power, max(1.0, best.power - 1)})
        for weight in sorted(weights)
    ]
    return average(tried, examples.truth, balanced=examples.balanced)


def finish(
    probe: Probe,
    train: LabelledData,
    valid: LabelledData | None,
    options: FitOptions,
    began: float,
    say: Callable[[str], None],
    make: Callable[[], Run] | None = None,
) -> Fitted:
    """Fold a linear classifier into the head of a run (or `make` another), calibrate it, and describe it."""
    base = probe.base
    assert base.tokenizer is not None  # noqa: S101 (find_probe has looked)
    run = put_on(probe, train) if make is None else make()
    reading = Reading.of(run)
    run.details = {
        "objective": "classify",
        "method": "probe",
        "options": dataclasses.asdict(options),
        "seed": options.seed,
        "freeze": "base",
        "reading": dataclasses.asdict(reading),
        "settings": [dataclasses.asdict(each) for each in probe.found.settings],
        "examples": {"train": len(train), "train_fingerprint": train.fingerprint()}
        | ({} if valid is None else {"valid": len(valid), "valid_fingerprint": valid.fingerprint()}),
        "base": {name: base.details.get(name) for name in ("objective", "seed", "tokens")},
        "rehead": rehead.__version__,
    }
    measured: Measured | None = None
    if valid is None:
        known = ~np.isnan(probe.found.logits[:, 0])
        notes = ["nothing was left out, so probabilities are not calibrated"]
        if known.any():
            measured, notes = settle_scores(
                run, probe.found.logits[known], probe.examples.truth[known], train.names, "left-out"
            )
    else:
        truth = targets(valid, train.names, multilabel=train.multilabel)
        measured, notes = settle(run, Documents(encode(base.tokenizer, valid.texts), truth), train.names, reading)
    for note in notes:
        say(note)
    seconds = time.perf_counter() - began
    run.details["seconds"] = round(seconds, 1)
    if measured is not None:
        figures = {"accuracy": measured.accuracy, "macro_f1": measured.macro_f1, "loss": measured.loss}
        run.details["validation"] = figures
    return Fitted(run, [], notes, seconds, measured)


def put_on(probe: Probe, train: LabelledData) -> Run:
    """Make the run: the base, bit for bit, with a head that scores as the linear classifier does."""
    linear, base = probe.linear, probe.base
    head = dataclasses.replace(
        base.model.config.classifier(len(train.names), train.multilabel),
        pooling="distinct" if is_bag(base.model.base.eval()) else "mean",
        causal=base.model.config.causal,
        unit=True,
        words=len(linear.rows) > 0,
        dropout=0.0,
    )
    model = reheaded(base.model, head).eval()
    made = model.head
    assert isinstance(made, ClassifierHead)  # noqa: S101 (for the type checker)
    assert made.centre is not None  # noqa: S101
    with torch.no_grad():
        made.centre.copy_(torch.from_numpy(probe.examples.space.centre))
        made.linear.weight.copy_(torch.from_numpy(linear.directions))
        made.linear.bias.copy_(torch.from_numpy(linear.bias))
        if made.words is not None:
            made.words.idf.copy_(torch.from_numpy(probe.examples.space.idf))
            made.words.weight.zero_()
            made.words.weight[torch.from_numpy(linear.rows)] = torch.from_numpy(linear.words.T).float()
    return Run(model, base.tokenizer, list(train.names), {"reading": dataclasses.asdict(probe.reading)})
