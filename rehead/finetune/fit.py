"""One classifier, trained by gradient: from a base, or from random weights of the same shape. Everybody's way to train.

    fitted = fit(train, valid, base=load("runs/base"))

The base that is given is never changed. `curve[0]` is what validation finds before the first step; the weights that
come out are those of the best epoch, calibrated on the validation part, which also gives the thresholds of several
labels. Without a validation part, one is drawn from the examples.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import rehead
from rehead.errors import UserError
from rehead.finetune.calibration import HOTTEST, Calibration, calibrate, fold_temperature, probabilities
from rehead.finetune.classify import Classify, Documents
from rehead.finetune.copies import reheaded, same_shape
from rehead.finetune.measures import Measured, guesses, measure
from rehead.finetune.options import FitOptions, Freeze, check_fit
from rehead.finetune.splits import split
from rehead.finetune.targets import class_weights, some, targets
from rehead.finetune.thresholds import find_thresholds
from rehead.model.config import Classifier
from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.model.reading import Reading, encode, is_bag, score_ids
from rehead.model.run import Run
from rehead.text.documents import LabelledData
from rehead.text.labelled import check_classes
from rehead.text.long_documents import LongRule
from rehead.training.budget import Budget
from rehead.training.distributed import World, gather_model
from rehead.training.distributed import world as join_world
from rehead.training.loop import Phase
from rehead.training.loop import train as train_phases
from rehead.training.optimizers import Rates
from rehead.training.record import NAME, read
from rehead.training.state import State
from rehead.training.stopping import Stopped

if TYPE_CHECKING:
    from numpy.typing import NDArray

VALIDATION = 0.2  # share of the examples that validate, where no validation part is given
FEW = 10  # examples of a class, below which the user is told
LUCK = 1.64  # standard errors that chance exceeds one time in twenty
# Learning rates before the schedule: of layers and heads, of heads alone, of rows.
LAYERS, HEAD, ROWS = 3e-4, 1e-3, 0.01


@dataclass
class Point:
    """What validation found at one moment."""

    epoch: float
    step: int
    seconds: float
    train_loss: float | None
    "Mean loss in training since the point before; None before the first step."
    loss: float
    accuracy: float
    macro_f1: float


@dataclass
class Fitted:
    """A classifier, and how it came about."""

    run: Run
    curve: list[Point]
    "What validation found: before the first step, then after every epoch."
    notes: list[str]
    "What the user should know, a sentence each."
    seconds: float
    valid: Measured | None = None
    "How the final classifier fares on the validation part, on which its best epoch was chosen."


def fit(
    train: LabelledData,
    valid: LabelledData | None,
    *,
    base: Run | None = None,
    like: Run | None = None,
    options: FitOptions | None = None,
    keep_head: bool = False,
    whole: bool = False,
    directory: Path | None = None,
    resume: bool = False,
    quiet: bool = True,
    say: Callable[[str], None] = lambda line: None,
    world: World | None = None,
    begins: Callable[[], None] = lambda: None,
) -> Fitted:
    """Train a classifier on labelled text.

    `base` is a pretrained run, whose head is replaced (kept with `keep_head`, if it is a classifier of these classes).
    Without one, `like` gives shape and tokenizer, and the weights are random. `whole`: train on all examples to the
    end, with nothing set aside, no best epoch and no calibration. `directory` receives checkpoints and metrics; without
    one nothing is written. `begins` is called when nothing can be refused any more, before the first step.
    """
    options = FitOptions() if options is None else options
    check_fit(options)
    began = time.perf_counter()
    start = base if base is not None else like
    if start is None or start.tokenizer is None:
        raise UserError("fine-tuning needs a run with a tokenizer to start from, or to be like.")
    notes = look_at(train)
    given = train.fingerprint()
    if whole:
        valid = some(train, [])
    elif valid is None:
        train, valid, note = draw_validation(train, options.seed)
        notes.append(note)
    for note in notes:
        say(note)
    multilabel = train.multilabel
    parts = [
        Documents(encode(start.tokenizer, each.texts), targets(each, train.names, multilabel=multilabel))
        for each in (train, valid)
    ]
    model, reading, freeze = _prepare(start, train, parts[0], options, pretrained=base is not None, keep_head=keep_head)
    objective = Classify(
        model,
        parts[0],
        parts[1],
        reading=reading,
        freeze=freeze,
        batch=options.batch,
        class_weights=class_weights(parts[0].targets, len(train.names)) if options.class_weight is not None else None,
        layer_decay=options.layer_decay,
        pad=start.tokenizer.pad,
        seed=options.seed,
        keep_head=keep_head,
    )
    if options.unfreeze is not None:
        epochs = _epochs(options, len(train), layers=objective.mode == "padded")
        if options.unfreeze >= epochs:
            raise UserError(
                f"--unfreeze {options.unfreeze:g}: of {epochs:g} epochs all would train the head alone. Give less, or "
                "more --epochs."
            )
        objective.unfreeze = options.unfreeze / epochs
    if objective.pieces.cut:
        notes.append(say_cut(objective.pieces.cut, len(train), objective.longest, reading.long))
        say(notes[-1])
    begins()
    state, lines = _train(
        objective, options, len(train), directory, whole=whole, resume=resume, quiet=quiet, say=say, world=world
    )
    objective.fold()
    run = Run(gather_model(objective.model, sharded=options.shard).cpu().eval(), start.tokenizer, list(train.names))
    for parameter in run.model.parameters():
        parameter.requires_grad_(True)
    run.details = _details(options, train, given, valid, reading, freeze, state, base)
    curve = _curve(lines, objective.steps_in_epoch())
    if whole:
        return Fitted(run, curve, notes, time.perf_counter() - began)
    measured, more = settle(run, parts[1], train.names, reading)
    for note in more:
        say(note)
    run.details["validation"] = {"accuracy": measured.accuracy, "macro_f1": measured.macro_f1, "loss": measured.loss}
    return Fitted(run, curve, notes + more, time.perf_counter() - began, measured)


def draw_validation(data: LabelledData, seed: int) -> tuple[LabelledData, LabelledData, str]:
    """Set examples aside for validation; say that this was done."""
    kept, aside = split(data, VALIDATION, seed)
    if not len(aside):
        raise UserError("the examples are too few, or too much alike, to set some aside for validation. Give --valid.")
    note = (
        f"no validation part was given: {len(aside):,} of the {len(data):,} examples are set aside for it, classes in "
        "proportion"
    )
    return some(data, kept), some(data, aside), note


def settle(
    run: Run, valid: Documents, names: Sequence[str], reading: Reading, origin: str = "validation"
) -> tuple[Measured, list[str]]:
    """Calibrate a classifier on held-out documents, find its thresholds, and see whether it tells anything apart.

    Gives how it fares there, and what the user should know.
    """
    return settle_scores(run, score_ids(run.model, valid.ids, reading), valid.targets, names, origin)


def settle_scores(
    run: Run, logits: NDArray[Any], truth: NDArray[Any], names: Sequence[str], origin: str
) -> tuple[Measured, list[str]]:
    """Do the same by scores (N, K) that held-out documents were given."""
    head = run.model.head
    assert isinstance(head, ClassifierHead)  # noqa: S101 (for the type checker)
    multilabel = head.config.multilabel
    found: Calibration = calibrate(logits, truth, origin)
    fold_temperature(head, found.temperature)
    run.details["calibration"] = found.details()
    notes = [str(found)]
    shares = probabilities(logits / found.temperature, multilabel=multilabel)
    thresholds = None
    if multilabel:
        thresholds = find_thresholds(shares, truth)
        run.details["thresholds"] = thresholds
    guess = guesses(shares, multilabel=multilabel)
    if said := collapsed(guess, truth, names, origin):
        notes.append(f"{said} {_advice(run.details)}")
        run.details["collapsed"] = True
    elif found.temperature > 0.99 * HOTTEST or (not multilabel and by_chance(guess, truth)):
        notes.append(
            f"warning: the labels cannot be told from the text so far: what {len(truth):,} {origin} documents were "
            "taken for is hardly better than chance. Look whether texts and labels belong together, or give more "
            "examples."
        )
    return measure(shares, truth, names, None if thresholds is None else np.array(thresholds)), notes


def collapsed(guess: NDArray[Any], truth: NDArray[Any], names: Sequence[str], origin: str) -> str | None:
    """Tell, in a sentence, if all documents were taken for the same although they are not."""
    if len(guess) < 2 or (guess != guess[0]).any() or (truth == truth[0]).all():
        return None
    if guess.ndim == 2:
        said = ", ".join(repr(name) for name, there in zip(names, guess[0], strict=True) if there) or "no label at all"
        what = f"was given {said}"
    else:
        what = f"was taken for {names[int(guess[0])]!r}"
    return f"warning: every {origin} document {what}: the classifier tells nothing apart."


def by_chance(guess: NDArray[Any], truth: NDArray[Any]) -> bool:
    """Tell whether guesses (N,) are as good as chance often makes them: all but one time in twenty.

    What is compared is the mean over the classes of the share that was found: unlike accuracy, it does not rise where
    all is taken for the largest class. By chance as many of a class are taken for it as of all documents.
    """
    there, counts = np.unique(truth, return_counts=True)
    found = np.array([(guess[truth == each] == each).mean() for each in there])
    chance = np.array([(guess == each).mean() for each in there])
    error = (chance * (1 - chance) / counts).sum() ** 0.5
    return bool((found - chance).sum() <= LUCK * error)


def _advice(details: dict[str, Any]) -> str:
    """Say what may help against a collapse, by how the classifier was made."""
    ways = ["Give more examples"]
    if details["method"] == "gradient":
        ways += ["train longer (--epochs)", "change the learning rate (--lr)"]
    if details["options"]["class_weight"] is None:
        ways.append("balance the classes (--class-weight balanced)")
    return f"{', or '.join(ways)}."


def look_at(train: LabelledData) -> list[str]:
    """Refuse what cannot be learnt; say what is little."""
    check_classes(train, alone=True)
    counts = Counter(itertools.chain.from_iterable(train.labels))
    few = sorted((name for name in counts if counts[name] < FEW), key=lambda name: counts[name])
    if not few:
        return []
    shown = ", ".join(f"{name!r} {counts[name]}" for name in few[:5]) + (", …" if len(few) > 5 else "")
    return [f"note: few examples of {len(few)} of {len(counts)} classes ({shown}): expect little of these"]


def _prepare(
    start: Run, data: LabelledData, documents: Documents, options: FitOptions, *, pretrained: bool, keep_head: bool
) -> tuple[Model, Reading, Freeze]:
    """Make the model that is trained, and settle how it reads and what of it stays."""
    model = start.model
    torch.manual_seed(options.seed)
    config = model.config
    freeze = options.freeze
    # Of random weights nothing is worth keeping; but layers that take no part in one run take none in the other.
    if freeze is None:
        freeze = "layers" if len(model.base.layers) and is_bag(model.base.eval()) else "none"
    head = config.classifier(len(data.names), data.multilabel)
    if keep_head and isinstance(model.head_config, Classifier):
        head = model.head_config
    mean = head.pooling in ("mean", "distinct")
    as_bag = mean and is_bag(model.base) and (freeze == "layers" or not len(model.base.layers))
    dropout = options.dropout
    head_dropout = (0.5 if dropout is None else dropout) if as_bag else 0.0
    head = dataclasses.replace(head, dropout=head_dropout)
    made = reheaded(model, head, dropout) if pretrained else same_shape(model, head, dropout, documents.ids)
    if keep_head:
        _keep_head(start, made, data.names)
    check_length(model, options.length)
    long = "head+tail" if options.long is None else options.long
    limit = Reading(options.length, long).limit(model.base if as_bag or freeze == "base" else made.base.train())
    return made.eval(), Reading(None if options.length is None and as_bag else limit, long), freeze


def check_length(model: Model, length: int | None) -> None:
    """Refuse to read more at once than there are positions."""
    if length is not None and model.config.positions == "learned" and length > model.config.maxlen:
        raise UserError(f"--length {length}: this base reads at most {model.config.maxlen} tokens.")


def _keep_head(start: Run, made: Model, names: Sequence[str]) -> None:
    if start.labels != list(names) or not isinstance(start.model.head, ClassifierHead):
        raise UserError("the head can be kept only if the run is a classifier of the same classes.")
    assert made.head is not None  # noqa: S101 (for the type checker)
    made.head.load_state_dict(start.model.head.state_dict())


def _epochs(options: FitOptions, examples: int, *, layers: bool) -> float:
    """How often the examples are read, unless the user says: few ones more often, and by layers twice as often."""
    usual = (1 + layers) * min(20, max(4, round(10_000 / max(1, examples))))
    return usual if options.epochs is None else options.epochs


def _train(
    objective: Classify,
    options: FitOptions,
    examples: int,
    directory: Path | None,
    *,
    whole: bool,
    resume: bool,
    quiet: bool,
    say: Callable[[str], None],
    world: World | None,
) -> tuple[State, list[dict[str, Any]]]:
    """Train; give where it ended, and all lines of metrics."""
    epochs = _epochs(options, examples, layers=objective.mode == "padded")
    steps = max(1, round(epochs * objective.steps_in_epoch()))
    looks = min(steps, options.validations or max(1, round(epochs)))
    settings = dataclasses.replace(options, validations=0 if whole else looks)
    patience = None if options.patience is None else math.ceil(options.patience * looks / epochs)  # in looks
    phase = Phase(objective, Budget("steps", steps), _rates(objective, options), patience)
    lines: list[dict[str, Any]] = []
    if world is None:
        with join_world(options.device) as joined:
            return _train_in(joined, phase, settings, directory, resume, quiet, say, lines)
    return _train_in(world, phase, settings, directory, resume, quiet, say, lines)


def _train_in(
    world: World,
    phase: Phase,
    options: FitOptions,
    directory: Path | None,
    resume: bool,
    quiet: bool,
    say: Callable[[str], None],
    lines: list[dict[str, Any]],
) -> tuple[State, list[dict[str, Any]]]:
    try:
        state = train_phases([phase], options, world, directory, resume=resume, quiet=quiet, say=say, lines=lines)
    except Stopped as stopped:
        if directory is None:
            raise KeyboardInterrupt from stopped
        raise
    return state, lines if directory is None else read(directory / NAME)


def _rates(objective: Classify, options: FitOptions) -> Rates:
    """Choose the learning rates: by default lower in wider models, and higher for a head on fixed or summed vectors."""
    width = (256 / objective.model.config.nhid) ** 0.5
    rate = LAYERS * width if objective.mode == "padded" else HEAD
    default = Rates(adamw=rate, muon=2e-3, rows=ROWS, decay=options.weight_decay)
    return default.at(options.lr, options.lr_scale)


def say_cut(count: int, total: int, longest: int, long: LongRule) -> str:
    """Say how many documents are longer than is read at once, and what is read of them."""
    what = {
        "head": "their beginning is read",
        "tail": "their end is read",
        "head+tail": "a quarter from the beginning and three quarters from the end are read",
        "windows": "they are read in windows, whose scores are averaged",
    }[long]
    return f"{count:,} of {total:,} documents are longer than {longest:,} tokens: {what}"


def _curve(lines: list[dict[str, Any]], steps_in_epoch: float) -> list[Point]:
    """Put the curve together out of the lines of metrics."""
    points: list[Point] = []
    losses: list[tuple[int, float]] = []
    before = 0
    for line in lines:
        if line["kind"] == "train":
            losses.append((line["step"] - before, line["loss"]))
            before = line["step"]
            continue
        weight = sum(steps for steps, _ in losses)
        mean = sum(steps * loss for steps, loss in losses) / weight if weight else None
        found = {name: line.get(name) for name in ("loss", "accuracy", "macro_f1")}
        numbers = {name: float("nan") if value is None else value for name, value in found.items()}
        points.append(Point(line["step"] / steps_in_epoch, line["step"], line["seconds"], mean, **numbers))
        losses = []
    return points


def _details(
    options: FitOptions,
    train: LabelledData,
    given: str,
    valid: LabelledData,
    reading: Reading,
    freeze: Freeze,
    state: State,
    base: Run | None,
) -> dict[str, Any]:
    """Say how the classifier came about, as JSON can hold it.

    `given` is the fingerprint of all examples, those among them that were set aside for validation.
    """
    known = {each.name for each in dataclasses.fields(FitOptions)}
    asked = {name: value for name, value in dataclasses.asdict(options).items() if name in known}
    return {
        "objective": "classify",
        "method": "gradient",
        "options": asked,
        "seed": options.seed,
        "freeze": freeze,
        "reading": dataclasses.asdict(reading),
        "examples": {
            "train": len(train),
            "valid": len(valid),
            "train_fingerprint": given,
            "valid_fingerprint": valid.fingerprint(),
        },
        "base": None if base is None else {name: base.details.get(name) for name in ("objective", "seed", "tokens")},
        "steps": state.step,
        "best_step": state.best_step,
        "seconds": round(state.seconds, 1),
        "rehead": rehead.__version__,
    }
