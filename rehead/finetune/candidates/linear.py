"""A linear classifier on the frozen base: what a few labels are best spent on.

For each neural view of the base, with exact words beside it, three numbers are searched by cross-validation: the
`power` of the prior on directions, the weight of the words, and `C`. Directions alone are cheap, so the power is chosen
on them; then words (and any other sparse view) are added, if the held-out examples gain. Settings are compared by log
loss: with few labels, accuracy is too coarse. With balanced classes the loss is balanced too; otherwise the settings
that undo the balancing would win.

Where a base has layers, hidden states compete with the n-gram vectors under them, which win unless the layers gain by
more than a standard error: what layers learn by predicting words separates documents less well, so far
(docs/experiments/layers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rehead.finetune.build import build_linear, check_length
from rehead.finetune.candidates.candidate import Candidate, Task, describe_settings
from rehead.finetune.examples import Examples, read_examples
from rehead.finetune.linear import LinearClassifier, Settings, fit_path, mean_classifier
from rehead.finetune.logistic import log_losses, one_thread
from rehead.runs.run import Run
from rehead.views import sparse_views
from rehead.views.neural import neural_view
from rehead.views.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.finetune.candidates.candidate import Floats, Folds

POWERS = (1.0, 2.0, 3.0)
VIEW_WEIGHTS = (1.0, 4.0, 12.0)  # of a sparse view beside the vectors
CS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
UNSEARCHED: Settings = {"power": 2.0, "C": 10.0}  # where nothing can be cross-validated


def propose(task: Task, best: Candidate | None) -> Candidate:
    """Find the best linear classifier on each neural view, and choose between the views."""
    config = task.base.model.config
    check_length(config, task.options.length)
    beside = task.options.freeze is None  # and not with `freeze="base"`, which asks for the vectors alone
    names = config.views if config.reads == "layers" else (config.reads,)
    found = [search_view(task, str(name), beside=beside) for name in reversed(names)]
    if len(found) == 1 or not task.folds:
        return found[0]
    layers, bag = found
    known = ~np.isnan(layers.logits[:, 0])
    losses = [log_losses(each.logits[known], task.truth[known], balanced=task.balanced) for each in (bag, layers)]
    gain = losses[0] - losses[1]
    pays = gain.mean() > gain.std() / len(gain) ** 0.5
    chosen = layers if pays else bag
    chosen.notes.append(
        f"documents are read {'through the layers' if pays else 'by their n-gram vectors, past the layers'}: "
        f"out-of-fold loss {losses[1].mean():.3f} through the layers, {losses[0].mean():.3f} past them"
    )
    return chosen


def search_view(task: Task, name: str, *, beside: bool) -> Candidate:
    """Search for the best linear classifier on one neural view, with the sparse views beside it or without."""
    options, base = task.options, task.base
    view = neural_view(base.model, name, max_length=options.length, long=options.long or "windows")
    views: list[View] = [view, *(sparse_views(base.model) if beside else ())]
    classes = len(task.train.names)
    examples = read_examples(base, views, task.train.texts, task.truth, classes, balanced=task.balanced)
    with one_thread():
        if not task.search_folds:
            chosen = [_candidate(task, examples, UNSEARCHED, np.full((len(examples), classes), np.nan))]
            note = "a class has one text only: nothing could be cross-validated"
        else:
            chosen = search(task, examples)
            note = (
                f"settings chosen by {len(task.search_folds)}-fold cross-validation on {len(task.searched):,} of "
                f"{len(task.train):,} examples: {'; '.join(describe_settings(each.settings[0]) for each in chosen)}"
            )
    return average(task, chosen, [note])


def search(task: Task, examples: Examples) -> list[Candidate]:
    """Search on the examples that are for that; where these are a part, look again nearby with all of them."""
    part = examples.take(task.searched)
    found = equally_good(grid(task, part, task.search_folds))
    if len(part) == len(examples):
        return found
    best = dict(found[0].settings[0])
    C, power = best.pop("C"), best["power"]  # noqa: N806
    Cs = [each for each in CS if C / 4 <= each <= C * 4]  # noqa: N806
    nearby = [best]
    for view in _sparse(examples):
        least = best.get(view, 0.0)
        nearby += [{**best, view: each} for each in VIEW_WEIGHTS if least < each <= 4 * max(least, 1)]
    return equally_good(
        [
            best_C(task, examples, task.folds, {**settings, "power": each}, Cs)
            for each in sorted({power, max(1.0, power - 1)})
            for settings in nearby
        ]
    )


def grid(task: Task, examples: Examples, folds: Folds) -> list[Candidate]:
    """Cross-validate powers alone, then sparse views beside the best power and beside none, one after the other."""
    tried = [best_C(task, examples, folds, {"power": power}, CS) for power in POWERS]
    best = min(tried, key=lambda each: each.loss).settings[0]["power"]
    for alone in [each for each in reversed(tried) if each.settings[0]["power"] in (best, POWERS[0])]:
        # With words to lean on, directions need less of the prior.
        settings, loss = dict(alone.settings[0]), alone.loss
        C = settings.pop("C")  # noqa: N806
        nearby = [each for each in CS if C / 10 <= each <= C * 3]
        for view in _sparse(examples):
            for weight in VIEW_WEIGHTS:
                tried.append(best_C(task, examples, folds, {**settings, view: weight}, nearby))
                if tried[-1].loss > loss:  # more of it will not help
                    break
                settings, loss = {**settings, view: weight}, tried[-1].loss
    return tried


def _sparse(examples: Examples) -> list[str]:
    return [view.name for view in examples.views if view.sparse]


def best_C(task: Task, examples: Examples, folds: Folds, settings: Settings, Cs: Sequence[float]) -> Candidate:  # noqa: N802, N803
    """Cross-validate every C; give the one with the lowest loss."""
    logits = out_of_fold(examples, folds, settings, Cs)
    return min((_candidate(task, examples, {**settings, "C": C}, logits[C]) for C in Cs), key=lambda each: each.loss)


def out_of_fold(examples: Examples, folds: Folds, settings: Settings, Cs: Sequence[float]) -> dict[float, Floats]:  # noqa: N803
    """Score every example by a classifier that was not fitted to it, for each C: (N, K)."""
    logits = {C: np.full((len(examples), examples.classes), np.nan) for C in Cs}
    for inside, outside in folds:
        held_out = examples.take(outside)
        for C, linear in zip(Cs, fit_path(examples.take(inside), settings, Cs), strict=True):  # noqa: N806
            logits[C][outside] = linear.scores(held_out)
    return logits


def equally_good(tried: Sequence[Candidate]) -> list[Candidate]:
    """Keep the best candidate and those that are worse by less than a standard error of the difference.

    With few labels cross-validation cannot tell settings apart, and whichever it picks is luck: they are averaged.
    """
    ranked = sorted(tried, key=lambda each: each.loss)
    known = ~np.isnan(ranked[0].logits[:, 0])
    truth, balanced = ranked[0].examples.truth[known], ranked[0].examples.balanced
    losses = [log_losses(each.logits[known], truth, balanced=balanced) for each in ranked]

    def close(worse: NDArray[np.float64]) -> bool:
        return bool(worse.mean() <= worse.std() / max(1, len(worse)) ** 0.5)

    return [each for each, loss in zip(ranked, losses, strict=True) if close(loss - losses[0])]


def average(task: Task, made: Sequence[Candidate], notes: list[str]) -> Candidate:
    """Average candidates that read the same examples: their scores, and their weights."""
    settings = [each.settings[0] for each in made]
    logits = np.mean([each.logits for each in made], axis=0)
    return _from_fit(task, made[0].examples, settings, logits, lambda some: fit_average(some, settings), notes)


def fit_average(examples: Examples, settings: Sequence[Settings]) -> LinearClassifier:
    """Fit a classifier with each of the settings, and average them into one."""
    return mean_classifier([linear for each in settings for linear in fit_path(examples, each, [each["C"]])])


def _candidate(task: Task, examples: Examples, settings: Settings, logits: Floats) -> Candidate:
    return _from_fit(task, examples, [settings], logits, lambda some: fit_average(some, [settings]), [])


def _from_fit(
    task: Task,
    examples: Examples,
    settings: list[Settings],
    logits: Floats,
    fit: Callable[[Examples], LinearClassifier],
    notes: list[str],
) -> Candidate:
    def build() -> Run:
        with one_thread():
            return build_linear(task.base, examples, fit(examples), task.train)

    return Candidate("frozen base, linear head", logits, examples, settings, fit, build, notes)
