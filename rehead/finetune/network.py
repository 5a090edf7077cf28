"""A classifier trained by gradient: from a base, or from random weights of the same shape.

    fitted = train_network(train, valid, base=load("runs/base"))

A base is one of our own, or an encoder that others pretrained. What is given is never changed. `curve[0]` is what
validation finds before the first step; the weights that come out are those of the best epoch, calibrated on the
validation part. Without one, some examples are held out.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from rehead.bases.saving import with_weights
from rehead.errors import UserError
from rehead.finetune.build import check_length, with_head, with_random_weights
from rehead.finetune.encoder_network import EncoderNetwork
from rehead.finetune.fitted import Fitted, Point, calibrate_run, describe_cut, describe_data, describe_fit
from rehead.finetune.objective import Classify, Documents
from rehead.finetune.options import FitOptions, Freeze, check_fit
from rehead.finetune.splits import split
from rehead.finetune.targets import class_weights, subset, targets
from rehead.finetune.trainable import OwnNetwork
from rehead.model.config import Classifier, ModelConfig, from_dict
from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.pretrain.adapting.network_objective import expected_seconds, time_step
from rehead.progress import duration
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
from rehead.views.encoder import EncoderOptions, EncoderView, usual_rule
from rehead.views.layers import LayersView
from rehead.views.neural import neural_view
from rehead.views.view import DenseView

VALIDATION = 0.2  # share of the examples that validate, where no validation part is given
BAG_DROPOUT = 0.5  # of the document's vector, where no layer reads
# Learning rates before the schedule: of layers and heads, of heads alone, of rows.
LAYERS, HEAD, ROWS = 3e-4, 1e-3, 0.01
# Of layers whose outputs are normed and then standardised, which are pretrained ones: a small step of theirs is a large
# one of what the head reads. At the rate that random layers need, what was pretrained is lost in the first steps.
# Dropout before a norm moves the mean of what comes out of it, and prediction has none (docs/experiments/lab.md).
NORMED_LAYERS, NORMED_DROPOUT = 1e-5, 0.0
ENCODER, ENCODER_WIDTH = (
    1e-4,
    384,
)  # of an encoder that others pretrained, of this width: half as much at twice the width
TIMED_LOOKS = 10  # at the validation part, where the budget is in minutes
ENCODER_EPOCHS, ENCODER_READ = (3, 10), 2_500  # fewest and most epochs, between them about so many examples


class NoTimeError(UserError):
    """Training would take longer than there is time for."""


def train_network(
    train: LabelledData,
    valid: LabelledData | None,
    *,
    base: Run | None = None,
    like: Run | None = None,
    options: FitOptions | None = None,
    keep_head: bool = False,
    whole: bool = False,
    most_seconds: float | None = None,
    directory: Path | None = None,
    resume: bool = False,
    quiet: bool = True,
    say: Callable[[str], None] = lambda line: None,
    world: World | None = None,
) -> Fitted:
    """Train a classifier on labelled text.

    `base` is a pretrained run, whose head is replaced (kept with `keep_head`, if it is a classifier of these classes).
    Without one, `like` gives shape and tokenizer, and the weights are random. `whole`: train on all examples to the
    end, with nothing set aside, no best epoch and no calibration. `most_seconds`: if a trial step says that an encoder
    would take longer, read the examples less often, or raise `NoTimeError`. `directory` receives checkpoints and
    metrics; without one nothing is written.
    """
    options = FitOptions() if options is None else options
    check_fit(options)
    began = time.perf_counter()
    start = base if base is not None else like
    if start is None or (start.tokenizer is None and not start.model.brought):
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
    with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16"):  # vectors for the head's start
        objective = _objective(start, train, valid, options, pretrained=base is not None, keep_head=keep_head)
    if options.unfreeze is not None:
        epochs = _epochs(options, len(train), objective)
        if options.unfreeze >= epochs:
            raise UserError(
                f"--unfreeze {options.unfreeze:g}: of {epochs:g} epochs all would train the head alone. Give less, or "
                "more --epochs."
            )
        objective.unfreeze = options.unfreeze / epochs
    if cut := _describe_cut(objective, len(train)):
        notes.append(cut)
        say(cut)
    state, lines = _train(
        objective,
        options,
        len(train),
        directory,
        whole=whole,
        most_seconds=most_seconds,
        resume=resume,
        quiet=quiet,
        say=say,
        world=world,
    )
    objective.fold()
    network, curve = objective.network, _curve(lines, objective.steps_in_epoch())
    run = Run(gather_model(objective.model, sharded=options.shard).cpu().eval(), start.tokenizer, list(train.names))
    if world is not None and not world.is_main:  # only the first process writes, an encoder's files too
        return Fitted(run, curve, notes, time.perf_counter() - began)
    if isinstance(network, EncoderNetwork):
        run.model.brought = {
            network.name: with_weights(start.model.brought[network.name], network.network.cpu().eval())
        }
    for parameter in run.model.parameters():
        parameter.requires_grad_(True)
    run.details = describe_fit("gradient", options, given, examples, base) | {
        "freeze": objective.freeze,
        "steps": state.step,
        "epochs": round(state.step / objective.steps_in_epoch(), 6),
        "best_step": state.best_step,
        "seconds": round(state.seconds, 1),
    }
    run.details["examples"]["train"] = len(train)
    if run.model.brought:
        run.details["brought"] = [each.describe() for each in run.model.brought.values()]
    if whole:
        return Fitted(run, curve, notes, time.perf_counter() - began)
    logits = score_texts(run.model, EncodedTexts(valid.texts, run.tokenizer))
    measured, more = calibrate_run(run, logits, objective.valid.targets)
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


def _objective(
    start: Run, train: LabelledData, valid: LabelledData, options: FitOptions, *, pretrained: bool, keep_head: bool
) -> Classify:
    """Make the model that is trained, with a head on one view, and what trains it."""
    torch.manual_seed(options.seed)
    view = _encoder_view(start, options, keep_head=keep_head) if start.model.config.empty else None
    network = None if view is None else EncoderNetwork(view, dropout=options.dropout)
    parts = [
        Documents(
            EncodedTexts(each.texts, start.tokenizer).ids if network is None else network.tokenize(each.texts),
            targets(each, train.names, multilabel=train.multilabel),
        )
        for each in (train, valid)
    ]
    pad = 0 if start.tokenizer is None else start.tokenizer.pad
    own: OwnNetwork | None = None
    if view is None:
        model, freeze = _prepare(start, train, parts[0], options, pretrained=pretrained, keep_head=keep_head)
        own = OwnNetwork(model, pad, pretrained=pretrained)
    else:
        head = Classifier(classes=len(train.names), views=(view.config(),), multilabel=train.multilabel)
        model, freeze = with_head(start.model, head).eval(), options.freeze or "none"
        if keep_head:
            _keep_head(start, model, train.names)
    weights = class_weights(parts[0].targets, len(train.names)) if options.class_weight is not None else None
    return Classify(
        model,
        parts[0],
        parts[1],
        freeze=freeze,
        batch=options.batch,
        class_weights=weights,
        metric=options.metric,
        layer_decay=options.layer_decay,
        weight_decay=options.weight_decay,
        pad=pad,
        seed=options.seed,
        keep_head=keep_head,
        network=own if network is None else network,
    )


def _encoder_view(start: Run, options: FitOptions, *, keep_head: bool) -> EncoderView:
    """Make the view of the one encoder that a run reads: that of a head that is kept, else as the user says."""
    [name] = start.model.brought
    head = start.model.head_config
    if keep_head and isinstance(head, Classifier) and (config := head.view(name)) is not None:
        return EncoderView(start.model, from_dict(EncoderOptions, dict(config.options)), unit=config.unit)
    long = options.long or usual_rule(start.model.brought[name], trained=True)
    stated = EncoderOptions(base=name.partition(":")[2], long=long)
    return EncoderView(start.model, stated, unit=False)


def _describe_cut(objective: Classify, total: int) -> str | None:
    """Say how many documents are longer than is read at once, and what is read of them."""
    network = objective.network
    if not isinstance(network, OwnNetwork):
        return None
    view = network.view
    cut = sum(len(each) > view.max_length for each in objective.train_documents.ids)
    return describe_cut(cut, total, view.max_length, view.options.long) if cut else None


def _prepare(
    start: Run, data: LabelledData, documents: Documents, options: FitOptions, *, pretrained: bool, keep_head: bool
) -> tuple[Model, Freeze]:
    """Make a model of our own that is trained, with a head on one neural view, and say what of it is frozen."""
    check_length(start.model.config, options.length)
    view = _view(start.model, options, keep_head=keep_head)
    dropout = options.dropout
    head = Classifier(
        classes=len(data.names),
        views=(view.config(),),
        multilabel=data.multilabel,
        dropout=(BAG_DROPOUT if dropout is None else dropout) if view.name == "bag" else 0.0,
    )
    if pretrained:
        normed = start.model.config.norm == "post" and isinstance(view, LayersView) and view.options.pooling == "mean"
        if dropout is None and normed:
            dropout = NORMED_DROPOUT
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
        unit, stated = False, {**({"distinct": False} if name == "bag" else _reading(config, options)), **pieces}
    view = neural_view(model, name, unit=unit, **stated)
    if isinstance(view, LayersView):  # the limit stands in the config, and is not left to a later default
        return neural_view(model, name, unit=unit, **{**stated, "max_length": view.max_length})
    return view


def _reading(config: ModelConfig, options: FitOptions) -> dict[str, Any]:
    """Say how layers read a document: as the options say, or else as the base's config does."""
    causal = config.causal if options.attention is None else options.attention == "causal"
    return {"pooling": options.pooling or config.pooling, "causal": causal}


def _keep_head(start: Run, made: Model, names: Sequence[str]) -> None:
    """Copy the trained head's weights of the neural view."""
    if start.labels != list(names) or not isinstance(start.model.head, ClassifierHead):
        raise UserError("the head can be kept only if the run is a classifier of the same classes.")
    made_head = classifier_head(made)
    state = start.model.head.state_dict()
    made_head.load_state_dict({name: state[name] for name in made_head.state_dict()})


def _epochs(options: FitOptions, examples: int, objective: Classify) -> float:
    """How often the examples are read, unless the user says: few ones more often."""
    if options.epochs is not None:
        return options.epochs
    if isinstance(objective.network, EncoderNetwork):
        return encoder_epochs(examples)
    return (1 + objective.layers) * min(20, max(4, round(10_000 / max(1, examples))))


def encoder_epochs(examples: int) -> float:
    """How often an encoder that others pretrained reads the examples, unless the user says."""
    fewest, most = ENCODER_EPOCHS
    return min(most, max(fewest, round(ENCODER_READ / max(1, examples))))


def _train(
    objective: Classify,
    options: FitOptions,
    examples: int,
    directory: Path | None,
    *,
    whole: bool,
    most_seconds: float | None,
    resume: bool,
    quiet: bool,
    say: Callable[[str], None],
    world: World | None,
) -> tuple[State, list[dict[str, Any]]]:
    """Train; give where it ended, and all lines of metrics."""
    if options.minutes is None:
        epochs = _epochs(options, examples, objective)
        steps = max(1, round(epochs * objective.steps_in_epoch()))
        budget, looks = Budget("steps", steps), min(steps, options.validations or max(1, round(epochs)))
        patience = None if options.patience is None else math.ceil(options.patience * looks / epochs)  # in looks
    else:
        budget, looks, patience = Budget("minutes", options.minutes), options.validations or TIMED_LOOKS, None
    settings = dataclasses.replace(options, validations=0 if whole else looks)
    phase = Phase(objective, budget, _rates(objective, options), patience)
    lines: list[dict[str, Any]] = []
    with join_world(options.device) if world is None else nullcontext(world) as joined:
        if isinstance(objective.network, EncoderNetwork):
            seconds = time_step(objective, options.accumulate, options.accumulate * joined.size, joined.device)
            objective.zero_grad(set_to_none=True)
            phase = _shortened(phase, seconds, most_seconds)
            say(_describe_training(objective, phase.budget, seconds, settings.validations))
        return _train_in(joined, phase, settings, directory, resume, quiet, say, lines)


def _shortened(phase: Phase, step: float, most: float | None) -> Phase:
    """Take as many steps as there is time for, a trial step having taken so many seconds; at least an epoch."""
    if most is None or phase.budget.kind != "steps":
        return phase
    steps, epoch = int(most / max(step, 1e-9)), phase.objective.steps_in_epoch()
    if steps < epoch:
        raise NoTimeError(f"an epoch would take {duration(step * epoch)}, and there are {duration(most)} for it")
    return dataclasses.replace(phase, budget=Budget("steps", min(steps, phase.budget.amount)))


def _describe_training(objective: Classify, budget: Budget, step: float, validations: int) -> str:
    """Say what of an encoder is trained, and how long that will take, a step taking so many seconds."""
    took = duration(expected_seconds(objective, budget, step, validations))
    frozen = {id(each) for each in objective.idle()}
    network = objective.network
    assert isinstance(network, EncoderNetwork)  # noqa: S101 (for the type checker)
    moving = sum(each.numel() for each in network.parameters() if id(each) not in frozen)
    every = sum(each.numel() for each in network.parameters())
    rates = "" if objective.layer_decay == 1 else f", each layer at {objective.layer_decay:g} of the rate above it"
    return f"fine-tuning {network.name}: {moving:,} of its {every:,} parameters for {budget}, about {took}{rates}"


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
    if isinstance(objective.network, EncoderNetwork):
        rate = ENCODER * ENCODER_WIDTH / objective.network.encoder.model.config.hidden_size
        return Rates(adamw=rate).at(options.lr, options.lr_scale)
    width = (256 / objective.model.config.nhid) ** 0.5
    rate = LAYERS * width if objective.layers else HEAD
    if objective.layers and objective.network.standardise and objective.model.config.norm == "post":
        rate = NORMED_LAYERS * width
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
