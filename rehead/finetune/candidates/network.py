"""Fine-tuning the whole network by gradient, from the best linear classifier on; from a few hundred labels up.

The head starts as the linear classifier on the base's vectors alone; what the other views score is added to what comes
out, with the weight that held-out examples prefer. Only where the base has layers: tables of n-gram vectors alone gain
nothing by it, for half of the time of a fit (docs/experiments/any-text.md).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from rehead.finetune.build import build_linear
from rehead.finetune.calibration import calibrated_losses
from rehead.finetune.candidates.candidate import LOSSES, Candidate, Task
from rehead.finetune.candidates.linear import NEURAL, fit_average
from rehead.finetune.examples import Examples
from rehead.finetune.linear import LinearClassifier
from rehead.finetune.network import train_network
from rehead.finetune.targets import subset
from rehead.runs.run import Run
from rehead.runs.scoring import class_logits, classifier_head
from rehead.text.documents import LabelledData

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_EXAMPLES = 200  # with fewer, fine-tuning never helped
BESIDE_SHARES = (1.0, 0.5, 0.0)  # of the other views' weight beside the frozen network, beside the fine-tuned one


def propose(task: Task, best: Candidate | None) -> Candidate | str:
    """Fine-tune on some of the folds; choose how much the other views count beside the network."""
    if len(task.train) < MIN_EXAMPLES:
        return f"that takes {MIN_EXAMPLES} examples"
    if best is None or not task.folds:
        return "nothing could be held out to judge it by"
    if best.name == "self-training":  # the student would have to be fitted again, beside a base that moves
        return "self-training was kept"
    frozen, examples = best, best.examples
    if task.base.model.config.empty:
        return "there is no base of its own to fine-tune"
    if "layers" not in examples.features:
        return "documents are not read through layers"
    tuned, beside = (np.full(frozen.logits.shape, np.nan) for _ in range(2))
    inside, outside = task.folds[0]  # one fold to judge by: training layers is expensive
    part = examples.take(inside)
    run = _train(task, frozen, part, subset(task.train, inside))
    tuned[outside] = class_logits(run, [task.train.texts[int(each)] for each in outside])
    beside[outside] = _beside(frozen.fit(part), examples.take(outside))
    shares = BESIDE_SHARES if np.nansum(beside**2) else (0.0,)
    logits = {share: tuned + share * beside for share in shares}
    balanced = task.balanced_loss
    share = min(shares, key=lambda each: calibrated_losses(logits[each], task.truth, balanced=balanced).mean())

    def build() -> Run:
        run = _train(task, frozen, examples, task.train)
        if share:
            _add_other_views(run, frozen.build(), share)
        return run

    name = f"fine-tuned network, other views beside it {share:g}" if share else "fine-tuned network"
    return dataclasses.replace(frozen, name=name, logits=logits[share], build=build, frozen=False)


def _train(task: Task, frozen: Candidate, examples: Examples, train: LabelledData) -> Run:
    """Fine-tune on all of these examples, from the linear classifier on directions alone."""
    alone = next(view.name for view in examples.views if view.name in NEURAL)
    settings = {name: frozen.settings[0].get(name, 0.0) for name in ("power", "alpha", "temperature", *LOSSES)}
    linear = fit_average(examples, [{**settings, alone: 1.0}])
    start = build_linear(task.base, examples, linear, train)
    options = dataclasses.replace(task.options, freeze=None)
    return train_network(train, None, base=start, options=options, keep_head=True, whole=True).run


def _beside(linear: LinearClassifier, examples: Examples) -> NDArray[np.float64]:
    """Score documents by all views but the neural one, without the bias: (N, K)."""
    total = np.zeros((len(examples), len(linear.bias)))
    for view in linear.weights:
        if view not in NEURAL:
            total = total + linear.view_scores(examples, view)
    return total


def _add_other_views(run: Run, frozen: Run, share: float) -> None:
    """Give a fine-tuned classifier the other views of the frozen one, at a share of their weight."""
    head, other = classifier_head(run.model), classifier_head(frozen.model)
    views = [view for view in other.config.views if view.name not in NEURAL]
    for view in views:
        part = other.of(view.name)
        with torch.no_grad():
            part.weight.mul_(share)
        head.views[view.name] = part
    head.config = dataclasses.replace(head.config, views=(*head.config.views, *views))
    run.model.head_config = head.config
    run.model.brought = frozen.model.brought
