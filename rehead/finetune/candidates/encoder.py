"""Fine-tuning an encoder that others pretrained, by gradient: unasked where it is quick, else with `--minutes`.

The encoder is trained from the linear classifier on its vectors on. What comes out stands alone, or beside the best
classifier so far, whichever held-out examples prefer: then its scores are added to that one's, and the frozen encoder
is read, too, if that one reads it. On questions it gains more than all views beside a frozen encoder, and takes minutes
instead of seconds (docs/experiments/finetuning-encoders.md). What is tried unasked is bounded by work, not by time: so
the same data gives the same classifier everywhere.

Few examples are held out in more parts, so that there are enough to judge by.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import TYPE_CHECKING

import numpy as np
import torch

from rehead.finetune.calibration import calibrated_losses, find_temperature
from rehead.finetune.candidates.candidate import Candidate, Task, text_work
from rehead.finetune.network import NoTimeError, encoder_epochs, train_network
from rehead.finetune.selection import is_better
from rehead.finetune.targets import subset
from rehead.finetune.worth import view_worth
from rehead.model.config import NO_BASE
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.runs.scoring import class_logits, classifier_head

if TYPE_CHECKING:
    from rehead.finetune.candidates.candidate import Folds
    from rehead.text.documents import LabelledData

MIN_EXAMPLES = 50
UNASKED = 6e12  # multiply-adds of training that is tried without --minutes: about two minutes of two cores
BACKWARD = 3  # times the work of reading a text
PARTS = ((300, 4, 0.25), (1_000, 2, 0.2))  # below so many examples: parts that are held out in turn, and their share
SHARES = (0.75, 0.5, 0.25)  # of the fine-tuned encoder, where it stands beside the best so far
TUNED = "-tuned"  # after the name of a view, beside the frozen one


def propose(task: Task, best: Candidate | None) -> Candidate | str:
    """Fine-tune on some of the examples, judge by the others; choose how much the best so far counts beside it."""
    encoders = [name for name, each in task.base.model.brought.items() if each.kind == "encoder"]
    if not encoders:
        return "there is no encoder that others pretrained"
    minutes = task.options.minutes
    if minutes == 0:
        return "--minutes 0"
    if len(task.train) < MIN_EXAMPLES:
        return f"that takes {MIN_EXAMPLES} examples"
    if best is None or not task.folds:
        return "nothing could be held out to judge it by"
    alone = view_worth(task, best).get("alone", {})
    name = max(encoders, key=lambda each: alone.get(each, 0.0))
    parts = held_out_parts(task.folds, len(task.train))
    if minutes is None:
        if training_work(task, name, parts) > UNASKED:
            return "it would take more than about two minutes; give it the time with --minutes N"
        if importlib.util.find_spec("transformers") is None:
            return "it needs transformers: pip install 'rehead[hub]'"
    seconds = None if minutes is None else 60 * minutes / (len(parts) + 1)
    tuned, epochs = np.full(best.logits.shape, np.nan), task.options.epochs
    for inside, outside in parts:
        try:
            run = _train(task, name, subset(task.train, inside), epochs, seconds)
        except NoTimeError as error:
            return str(error)
        tuned[outside] = class_logits(run, [task.train.texts[int(each)] for each in outside])
        epochs = run.details["epochs"]
    known, balanced = ~np.isnan(tuned[:, 0]), task.balanced_loss
    heat = find_temperature(tuned[known], task.truth[known], balanced=balanced)
    mixed = {share: share * tuned / heat + (1 - share) * best.logits for share in SHARES}
    share = min(SHARES, key=lambda each: calibrated_losses(mixed[each], task.truth, balanced=balanced).mean())
    if not is_better(mixed[share], tuned, task.truth, balanced=balanced):
        share = 1.0
    logits = {1.0: tuned, **mixed}[share]

    def build() -> Run:
        run = _train(task, name, task.train, epochs, None)
        return run if share == 1 else beside(best.build(), run, share, heat)

    called = f"fine-tuned {name}" + (f" ({share:g}) beside the best so far" if share < 1 else "")
    return dataclasses.replace(best, name=called, logits=logits, build=build, frozen=False)


def held_out_parts(folds: Folds, examples: int) -> Folds:
    """Put folds together to the parts that are held out in turn: for each, the examples outside and those in it."""
    if len(folds) == 1:
        return folds
    number, share = next(((number, share) for least, number, share in PARTS if examples < least), (1, 0.2))
    each = max(1, round(share * len(folds)))
    parts = []
    for begin in range(0, min(number * each, len(folds)), each):
        outside = np.sort(np.concatenate([held for _, held in folds[begin : begin + each]]))
        parts.append((np.setdiff1d(np.arange(examples), outside), outside))
    return parts


def training_work(task: Task, name: str, parts: Folds) -> float:
    """Count the multiply-adds of fine-tuning an encoder on each of the parts, and on all examples."""
    engine = task.base.model.brought[name].engine
    sizes = [len(task.train), *(len(inside) for inside, _ in parts)]
    read = sum(each * (task.options.epochs or encoder_epochs(each)) for each in sizes)
    return BACKWARD * read * text_work(engine, task.train.texts, engine.max_length)


def _train(task: Task, name: str, train: LabelledData, epochs: float | None, seconds: float | None) -> Run:
    """Fine-tune one encoder on all of these examples."""
    model = Model(NO_BASE).eval()
    model.brought = {name: task.base.model.brought[name]}
    options = dataclasses.replace(task.options, freeze="none", epochs=epochs, minutes=None)
    return train_network(
        train, None, base=Run(model), options=options, whole=True, most_seconds=seconds, quiet=task.quiet
    ).run


def beside(run: Run, tuned: Run, share: float, temperature: float) -> Run:
    """Add a fine-tuned encoder to a classifier, and give it: its own scores count 1 − `share`.

    Those of the encoder are divided by a temperature.
    """
    head, other = classifier_head(run.model), classifier_head(tuned.model)
    [config] = other.config.views
    part = other.of(config.name)
    base = config.options["base"] + TUNED
    name = f"encoder:{base}"
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(1 - share)
        part.weight.mul_(share / temperature)
        head.bias.add_(other.bias * (share / temperature))
    head.views[name] = part
    stated = dataclasses.replace(config, name=name, options={**config.options, "base": base})
    head.config = dataclasses.replace(head.config, views=(*head.config.views, stated))
    run.model.head_config = head.config
    [brought] = tuned.model.brought.values()
    run.model.brought = {**run.model.brought, name: dataclasses.replace(brought, name=name)}
    return run
