"""The compared methods, all trained through one function: `train_method`.

Scratch and pretrained are the same call of `fit_classifier` with the same options; only their initial weights differ,
and with post-norm layers how the head starts and the default learning rate (docs/experiments/lab.md).
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rehead.compare.baselines import fit_baseline
from rehead.compare.kinds import BASELINES, DESCRIPTIONS, TITLES, Kind
from rehead.compare.options import CompareOptions
from rehead.compare.results import CurvePoint, Method
from rehead.finetune.fit import fit_classifier
from rehead.finetune.fitted import Fitted, Point
from rehead.finetune.metrics import BY_DEFAULT, DecisionRule
from rehead.finetune.options import FitOptions
from rehead.model.config import to_dict
from rehead.runs.run import Run
from rehead.runs.scoring import class_probabilities
from rehead.runs.starting import combine
from rehead.text.documents import LabelledData

TOGETHER = "all together"  # what all bases as one are called


@dataclass
class TrainedMethod:
    """A trained classifier, with its training time and curve."""

    predict: Callable[[Sequence[str]], NDArray[np.floating]]
    "Texts → probabilities (N, K)."
    seconds: float
    curve: list[CurvePoint] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rule: DecisionRule = BY_DEFAULT
    "How it decides."


def with_together(runs: dict[str, Run]) -> dict[str, Run]:
    """Add all bases as one, in front, where some were pretrained by others: what `rehead finetune` starts from then."""
    own = [run for run in runs.values() if not run.model.config.empty]
    brought = any(run.model.brought for run in runs.values())
    if len(runs) < 2 or len(own) > 1 or not brought:
        return runs
    return {TOGETHER: combine(list(runs.values())), **runs}


def list_methods(options: CompareOptions, runs: dict[str, Run]) -> list[Method]:
    """List the methods: scratch once per architecture, those that start from a run once per run.

    A base that others pretrained is read, not trained; all bases together are for the default recipe.
    """
    found: list[Method] = []
    last = [Path(name).name for name in runs]
    short = {name: Path(name).name if last.count(Path(name).name) == 1 else name for name in runs}
    own = [run for run in runs.values() if not run.model.config.empty]
    same = all(_architecture(run) == _architecture(own[0]) for run in own)
    architectures: list[str] = []
    with_run: tuple[Kind, ...] = ("scratch", "pretrained", "frozen", "recipe")
    for kind in with_run:
        if kind not in options.methods:
            continue
        for name, run in runs.items():
            if (kind in ("scratch", "pretrained") and run.model.config.empty) or (
                kind != "recipe" and name == TOGETHER
            ):
                continue
            architecture = _architecture(run)
            if kind == "scratch" and architecture in architectures:
                continue
            architectures += [architecture] if kind == "scratch" else []
            called = short[name] if len(runs) > 1 else ""
            if kind == "scratch" and called:  # it is the twin of all runs of its architecture
                twins = [short[other] for other, each in runs.items() if _architecture(each) == architecture]
                called = "" if same else ", ".join(twins)
            key = f"{kind}:{name}" if len(runs) > 1 else kind
            title = f"{TITLES[kind]} ({called})" if called else TITLES[kind]
            size = sum(each.numel() for each in run.model.base.parameters())
            size += sum(each.engine.parameters for each in run.model.brought.values())
            found.append(Method(key, kind, title, DESCRIPTIONS[kind], name, size, called, architecture))
    return found + [
        Method(kind, kind, TITLES[kind], DESCRIPTIONS[kind]) for kind in BASELINES if kind in options.methods
    ]


def _architecture(run: Run) -> str:
    """Digest the shape and the tokenizer of a run."""
    shape = (to_dict(run.model.config), run.tokenizer.fingerprint() if run.tokenizer else None)
    return hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:12]


def train_method(
    method: Method,
    run: Run | None,
    train: LabelledData,
    valid: LabelledData,
    seed: int,
    options: CompareOptions,
    unlabelled: Sequence[str] | None = None,
) -> TrainedMethod:
    """Train a method on these labels.

    `run` is the pretrained run that it starts from, or whose architecture it has; `unlabelled` is text for the
    self-training of the default recipe.
    """
    began = time.perf_counter()
    if method.kind == "tfidf" or method.kind == "tfidf_chars" or method.kind == "nbsvm" or method.kind == "fasttext":
        baseline = fit_baseline(method.kind, train, train.names, seed)
        return TrainedMethod(baseline.predict, baseline.seconds, notes=baseline.notes, rule=baseline.rule)
    assert run is not None, method  # noqa: S101 (every other method has one)
    settings = FitOptions(seed=seed)
    if method.kind in ("scratch", "pretrained"):
        layers = run.model.config.reads == "layers"
        settings = FitOptions(
            freeze="layers" if run.model.config.reads == "bag" else "none",
            epochs=options.epochs,
            batch=options.batch,
            length=options.length if layers else None,
            pooling=options.pooling if layers else None,
            attention=options.attention if layers else None,
            lr=options.lr,
            lr_scale=options.lr_scale,
            precision=options.precision if layers else "auto",
            seed=seed,
        )
        base = None if method.kind == "scratch" else run
        fitted = fit_classifier(train, valid, base=base, like=run, options=settings)
        return _trained(fitted, began, curve=True, precision=settings.precision)
    if method.kind == "frozen":
        settings.freeze = "base"
    else:
        settings.minutes = options.minutes
    return _trained(fit_classifier(train, None, base=run, options=settings, unlabelled=unlabelled), began)


def _trained(fitted: Fitted, began: float, *, curve: bool = False, precision: str = "auto") -> TrainedMethod:
    run = fitted.run

    def predict(texts: Sequence[str]) -> NDArray[np.floating]:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            return class_probabilities(run, texts)

    return TrainedMethod(
        predict,
        time.perf_counter() - began,
        [_curve_point(point) for point in fitted.curve] if curve else [],
        fitted.notes,
        DecisionRule.of(run.details),
    )


def _curve_point(point: Point) -> CurvePoint:
    loss = point.loss if math.isfinite(point.loss) else None
    return CurvePoint(point.epoch, point.seconds, point.accuracy, point.macro_f1, loss)
