"""A linear classifier on the views of a document, the base frozen: what labels are best spent on.

Which views count, how much each, and how strongly they are regularised is found by cross-validation, the plain
classifier on words and character n-grams always among the settings. With few labels accuracy is too coarse to compare
settings by: see `rehead.finetune.losses`. With balanced classes the loss is balanced too; otherwise the settings that
undo the balancing would win. There are two ways, each where it was better on text that was held out
(docs/experiments/any-text.md):

- Hinge loss with naive-Bayes scaling (`rehead.finetune.naive_bayes`), from `HINGED` examples on (`SMALL` of long
  documents), unless there are many classes: a handful of combinations. Up to `SEARCHED` examples, folds can seldom tell
  them apart, so the one that is best over all kinds of text is taken unless another is better by a standard error; with
  more, the best two are averaged. If multilabel, what was chosen is then fitted to two thirds of the examples at a
  time: a threshold for a rare label needs the out-of-fold scores of all of its examples.
- Ridge regression (`rehead.finetune.ridge`), with fewer examples, many classes, balanced classes or brought bases: a
  search that begins with a few combinations of views, then changes one view's weight at a time. Every setting is judged
  on all examples, at the cost of one matrix inverse. Beside brought bases, what is usually taken without them is among
  the settings, so that they are left out where they do not pay. The best combinations are then fitted by log loss, too
  (`rehead.finetune.softmax`). With many classes, or few examples of each, that is better by 1 to 7 points, which folds
  with one example of a class cannot tell: there it is taken without asking them.

Where a base has layers, hidden states compete with the n-gram vectors under them, which win unless the layers gain by
more than a standard error: what layers learn by predicting words separates documents less well, so far
(docs/experiments/layers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch

from rehead.finetune.build import build_linear, check_length
from rehead.finetune.calibration import find_temperature
from rehead.finetune.candidates.candidate import SEARCHED, Candidate, Task, describe_settings
from rehead.finetune.examples import Examples, read_examples
from rehead.finetune.linear import (
    LinearClassifier,
    Settings,
    example_weights,
    fit,
    kernel,
    mean_classifier,
    regression_targets,
)
from rehead.finetune.losses import selection_losses
from rehead.finetune.ridge import BIAS, out_of_fold
from rehead.finetune.softmax import fit_softmax
from rehead.finetune.splits import folds as stratified_folds
from rehead.model.config import NeuralView
from rehead.runs.run import Run
from rehead.views.neural import neural_view
from rehead.views.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.finetune.candidates.candidate import Floats, Folds

POWERS = (1.0, 2.0, 3.0)
ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
START: Settings = {"power": 2.0, "alpha": 1.0}
TEMPERATURE = 0.2  # where nothing can be cross-validated: what is found elsewhere is 0.1 to 0.3, mostly
STEP = 3.0  # factor by which the weight of a view is changed
ROUNDS = 2  # of changing one view's weight after the other
# By hinge loss: the alphas, up to SEARCHED examples and beyond; and pairs of the weight of each dense view, where each
# sparse one has 1, and the power of naive-Bayes scaling: words and characters alone, and the usual one, are among them.
HINGE_ALPHAS = ((0.1, 0.3, 1.0), (0.3, 0.1, 1.0))
BESIDE = ((0.0, 0.0), (0.0, 0.5), (0.3, 0.5), (1.0, 0.5), (3.0, 0.5))
USUAL = BESIDE.index((1.0, 0.5))
LESS = 0.2  # weight of each own dense view beside brought ones
THRESHOLD_FOLDS = 3
MANY_CLASSES, FEW_FOLDS = 20, 5  # with so many classes, or fewer examples of most: fitted by log loss alone
HINGED = 80  # examples of few classes, from which on hinge loss is better than the best of many ridge regressions
HINGE_FOLDS = (10, 3)  # to judge by, with few examples and with many
COMBINATIONS = 2  # of views that are fitted by log loss
LOG_LOSS_ALPHAS = (0.03, 0.1, 0.3)
BROUGHT = (1.0, 3.0)  # weight of each base that others pretrained, beside less of the own ones
AVERAGED = (40, 6)  # settings, at most: with few examples, and with many
SMALL = 600  # examples, from which on fewer settings are tried
NEURAL = get_args(NeuralView)


def propose(task: Task, best: Candidate | None) -> Candidate:
    """Find the best linear classifier with each neural view, and choose between these."""
    config = task.base.model.config
    check_length(config, task.options.length)
    beside = task.options.freeze is None  # and not with `freeze="base"`, which asks for the vectors alone
    names = config.views if config.reads == "layers" else (None if config.empty else config.reads,)
    found = [search_views(task, name, beside=beside) for name in reversed(names)]
    if len(found) == 1 or not task.folds:
        return found[0]
    layers, bag = found
    known = ~np.isnan(layers.logits[:, 0])
    losses = [
        selection_losses(each.logits[known], task.truth[known], balanced=task.balanced_loss) for each in (bag, layers)
    ]
    gain = losses[0] - losses[1]
    pays = gain.mean() > gain.std() / len(gain) ** 0.5
    chosen = layers if pays else bag
    chosen.notes.append(
        f"documents are read {'through the layers' if pays else 'by their n-gram vectors, past the layers'}: "
        f"out-of-fold loss {losses[1].mean():.3f} through the layers, {losses[0].mean():.3f} past them"
    )
    return chosen


def search_views(task: Task, name: str | None, *, beside: bool) -> Candidate:
    """Search for the best linear classifier on one neural view, if the base has any, with other views beside it.

    These are the views of brought bases and, if `beside`, those of the text itself.
    """
    options, base = task.options, task.base
    views: list[View] = [*task.brought_views, *(task.text_views if beside else ())]
    if name is not None:
        views.insert(0, neural_view(base.model, name, max_length=options.length, long=options.long or "windows"))
    classes = len(task.train.names)
    examples = read_examples(
        base, views, task.train.texts, task.truth, classes, balanced=task.balanced, quiet=task.quiet
    )
    if not task.folds:
        even = {**START, "temperature": TEMPERATURE, **{each.name: 1.0 for each in views}}
        chosen = [_candidate(task, examples, even, np.full((len(examples), classes), np.nan))]
        note = "fewer than two classes have two different texts: nothing could be cross-validated"
    else:
        chosen = search(task, examples)
        how = f"by cross-validation on {len(_judges(task, examples))} of {len(task.folds)} folds"
        if len(task.folds) == 1:
            how = "on a held-out tenth"
        elif few(task, examples):
            how = f"by {len(task.folds)}-fold cross-validation"
        others = f", averaged with {len(chosen) - 1} that are as good" if len(chosen) > 1 else ""
        note = f"settings chosen {how}: {describe_settings(chosen[0].settings[0])}{others}"
        if len(task.folds) == 1 and examples.multilabel:
            chosen = [_refolded(task, examples, each.settings[0]) for each in chosen]
    return average(task, chosen, [note])


def search(task: Task, examples: Examples) -> list[Candidate]:
    """Search for settings: the candidates that are to be averaged, the best first."""
    if not few(task, examples):
        return compare_combinations(task, examples)
    tried = Search(task, examples).run()
    if task.brought_views and hinge_suits(task, examples):
        tried.append(without_brought(task, examples))
    return equally_good(tried)[: AVERAGED[len(examples) >= SMALL]]


def without_brought(task: Task, examples: Examples) -> Candidate:
    """Judge the usual combination of the own views, which is taken where no base of others is given."""
    brought = {view.name for view in task.brought_views}
    weight, power = BESIDE[USUAL]
    own = {each.name: 1.0 if each.sparse else weight for each in examples.views if each.name not in brought}
    settings = {**START, "alpha": HINGE_ALPHAS[0][0], "hinge": 1.0, "naive_bayes": power, **own}
    return _fitted_to(task, examples, settings, task.folds)


def compare_combinations(task: Task, examples: Examples) -> list[Candidate]:
    """Compare a few combinations of views by hinge loss: the usual one, if it is as good as any, or the best two."""
    sparse = {view.name: 1.0 for view in examples.views if view.sparse}
    dense = [view.name for view in examples.views if not view.sparse]
    first, *others = HINGE_ALPHAS[len(examples) > SEARCHED]

    def attempt(settings: Settings) -> Candidate:
        return _fitted_to(task, examples, {**START, "alpha": first, "hinge": 1.0, **settings}, _judges(task, examples))

    weights: list[dict[str, float]] = [dict.fromkeys(dense, 1.0)]
    if sparse:
        weights = [{**sparse, **dict.fromkeys(dense, each), "naive_bayes": power} for each, power in BESIDE]
    tried = [attempt(each) for each in weights]
    if brought := {view.name for view in task.brought_views}:  # each view alone, and more of what is brought
        own = {**sparse, **dict.fromkeys((name for name in dense if name not in brought), LESS)}
        scaled = {"power": 1.0, "naive_bayes": 0.5}
        tried += [attempt({**own, **dict.fromkeys(brought, each), **scaled}) for each in BROUGHT]
        tried += [attempt({view.name: 1.0}) for view in examples.views]
    chosen = min(tried, key=lambda each: each.loss).settings[0]
    good = equally_good([*tried, *(attempt({**chosen, "alpha": alpha}) for alpha in others)])
    if len(examples) <= SEARCHED and any(each is tried[USUAL] for each in good):
        return [tried[USUAL]]
    return good[:2]


def _judges(task: Task, examples: Examples) -> Folds:
    """The folds that settings are compared on."""
    if few(task, examples):
        return task.folds
    return task.folds[: HINGE_FOLDS[len(examples) >= SMALL]]


def few(task: Task, examples: Examples) -> bool:
    """Tell whether settings are searched for by ridge regression, rather than compared by hinge loss."""
    return len(examples) <= SEARCHED and (bool(task.brought_views) or not hinge_suits(task, examples))


def hinge_suits(task: Task, examples: Examples) -> bool:
    """Tell whether hinge loss is better than ridge regression on own views: with many examples of few classes."""
    sparse = [view.name for view in examples.views if view.sparse]
    easy = examples.multilabel or (examples.classes < MANY_CLASSES and len(task.folds) >= FEW_FOLDS)
    least = SMALL if sparse == ["words"] else HINGED  # of long documents, in which vectors count most
    return not task.balanced and bool(sparse) and easy and len(examples) >= least


class Search:
    """Settings of one set of examples, judged by their out-of-fold scores; each is computed once."""

    def __init__(self, task: Task, examples: Examples) -> None:
        self.task, self.examples = task, examples
        self.targets, self.prior = regression_targets(examples.truth, examples.classes, balanced=examples.balanced)
        self.weights = example_weights(examples)
        self.kernels: dict[tuple[str, float], Floats] = {}
        self.tried: dict[tuple[tuple[str, float], ...], Candidate] = {}

    def run(self) -> list[Candidate]:
        """Try combinations of views, then change the best of them."""
        names = [view.name for view in self.examples.views]
        many = len(self.examples) >= SMALL
        for weights in starts(names):
            self.best_alpha({**START, **weights}, ALPHAS[1:5] if many else ALPHAS)
        for _ in range(1 if many else ROUNDS):
            before = self.best
            for name in names:
                self._change(name)
            self._change_power()
            if self.best is before:
                break
        ridge = list(self.tried.values())
        if self.examples.multilabel or self.examples.classes < 3:
            return ridge
        if self.examples.classes >= MANY_CLASSES or len(self.task.folds) < FEW_FOLDS:
            return self._by_log_loss(self.task.folds[:3] if many else self.task.folds, 1 if many else COMBINATIONS)
        return ridge if many else ridge + self._by_log_loss(self.task.folds, COMBINATIONS)

    @property
    def best(self) -> Candidate:
        """The setting with the lowest loss so far."""
        return min(self.tried.values(), key=lambda each: each.loss)

    def _change(self, name: str) -> None:
        """Try more and less of a view, and none of it."""
        settings = dict(self.best.settings[0])
        others = {each: settings[each] for each in (view.name for view in self.examples.views) if settings.get(each)}
        own = others.get(name, 0.0)
        smallest = min(others.values()) / STEP
        for weight in (own * STEP, own / STEP, 0.0) if own else (smallest,):
            if weight or len(others) > 1:
                self.best_alpha({**settings, name: weight}, self._nearby(settings["alpha"]))

    def _change_power(self) -> None:
        settings = dict(self.best.settings[0])
        if any(settings.get(view.name) for view in self.examples.views if not view.sparse):
            for power in POWERS:
                self.best_alpha({**settings, "power": power}, self._nearby(settings["alpha"]))

    def _nearby(self, alpha: float) -> list[float]:
        return [each for each in ALPHAS if alpha / 4 <= each <= alpha * 4]

    def best_alpha(self, settings: Settings, alphas: Sequence[float]) -> None:
        """Judge settings with each alpha."""
        views = [view for view in self.examples.views if settings.get(view.name)]
        total = sum(settings[view.name] for view in views)
        power = settings["power"] if any(not view.sparse for view in views) else START["power"]
        fixed = {**{view.name: round(settings[view.name] / total, 6) for view in views}, "power": power}
        new = [alpha for alpha in alphas if tuple(sorted({**fixed, "alpha": alpha}.items())) not in self.tried]
        if not new:
            return
        combined = np.sum([fixed[view.name] * self._kernel(view, power) for view in views], axis=0)
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # BLAS has one thread here
            found = pool.map(
                lambda alpha: out_of_fold(combined, self.targets, self.task.folds, alpha, self.weights), new
            )
        for alpha, scores in zip(new, found, strict=True):
            complete = {**fixed, "alpha": alpha}
            key = tuple(sorted(complete.items()))
            self.tried[key] = judged(self.task, self.examples, complete, scores, self.prior)

    def _by_log_loss(self, folds: Folds, most: int) -> list[Candidate]:
        """Fit the best combinations of views by log loss, in which classes compete."""
        combinations: list[dict[str, float]] = []
        for each in sorted(self.tried.values(), key=lambda each: each.loss):
            fixed = {name: each.settings[0][name] for name in each.settings[0] if name not in ("alpha", "temperature")}
            if fixed not in combinations:
                combinations.append(fixed)
        prior = np.zeros(self.examples.classes)  # it is part of the bias
        found = []
        for fixed in combinations[:most]:
            views = [view for view in self.examples.views if fixed.get(view.name)]
            combined = np.sum([fixed[view.name] * self._kernel(view, fixed["power"]) for view in views], axis=0)
            for alpha in LOG_LOSS_ALPHAS:
                scores = np.full(self.targets.shape, np.nan)
                for inside, outside in folds:
                    weights = None if self.weights is None else self.weights[inside]
                    some = combined[np.ix_(inside, inside)]
                    solved = fit_softmax(some, self.examples.truth[inside], self.examples.classes, alpha, weights)
                    scores[outside] = combined[np.ix_(outside, inside)] @ solved + BIAS * solved.sum(0)
                complete = {**fixed, "alpha": alpha, "softmax": 1.0}
                found.append(judged(self.task, self.examples, complete, scores, prior))
        return found

    def _kernel(self, view: View, power: float) -> Floats:
        key = (view.name, 0.0 if view.sparse else power)
        if key not in self.kernels:
            self.kernels[key] = kernel(view, self.examples.features[view.name], power)
        return self.kernels[key]


def starts(names: Sequence[str]) -> list[dict[str, float]]:
    """Combinations of views that a search begins with: each alone, all, vectors, and words with characters."""
    plain = [name for name in names if name in ("words", "characters")]
    vectors = [name for name in names if name not in plain]
    found = [[name] for name in names]
    found += [each for each in (plain, vectors, list(names)) if len(each) > 1]
    found += [[name, *plain] for name in vectors if len(vectors) > 1 and plain]
    return [dict.fromkeys(each, 1.0) for each in found]


def judged(task: Task, examples: Examples, settings: Settings, scores: Floats, prior: Floats) -> Candidate:
    """Make a candidate of settings and its out-of-fold regression scores, by the temperature that suits these best."""
    known = ~np.isnan(scores[:, 0])
    heat = find_temperature(scores[known], examples.truth[known], offset=prior, balanced=examples.balanced)
    task.tried.append(_candidate(task, examples, {**settings, "temperature": heat}, scores / heat + prior))
    return task.tried[-1]


def _fitted_to(task: Task, examples: Examples, settings: Settings, folds: Folds) -> Candidate:
    """Judge settings by the held-out examples of some folds, fitting each; the hinge loss has its own bias."""
    scores = np.full((len(examples), examples.classes), np.nan)
    for inside, outside in folds:
        scores[outside] = fit(examples.take(inside), {**settings, "temperature": 1.0}).scores(examples.take(outside))
    return judged(task, examples, settings, scores, np.zeros(examples.classes))


def _refolded(task: Task, examples: Examples, settings: Settings) -> Candidate:
    """Make a candidate of settings that were chosen already, with out-of-fold scores of all examples."""
    scores = np.full((len(examples), examples.classes), np.nan)
    for inside, outside in stratified_folds(task.train, THRESHOLD_FOLDS, task.options.seed):
        scores[outside] = fit(examples.take(inside), settings).scores(examples.take(outside))
    return _candidate(task, examples, settings, scores)


def equally_good(tried: Sequence[Candidate]) -> list[Candidate]:
    """Keep the best candidate and those that are worse by less than a standard error of the difference.

    With few labels cross-validation cannot tell settings apart, and whichever it picks is luck: they are averaged.
    """
    ranked = sorted(tried, key=lambda each: each.loss)
    known = ~np.isnan(ranked[0].logits[:, 0])
    truth, balanced = ranked[0].examples.truth[known], ranked[0].balanced_loss
    losses = [selection_losses(each.logits[known], truth, balanced=balanced) for each in ranked]

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
    return mean_classifier([fit(examples, each) for each in settings])


def _candidate(task: Task, examples: Examples, settings: Settings, logits: Floats) -> Candidate:
    return _from_fit(task, examples, [settings], logits, lambda some: fit_average(some, [settings]), [])


def _from_fit(
    task: Task,
    examples: Examples,
    settings: list[Settings],
    logits: Floats,
    fit_to: Callable[[Examples], LinearClassifier],
    notes: list[str],
) -> Candidate:
    def build() -> Run:
        return build_linear(task.base, examples, fit_to(examples), task.train)

    compared = task.balanced_loss
    return Candidate(
        "frozen base, linear head", logits, examples, settings, fit_to, build, notes, balanced_loss=compared
    )
