"""A classifier trained by gradient: from a base, or from random weights of the same shape.

    fitted = train_network(train, valid, base=load("runs/base"))

The base that is given is never changed. `curve[0]` is what validation finds before the first step; the weights that
come out are those of the best epoch, calibrated on the validation part. Without one, some examples are held out.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from rehead.errors import UserError
from rehead.finetune.build import check_length, with_head, with_random_weights
from rehead.finetune.fitted import Fitted, Point, calibrate_run, describe_cut, describe_data, describe_fit
from rehead.finetune.objective import Classify, Documents
from rehead.finetune.options import FitOptions, Freeze, check_fit
from rehead.finetune.splits import split
from rehead.finetune.targets import class_weights, subset, targets
from rehead.model.config import Classifier
from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.runs.scoring import classifier_head, score_texts
from rehead.text.documents import LabelledData
from rehead.training.budget import Budget
from rehead.training.distributed import World, gather_model
from rehead.training.distributed import join_processes as join_world
from rehead.training.loop import Phase
from rehead.training.loop import train as train_phases
from rehead.training.metrics_log import NAME, read
from rehead.training.optimizers import Rates
from rehead.training.state import State
from rehead.training.stopping import Stopped
from rehead.views.encoded import EncodedTexts
from rehead.views.layers import LayersView
from rehead.views.neural import neural_view
from rehead.views.view import DenseView

VALIDATION = 0.2  # share of the examples that validate, where no validation part is given
BAG_DROPOUT = 0.5  # of the document's vector, where no layer reads
# Learning rates before the schedule: of layers and heads, of heads alone, of rows.
LAYERS, HEAD, ROWS = 3e-4, 1e-3, 0.01


def train_network(
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
) -> Fitted:
    """Train a classifier on labelled text.

    `base` is a pretrained run, whose head is replaced (kept with `keep_head`, if it is a classifier of these classes).
    Without one, `like` gives shape and tokenizer, and the weights are random. `whole`: train on all examples to the
    end, with nothing set aside, no best epoch and no calibration. `directory` receives checkpoints and metrics; without
    one nothing is written.
    """
    options = FitOptions() if options is None else options
    check_fit(options)
    began = time.perf_counter()
    start = base if base is not None else like
    if start is None or start.tokenizer is None:
        raise UserError("fine-tuning needs a run with a tokenizer to start from, or to be like.")
    notes, given, examples = describe_data(train), train, valid
    if whole:
        valid = subset(train, [])
    elif valid is None:
        train, valid, note = draw_validation(train, options.seed)
        notes.append(note)
        examples = valid
    for note in notes:
        say(note)
    multilabel = train.multilabel
    parts = [
        Documents(EncodedTexts(each.texts, start.tokenizer).ids, targets(each, train.names, multilabel=multilabel))
        for each in (train, valid)
    ]
    model, freeze = _prepare(start, train, parts[0], options, pretrained=base is not None, keep_head=keep_head)
    objective = Classify(
        model,
        parts[0],
        parts[1],
        freeze=freeze,
        batch=options.batch,
        class_weights=class_weights(parts[0].targets, len(train.names)) if options.class_weight is not None else None,
        metric=options.metric,
        layer_decay=options.layer_decay,
        pad=start.tokenizer.pad,
        seed=options.seed,
        keep_head=keep_head,
    )
    if options.unfreeze is not None:
        epochs = _epochs(options, len(train), layers=objective.layers)
        if options.unfreeze >= epochs:
            raise UserError(
                f"--unfreeze {options.unfreeze:g}: of {epochs:g} epochs all would train the head alone. Give less, or "
                "more --epochs."
            )
        objective.unfreeze = options.unfreeze / epochs
    view = objective.view
    if objective.pieces.cut:
        notes.append(describe_cut(objective.pieces.cut, len(train), view.max_length, view.options.long))
        say(notes[-1])
    state, lines = _train(
        objective, options, len(train), directory, whole=whole, resume=resume, quiet=quiet, say=say, world=world
    )
    objective.fold()
    run = Run(gather_model(objective.model, sharded=options.shard).cpu().eval(), start.tokenizer, list(train.names))
    for parameter in run.model.parameters():
        parameter.requires_grad_(True)
    run.details = describe_fit("gradient", options, given, examples, base) | {
        "freeze": freeze,
        "steps": state.step,
        "best_step": state.best_step,
        "seconds": round(state.seconds, 1),
    }
    run.details["examples"]["train"] = len(train)
    curve = _curve(lines, objective.steps_in_epoch())
    if whole:
        return Fitted(run, curve, notes, time.perf_counter() - began)
    logits = score_texts(run.model, EncodedTexts(ids=parts[1].ids))
    measured, more = calibrate_run(run, logits, parts[1].targets)
    for note in more:
        say(note)
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
    return subset(data, kept), subset(data, aside), note


def _prepare(
    start: Run, data: LabelledData, documents: Documents, options: FitOptions, *, pretrained: bool, keep_head: bool
) -> tuple[Model, Freeze]:
    """Make the model that is trained, with a head on one neural view, and say what of it is frozen."""
    config = start.model.config
    torch.manual_seed(options.seed)
    check_length(config, options.length)
    view = _view(start.model, options, keep_head=keep_head)
    dropout = options.dropout
    head = Classifier(
        classes=len(data.names),
        views=(view.config(),),
        multilabel=data.multilabel,
        dropout=(BAG_DROPOUT if dropout is None else dropout) if view.name == "bag" else 0.0,
    )
    if pretrained:
        made = with_head(start.model, head, dropout)
    else:
        made = with_random_weights(start.model, head, dropout, documents.ids)
    if keep_head:
        _keep_head(start, made, data.names)
    if options.freeze is None or (options.freeze == "layers" and view.name == "bag"):  # which has no layers
        return made.eval(), "none"
    return made.eval(), options.freeze


def _view(model: Model, options: FitOptions, *, keep_head: bool) -> DenseView:
    """Choose the neural view that is trained: that of a head that is kept, else by what is to learn."""
    config, head = model.config, model.head_config
    pieces: dict[str, Any] = {"max_length": options.length, "long": options.long or "head+tail"}
    if keep_head and isinstance(head, Classifier) and head.neural is not None:
        name, unit, stated = head.neural.name, head.neural.unit, {**head.neural.options, **pieces}
    else:
        # Frozen layers leave a base reading what it reads; layers that are to learn are read.
        name = str(config.reads if options.freeze in (None, "layers") else config.views[-1])
        unit, stated = False, {**({"distinct": False} if name == "bag" else {"pooling": config.pooling}), **pieces}
    view = neural_view(model, name, unit=unit, **stated)
    if isinstance(view, LayersView):  # the limit stands in the config, and is not left to a later default
        return neural_view(model, name, unit=unit, **{**stated, "max_length": view.max_length})
    return view


def _keep_head(start: Run, made: Model, names: Sequence[str]) -> None:
    """Copy the trained head's weights of the neural view."""
    if start.labels != list(names) or not isinstance(start.model.head, ClassifierHead):
        raise UserError("the head can be kept only if the run is a classifier of the same classes.")
    made_head = classifier_head(made)
    state = start.model.head.state_dict()
    made_head.load_state_dict({name: state[name] for name in made_head.state_dict()})


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
    epochs = _epochs(options, examples, layers=objective.layers)
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
    """Choose the learning rates: by default lower in wider models, and higher for a head on summed vectors."""
    width = (256 / objective.model.config.nhid) ** 0.5
    rate = LAYERS * width if objective.layers else HEAD
    default = Rates(adamw=rate, muon=2e-3, rows=ROWS, weight_decay=options.weight_decay)
    return default.at(options.lr, options.lr_scale)


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
