"""What `rehead finetune --from RUN` does unless told otherwise: what cross-validation finds best, from 20 labels up.

    1. a linear classifier on the frozen base: directions, and exact words where they help   (`probe`)
    2. self-training on unlabelled text, if there is some                                     (`self_training`)
    3. fine-tuning the base from there, from a few hundred labels on                          (`fit`)

Every step is tried on examples that are left out, and kept if their loss falls by more than half the standard error of
the difference. That is a low bar: a step that does nothing passes it about three times in ten. But such a step costs
little, while to refuse one that helps, as few examples can seldom prove, costs more. What was tried, what it gave and
what was kept is said, and stands in the run's `details["recipe"]`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rehead.errors import UserError
from rehead.finetune.calibration import find_temperature, probabilities
from rehead.finetune.features import Pool, in_space
from rehead.finetune.fit import Fitted, fit, look_at
from rehead.finetune.linear import fit_average
from rehead.finetune.logistic import losses_of
from rehead.finetune.measures import guesses
from rehead.finetune.options import FitOptions, given_for_gradient
from rehead.finetune.probe import Probe, find_probe, finish, put_on
from rehead.finetune.self_training import MOST, self_trained
from rehead.finetune.targets import balance, some
from rehead.finetune.thresholds import find_thresholds
from rehead.model.heads import ClassifierHead
from rehead.model.reading import class_logits, encode, is_bag
from rehead.model.run import Run
from rehead.text.documents import LabelledData
from rehead.text.order import shuffled
from rehead.text.random_streams import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FEWEST_TO_TUNE = 200  # examples, below which fine-tuning is not tried: it never helped
MARGIN = 0.5  # standard errors by which a step has to help
EPOCHS = 4.0  # of fine-tuning, where no layer reads
WORD_WEIGHTS = (1.0, 0.5, 0.0)  # how much words count beside a fine-tuned base, against beside the frozen one


@dataclass
class Step:
    """One step of the recipe, and what it gave on left-out examples."""

    name: str
    loss: float
    accuracy: float
    kept: bool
    examples: int
    "How many were left out: not the same for every step."
    before: float | None = None
    "What the same examples' accuracy is without this step, and the loss."
    loss_before: float | None = None
    multilabel: bool = False
    "Whether all labels of an example must be right, each given from its threshold on."

    def __str__(self) -> str:
        kept = "kept" if self.kept else "not kept"
        right, loss = f"{100 * self.accuracy:.1f} %", f"{self.loss:.3f}"
        if self.before is not None:
            right += f" (without: {100 * self.before:.1f} %)"
            loss += f" ({self.loss_before:.3f})"
        which = "have all labels right, with thresholds chosen for F1" if self.multilabel else "right"
        return f"{self.name}: {right} of {self.examples:,} left-out examples {which}, loss {loss}: {kept}"


@dataclass
class Tuned:
    """A base that was fine-tuned: what left-out examples are given, and how much words count beside it."""

    logits: Floats
    words: float


def fit_recipe(
    train: LabelledData,
    valid: LabelledData | None,
    *,
    base: Run,
    options: FitOptions | None = None,
    unlabelled: Sequence[str] | Pool | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Fitted:
    """Make the best classifier that a base and these examples give.

    `unlabelled` is text for self-training, or what `see_unlabelled` makes of it: whoever fits often reads it once.
    """
    options = FitOptions() if options is None else options
    began = time.perf_counter()
    notes = look_at(train)

    def tell(line: str) -> None:
        notes.append(line)
        say(line)

    for note in notes:
        say(note)
    probe = find_probe(train, base, options, words=True)
    for note in probe.notes:
        tell(note)
    steps = []
    if probe.folds:
        examples = probe.examples
        first = _step(
            "frozen base, linear head", probe.found.logits, examples.truth, balanced=examples.balanced, kept=True
        )
        steps.append(first)
    alone = probe
    if unlabelled is not None and probe.folds:
        probe = _with_unlabelled(probe, options, unlabelled, steps)
    # Words that have learnt from guesses would have to learn again beside a base that moves: that is not tried.
    worth = len(train) >= FEWEST_TO_TUNE and bool(probe.folds) and probe is alone
    tuned = _tuned(probe, train, options, steps) if worth else None
    for step in steps:
        tell(str(step))
    if not worth and (idle := given_for_gradient(options)):
        why = f"that takes {FEWEST_TO_TUNE} examples"
        if probe is not alone:
            why = "self-training was kept"
        elif not probe.folds:
            why = "nothing could be left out to judge it by"
        tell(f"not used: {', '.join(idle)}: fine-tuning was not tried ({why})")
    if tuned is not None:
        probe.found = dataclasses.replace(probe.found, logits=tuned.logits)
    fitted = finish(probe, train, valid, options, began, say, lambda: _tune_all(probe, train, options, tuned))
    fitted.notes[:0] = notes
    fitted.run.details |= {"method": "recipe", "recipe": [dataclasses.asdict(each) for each in steps]}
    fitted.run.details["freeze"] = "base" if tuned is None else "none"
    return fitted


def see_unlabelled(base: Run, texts: Sequence[str], seed: int = 0, most: int = MOST) -> Pool:
    """Encode unlabelled text for self-training: at most so many documents of it, drawn by the seed."""
    if base.tokenizer is None:
        raise UserError("self-training needs a run with a tokenizer.")
    chosen = shuffled(np.arange(len(texts)), len(texts), seed, Stream.UNLABELLED)[:most]
    return Pool(encode(base.tokenizer, [texts[int(each)] for each in chosen]))


def _with_unlabelled(probe: Probe, options: FitOptions, unlabelled: Sequence[str] | Pool, steps: list[Step]) -> Probe:
    """Try self-training; keep it if it helps."""
    base, given = probe.base, unlabelled
    if not isinstance(given, Pool):
        given = see_unlabelled(base, given, options.seed)
    if not given.ids:
        return probe
    found, linear = self_trained(probe, in_space(given.by(base.model, probe.reading), probe.examples.space))
    truth, balanced = probe.examples.truth, probe.examples.balanced
    kept = better(found.logits, probe.found.logits, truth, balanced=balanced)
    steps.append(_step("self-training", found.logits, truth, balanced=balanced, kept=kept, before=probe.found.logits))
    return dataclasses.replace(probe, found=found, linear=linear) if kept else probe


def _tuned(probe: Probe, train: LabelledData, options: FitOptions, steps: list[Step]) -> Tuned | None:
    """Try fine-tuning on two of the folds (where layers read, on one); keep it if it helps."""
    examples = probe.examples
    tuned, words = (np.full((len(train), examples.classes), np.nan) for _ in range(2))
    for inside, outside in probe.folds[: 2 if is_bag(probe.base.model.base.eval()) else 1]:
        part = dataclasses.replace(probe, examples=examples.some(inside))
        run = _tune(part, some(train, inside), options)
        tuned[outside] = class_logits(run, None, [train.texts[int(each)] for each in outside])
        linear = fit_average(part.examples, probe.found.settings)
        words[outside] = linear.word_scores(examples.features.some(outside))
    candidates = [Tuned(tuned + weight * words, weight) for weight in (WORD_WEIGHTS if np.nansum(words**2) else (0.0,))]
    truth, balanced, before = examples.truth, examples.balanced, probe.found.logits
    best = min(candidates, key=lambda each: calibrated(each.logits, truth, balanced=balanced).mean())
    kept = better(best.logits, before, truth, balanced=balanced)
    beside = f", words beside it {best.words:g}" if best.words else ""
    steps.append(_step(f"fine-tuned base{beside}", best.logits, truth, balanced=balanced, kept=kept, before=before))
    return best if kept else None


def _tune(probe: Probe, train: LabelledData, options: FitOptions) -> Run:
    """Fine-tune a base on all of these examples, beginning with the linear classifier on directions alone."""
    settings = [dataclasses.replace(each, words=0.0) for each in probe.found.settings[:1]]
    start = put_on(dataclasses.replace(probe, linear=fit_average(probe.examples, settings)), train)
    usual = EPOCHS if is_bag(probe.base.model.base.eval()) else None
    options = dataclasses.replace(options, freeze=None, epochs=usual if options.epochs is None else options.epochs)
    return fit(train, None, base=start, options=options, keep_head=True, whole=True).run


def _tune_all(probe: Probe, train: LabelledData, options: FitOptions, tuned: Tuned | None) -> Run:
    """Make the run that the recipe has settled on, of all examples."""
    frozen = put_on(probe, train)
    if tuned is None:
        return frozen
    run = _tune(probe, train, options)
    head, other = run.model.head, frozen.model.head
    assert isinstance(head, ClassifierHead) and isinstance(other, ClassifierHead)  # noqa: S101, PT018
    if tuned.words and other.words is not None:
        with torch.no_grad():
            other.words.weight.mul_(tuned.words)
        head.words = other.words
        head.config = dataclasses.replace(head.config, words=True)
        run.model.head_config = head.config
    return run


def better(new: Floats, old: Floats, truth: NDArray[Any], *, balanced: bool = False) -> bool:
    """Tell whether left-out examples gain enough for a step to be kept (`MARGIN`). Both are calibrated first."""
    known = ~np.isnan(new[:, 0]) & ~np.isnan(old[:, 0])
    before, after = (calibrated(each[known], truth[known], balanced=balanced) for each in (old, new))
    gain = before - after
    return bool(gain.mean() > MARGIN * gain.std() / max(1, len(gain)) ** 0.5)


def calibrated(logits: Floats, truth: NDArray[Any], *, balanced: bool = False) -> Floats:
    """Give the loss of each left-out example under the best temperature: (n,)."""
    known = ~np.isnan(logits[:, 0])
    logits, truth = logits[known], truth[known]
    temperature = find_temperature(logits, truth, balance(truth) if balanced else 1.0)
    return losses_of(logits / temperature, truth, balanced=balanced)


def _step(
    name: str, logits: Floats, truth: NDArray[Any], *, balanced: bool, kept: bool, before: Floats | None = None
) -> Step:
    known = ~np.isnan(logits[:, 0])
    loss = float(calibrated(logits, truth, balanced=balanced).mean())
    step = Step(name, loss, _accuracy(logits, truth, known), kept, int(known.sum()), multilabel=truth.ndim == 2)
    if before is not None:
        step.before = _accuracy(before, truth, known)
        step.loss_before = float(calibrated(before[known], truth[known], balanced=balanced).mean())
    return step


def _accuracy(logits: Floats, truth: NDArray[Any], which: NDArray[np.bool_]) -> float:
    """Give the share that is right; of several labels, of examples all of whose labels are, as the run gives them."""
    logits, truth = logits[which], truth[which]
    if truth.ndim == 1:
        return float((logits.argmax(1) == truth).mean())
    shares = probabilities(logits / find_temperature(logits, truth), multilabel=True)
    guess = guesses(shares, multilabel=True, thresholds=np.array(find_thresholds(shares, truth)))
    return float((guess == truth).all(1).mean())
