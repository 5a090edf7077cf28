"""Fine-tuning through the one training loop: for how long, how fast, and the curve that comes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rehead.finetune.classify import Classify
from rehead.finetune.options import FitOptions
from rehead.training.budget import Budget
from rehead.training.distributed import World
from rehead.training.loop import Phase, State, train
from rehead.training.optimizers import Rates
from rehead.training.record import NAME, read

# Learning rates before the schedule: of layers and heads, of heads alone, of rows.
LAYERS, HEAD, ROWS = 3e-4, 1e-3, 0.01

Say = Callable[[str], None]


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


def run_training(
    objective: Classify,
    options: FitOptions,
    world: World,
    directory: Path | None,
    *,
    resume: bool = False,
    quiet: bool = True,
    say: Say = lambda line: None,
) -> tuple[State, list[Point]]:
    """Train, and validate before the first step and after every epoch; give where it ended, and the curve."""
    epochs = epochs_of(options, objective)
    steps = total_steps(options, objective)
    looks = options.validations or max(1, round(epochs))
    settings = dataclasses.replace(options, validations=min(looks, steps))
    phase = Phase(objective, Budget("steps", steps), rates_of(options, objective), options.patience)
    lines: list[dict[str, Any]] = []
    state = train([phase], settings, world, directory, resume=resume, quiet=quiet, say=say, lines=lines)
    return state, curve(lines if directory is None else read(directory / NAME), objective.steps_in_epoch())


def run_again(objective: Classify, options: FitOptions, world: World, until: float, *, quiet: bool = True) -> None:
    """Train on other examples as long as was best before, without looking at any validation part."""
    phase = Phase(
        objective, Budget("steps", total_steps(options, objective)), rates_of(options, objective), until=until
    )
    train([phase], dataclasses.replace(options, validations=0), world, None, quiet=quiet)


def epochs_of(options: FitOptions, objective: Classify) -> float:
    """How often the examples are read, unless the user says: few ones more often, and by layers twice as often."""
    times = 2 if objective.mode == "padded" else 1
    usual = times * min(20, max(4, round(10_000 / max(1, len(objective.train_documents)))))
    return usual if options.epochs is None else options.epochs


def total_steps(options: FitOptions, objective: Classify) -> int:
    """How many steps that makes."""
    return max(1, round(epochs_of(options, objective) * objective.steps_in_epoch()))


def rates_of(options: FitOptions, objective: Classify) -> Rates:
    """Choose the learning rates: wider models take smaller steps, and a head on fixed or summed vectors larger ones."""
    width = (256 / objective.model.config.nhid) ** 0.5
    rate = LAYERS * width if objective.mode == "padded" else HEAD
    return Rates(adamw=rate * options.lr, muon=2e-3 * options.lr, rows=ROWS * options.lr, decay=options.weight_decay)


def curve(lines: list[dict[str, Any]], steps_in_epoch: float) -> list[Point]:
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
