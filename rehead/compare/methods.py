"""Each way from labels to a classifier, behind one function: `learn`.

Scratch and pretrained are the same call of `fit_classifier` with the same options; only the weights that they
start from differ.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rehead.compare.baselines import fit_baseline
from rehead.compare.kinds import ABOUT, BASELINES, TITLES, Kind
from rehead.compare.options import CompareOptions
from rehead.compare.results import Method, Moment
from rehead.finetune.fit import fit_classifier
from rehead.finetune.fitted import Fitted, Point
from rehead.finetune.options import FitOptions
from rehead.model.config import to_dict
from rehead.runs.run import Run
from rehead.runs.scoring import class_probabilities
from rehead.text.documents import LabelledData


@dataclass
class Learner:
    """A classifier that has learnt, and what that took."""

    predict: Callable[[Sequence[str]], NDArray[np.floating]]
    "Texts → probabilities (N, K)."
    seconds: float
    curve: list[Moment] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    thresholds: list[float] | None = None
    "Of several labels: from which probability on each is given."


def list_methods(options: CompareOptions, runs: dict[str, Run]) -> list[Method]:
    """List what is compared: scratch once for each shape, what starts from a run once for each run."""
    found: list[Method] = []
    last = [Path(name).name for name in runs]
    short = {name: Path(name).name if last.count(Path(name).name) == 1 else name for name in runs}
    shapes: list[object] = []
    started: tuple[Kind, ...] = ("scratch", "pretrained", "frozen", "recipe")
    for kind in started:
        if kind not in options.methods:
            continue
        for name, run in runs.items():
            shape = (to_dict(run.model.config), run.tokenizer.fingerprint() if run.tokenizer else None)
            if kind == "scratch" and shape in shapes:
                continue
            shapes += [shape] if kind == "scratch" else []
            called = short[name] if len(runs) > 1 else ""
            key, title = (f"{kind}:{name}", f"{TITLES[kind]} ({called})") if called else (kind, TITLES[kind])
            size = sum(each.numel() for each in run.model.base.parameters())
            found.append(Method(key, kind, title, ABOUT[kind], name, size, called))
    return found + [Method(kind, kind, TITLES[kind], ABOUT[kind]) for kind in BASELINES if kind in options.methods]


def learn(
    method: Method,
    run: Run | None,
    train: LabelledData,
    valid: LabelledData,
    seed: int,
    options: CompareOptions,
    unlabelled: Sequence[str] | None = None,
) -> Learner:
    """Train a method on these labels.

    `run` is the one that it starts from, or whose shape it has; `unlabelled` is text for the self-training of the
    default recipe.
    """
    began = time.perf_counter()
    if method.kind in ("tfidf", "nbsvm"):
        baseline = fit_baseline(method.kind, train, train.names, seed)
        return Learner(baseline.predict, baseline.seconds, notes=baseline.notes)
    assert run is not None, method  # noqa: S101 (every other method has one)
    settings = FitOptions(seed=seed)
    if method.kind in ("scratch", "pretrained"):
        length = options.length if run.model.config.reads == "layers" else None
        settings = FitOptions(
            freeze="layers" if run.model.config.reads == "bag" else "none",
            epochs=options.epochs,
            batch=options.batch,
            length=length,
            lr=options.lr,
            lr_scale=options.lr_scale,
            seed=seed,
        )
        base = None if method.kind == "scratch" else run
        return _learner(fit_classifier(train, valid, base=base, like=run, options=settings), began, curve=True)
    if method.kind == "frozen":
        settings.freeze = "base"
    return _learner(fit_classifier(train, None, base=run, options=settings, unlabelled=unlabelled), began)


def _learner(fitted: Fitted, began: float, *, curve: bool = False) -> Learner:
    run = fitted.run
    return Learner(
        lambda texts: class_probabilities(run, texts),
        time.perf_counter() - began,
        [_moment(point) for point in fitted.curve] if curve else [],
        fitted.notes,
        run.details.get("thresholds"),
    )


def _moment(point: Point) -> Moment:
    loss = point.loss if math.isfinite(point.loss) else None
    return Moment(point.epoch, point.seconds, point.accuracy, point.macro_f1, loss)
