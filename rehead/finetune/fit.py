"""Labelled text and a base → a classifier: the one function behind the command line, `TextClassifier` and `compare`.

    fitted = fit_classifier(train, None, base=load("runs/base"))

With a base, cross-validation chooses among the candidates (`rehead.finetune.candidates`), from about 20 labels up. With
`freeze="base"` only the linear classifier on the frozen base's vectors is fitted. Anything else, and training from
scratch, is training by gradient with a validation part (`rehead.finetune.network`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rehead.finetune.candidates import CANDIDATES
from rehead.finetune.candidates.candidate import Task
from rehead.finetune.fitted import Fitted, calibrate_run, describe_cut, describe_data, describe_fit, describe_metric
from rehead.finetune.logistic import one_thread
from rehead.finetune.metrics import Metrics
from rehead.finetune.options import FitOptions, check_metric, given_for_gradient
from rehead.finetune.selection import Selection, select
from rehead.finetune.targets import targets
from rehead.finetune.worth import view_worth, worth_rows
from rehead.runs.run import Run
from rehead.runs.scoring import score_texts
from rehead.text.documents import LabelledData
from rehead.views.encoded import EncodedTexts

Say = Callable[[str], None]


def fit_classifier(
    train: LabelledData,
    valid: LabelledData | None,
    *,
    base: Run | None = None,
    like: Run | None = None,
    options: FitOptions | None = None,
    unlabelled: Sequence[str] | None = None,
    say: Say = lambda line: None,
    **training: Any,  # noqa: ANN401 (those of `train_network`)
) -> Fitted:
    """Make a classifier.

    `base` is a pretrained run. Without one, `like` gives shape and tokenizer, and the weights are random. `unlabelled`
    is text for self-training. `training` says where training by gradient writes and resumes.
    """
    options = FitOptions() if options is None else options
    check_metric(options, multilabel=train.multilabel)
    if base is None or options.freeze not in (None, "base"):
        from rehead.finetune.network import train_network

        return train_network(train, valid, base=base, like=like, options=options, say=say, **training)
    return _cross_validate(train, valid, base, options, unlabelled, say, quiet=training.get("quiet", True))


def _cross_validate(
    train: LabelledData,
    valid: LabelledData | None,
    base: Run,
    options: FitOptions,
    unlabelled: Sequence[str] | None,
    say: Say,
    *,
    quiet: bool,
) -> Fitted:
    """Let cross-validation choose a candidate; build it on all examples, and calibrate it."""
    began = time.perf_counter()
    notes: list[str] = []

    def tell(line: str) -> None:
        notes.append(line)
        say(line)

    for line in describe_data(train):
        tell(line)
    task = Task.make(train, base, options, unlabelled, quiet=quiet)
    with one_thread():
        found = select(task, CANDIDATES if options.freeze is None else CANDIDATES[:1])
        for line in _describe(task, found):
            tell(line)
        run = assemble(task, found, valid)
    measured: Metrics | None = None
    if valid is not None:
        truth = targets(valid, train.names, multilabel=train.multilabel)
        logits = score_texts(run.model, EncodedTexts(valid.texts, run.tokenizer))
        measured, more = calibrate_run(run, logits, truth)
    elif (known := ~np.isnan(found.best.logits[:, 0])).any():
        measured, more = calibrate_run(run, found.best.logits[known], task.truth[known], "out-of-fold")
    else:
        more = ["nothing was held out, so probabilities are not calibrated"]
    for line in more:
        tell(line)
    seconds = time.perf_counter() - began
    run.details["seconds"] = round(seconds, 1)
    return Fitted(run, [], notes, seconds, measured)


def assemble(task: Task, found: Selection, valid: LabelledData | None) -> Run:
    """Build the chosen candidate on all examples, and describe how it was chosen."""
    run = found.best.build()
    method = "recipe" if task.options.freeze is None else "linear"
    run.details = describe_fit(method, task.options, task.train, valid, task.base) | {
        "candidate": found.best.name,
        "settings": [dict(each) for each in found.best.settings],
        "freeze": "base" if found.best.frozen else "none",
        "candidates": [vars(each) for each in found.compared],
        "views": view_worth(task, found.best),
        "brought": [each.describe() for each in run.model.brought.values()],
    }
    return run


def _describe(task: Task, found: Selection) -> list[str]:
    """Say what is read of long documents, what was chosen, and which options had no effect."""
    lines = []
    view, options = found.best.examples.views[0], task.options
    if task.base.tokenizer is not None and options.length is not None and options.long not in (None, "windows"):
        ids = EncodedTexts(task.train.texts, task.base.tokenizer).ids
        if cut := sum(len(each) > options.length for each in ids):
            lines.append(describe_cut(cut, len(ids), options.length, view.options.long))
    lines += found.best.notes
    if found.compared:
        multilabel = task.train.multilabel
        lines.append(describe_metric(options.metric, multilabel=multilabel, balanced_loss=task.balanced_loss))
    lines += map(str, found.compared)
    if task.base.model.brought and (worth := view_worth(task, found.best)):
        said = ", ".join(f"{name} {score}" for name, score in worth_rows(worth))
        lines.append(f"out-of-fold accuracy of each view alone: {said}")
    encoders = [name for name, each in task.base.model.brought.items() if each.kind == "encoder"]
    if encoders and (why := found.untried.get("encoder")):
        lines.append(f"fine-tuning {', '.join(encoders)} by gradient descent was not tried: {why}")
    if (why := found.untried.get("network")) and (idle := given_for_gradient(options)) and "encoder" in found.untried:
        lines.append(f"not used: {', '.join(idle)}: fine-tuning was not tried ({why})")
    return lines
