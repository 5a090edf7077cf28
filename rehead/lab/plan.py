"""How the minutes are spent: so long for each pretraining run, and what of fine-tuning fits into the rest.

A quarter of an hour on two cores cannot train five networks with three seeds on whole documents. What is given up first
costs least: seeds of the objectives that are only compared with each other, then epochs, then the length that is read
of a document, then seeds, and at last still shorter documents. Every network is fine-tuned in the same way. What was
given up is said on the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

PRETRAINING, COMPARING = 0.5, 0.4  # shares of the minutes; the rest is for texts, tokens and drawing
WARM_UP_SECONDS, WARM_UP_MOST = 15.0, 0.25  # of the embeddings, in each run
LENGTHS, EPOCHS = (256, 192, 128, 96, 64, 48), (4, 3, 2)
LONG_ENOUGH = 128  # tokens: rather one seed than several that read less
FEWEST_SIZES = 2  # training set sizes that are kept even if there is no time for them
OVERHEAD = 1.2  # padding, and fitting the linear head that fine-tuning starts from
CLASSIFYING = 1.3  # tokens per second of fine-tuning, as a multiple of those of masked pretraining, whose head is large
READING = 0.4  # what it costs to read a document without learning from it, as a share of learning from it
VALIDATED = 0.25  # documents that validate, for each that is learnt from


@dataclass(frozen=True)
class Plan:
    """How the networks are fine-tuned."""

    length: int
    epochs: int
    seeds: int
    "Of scratch, and of the first pretrained one."
    other_seeds: int
    "Of the other objectives, which are trained on the largest training set only."
    sizes: tuple[int, ...]

    def documents(self, others: int, measured: int) -> float:
        """Count the documents that are learnt from, all trainings taken together; one that is only read counts less.

        These are the documents that the head starts from, those that validate (also before the first step), and those
        that are measured on.
        """
        trainings = [(2 * self.seeds, size) for size in self.sizes] + [(self.other_seeds * others, self.sizes[-1])]
        looked_at = 1 + VALIDATED * (1 + self.epochs)
        return sum(times * (self.epochs * size + READING * (looked_at * size + measured)) for times, size in trainings)


def pretraining_minutes(minutes: float, runs: int) -> float:
    """Give the minutes of each pretraining run."""
    return PRETRAINING * minutes / runs


def warm_up_share(minutes: float) -> float:
    """Give the share of a pretraining run that warms up the embeddings."""
    return min(WARM_UP_MOST, WARM_UP_SECONDS / (60 * minutes))


def make_plan(
    lengths: Sequence[int],
    sizes: tuple[int, ...],
    seeds: int,
    others: int,
    measured: int,
    seconds: float,
    tokens_per_second: float,
) -> tuple[Plan, list[str]]:
    """Choose the most thorough way that fits into the time; say what was given up.

    `lengths`: tokens of some documents. `measured`: how many are measured on. `tokens_per_second`: of masked
    pretraining on this machine.
    """
    wanted = next(iter(_choices(sizes, seeds)))
    chosen = wanted
    for chosen in _choices(sizes, seeds):
        mean = sum(min(each, chosen.length) for each in lengths) / max(1, len(lengths))
        if OVERHEAD * chosen.documents(others, measured) * mean / (CLASSIFYING * tokens_per_second) <= seconds:
            break
    return chosen, _given_up(wanted, chosen)


def _choices(sizes: tuple[int, ...], seeds: int) -> Iterable[Plan]:
    """List the ways, the most thorough first."""
    several = range(seeds, 1, -1)
    long = [length for length in LENGTHS if length >= LONG_ENOUGH]
    for some, length, epochs in [*product(several, long, EPOCHS), *product((1,), LENGTHS, EPOCHS)]:
        for others in dict.fromkeys((some, 1)):
            yield Plan(length, epochs, some, others, sizes)
    while len(sizes) > FEWEST_SIZES:
        sizes = sizes[:-1]
        yield Plan(LENGTHS[-1], EPOCHS[-1], 1, 1, sizes)


def _given_up(wanted: Plan, chosen: Plan) -> list[str]:
    notes = []
    if chosen.seeds < wanted.seeds:
        notes.append(f"{chosen.seeds} seed{'s' * (chosen.seeds > 1)} instead of {wanted.seeds}")
    if chosen.other_seeds < chosen.seeds:
        notes.append(f"{chosen.other_seeds} seed of the objectives that are compared with each other only")
    if chosen.length < wanted.length:
        notes.append(f"{chosen.length} tokens of a document instead of {wanted.length}")
    if chosen.epochs < wanted.epochs:
        notes.append(f"{chosen.epochs} epochs instead of {wanted.epochs}")
    if chosen.sizes != wanted.sizes:
        notes.append(f"at most {chosen.sizes[-1]:,} labels instead of {wanted.sizes[-1]:,}")
    return notes
