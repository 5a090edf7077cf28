"""Safeguards of a comparison: the leak check, the sealed test labels, and the control with shuffled labels.

The leak check runs before any training. A labelled document that is also in the test set, as an exact or near duplicate
(`rehead.text.duplicates`), is removed from training and validation set; the same holds for the unlabelled text of the
default recipe. Test documents in the pretraining text (without their labels) are counted and reported, with the
accuracy on the remaining ones: pretraining on test texts is transductive learning, which the baselines do not have.

`SealedTestSet` holds the test set. Its texts may be read by the leak check and by trained models; its labels can be
revealed once, and `rehead.compare.scoring` does so after the last model has been trained and has predicted. So no
choice can depend on them.

The control trains on labels that were shuffled so that every true class gets the same mix: a method that then exceeds
chance must have access to the true labels. A single shuffle can still deviate: from few strong features a method learns
some rule, which may happen to align with the true one, or with its opposite. Over 20 shuffles a linear head on
pretrained vectors of film reviews reached 51.8 % with a standard deviation of 6.7 points (100 labels), 50.6 ± 4.9 (500)
and 51.1 ± 4.3 (1,600); over 6, TF-IDF reached 51.5 ± 1.4, 48.8 ± 1.6 and 50.2 ± 3.6. So the mean over the seeds is
tested, with a limit of three standard deviations. With K classes the deviation is smaller: on simulated vectors by a
factor of about the square root of 2 / K, up to 20 classes.

The statistic is macro-averaged recall. Its chance level is 1 / K however imbalanced the classes are, whereas always
predicting the majority class of 90:10 has an accuracy of 90 %. In multilabel data, each label is a binary problem.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError
from rehead.text.documents import LabelledData, ReadOptions
from rehead.text.duplicates import find_duplicates
from rehead.text.order import shuffled
from rehead.text.random_streams import Stream
from rehead.text.readers import Texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Counts = NDArray[np.int64]
    Fractions = NDArray[np.float64]

SHUFFLE_STD = 0.065  # standard deviation of the recall after one shuffle, with two classes


class SealedTestSet:
    """A test set whose texts can be read, and whose labels can be revealed once."""

    def __init__(self, data: LabelledData) -> None:
        self.texts = data.texts
        self.sources = data.sources
        self.fingerprint = data.fingerprint()
        self.opened = 0
        self._sealed_labels = data.labels

    def __len__(self) -> int:
        return len(self.texts)

    def reveal_labels(self) -> list[tuple[str, ...]]:
        """Return the true labels; calling it twice is a bug."""
        if self.opened:
            raise RuntimeError("the labels of the test set have already been revealed")
        self.opened += 1
        return self._sealed_labels


@dataclass
class PretrainingText:
    """The text that a run was pretrained on, if it can still be found."""

    run: str
    texts: Texts | None
    why: str = ""
    "Why it cannot be checked."
    fingerprint: str = ""


@dataclass
class Overlap:
    """Exact and near duplicates between a text and the test set."""

    in_test: Flags
    "(N,) which documents of the text are in the test set."
    in_text: Flags
    "(test documents,) which test documents are in the text."


def pretraining_text(run: str, details: dict[str, Any]) -> PretrainingText:
    """Find the text that a run was pretrained on: the same files, with the same content."""
    options, recorded = details.get("options"), details.get("text")
    paths = options.get("texts") if isinstance(options, dict) else None
    if not isinstance(options, dict) or not paths or not isinstance(recorded, dict):
        return PretrainingText(run, None, "the run does not record its pretraining text")
    names = {each.name for each in dataclasses.fields(ReadOptions)}
    reading = ReadOptions(**{name: value for name, value in options.items() if name in names})
    if "-" in paths:
        return PretrainingText(run, None, "it was pretrained on standard input")
    try:
        texts = Texts(paths, reading, check=False)
        fingerprint = texts.fingerprint()
        if fingerprint != recorded.get("fingerprint"):
            return PretrainingText(run, None, f"{', '.join(paths)} has changed since")
    except (UserError, OSError, TypeError):
        return PretrainingText(run, None, f"{', '.join(map(str, paths))} can no longer be read")
    return PretrainingText(run, texts, fingerprint=fingerprint)


def find_leaks(training: Sequence[Iterable[str]], test: Sequence[str]) -> list[Overlap]:
    """Find the exact and near duplicates between the test set and each set of training texts."""
    sizes = [0] * len(training)

    def counting(number: int, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            sizes[number] += 1
            yield text

    streams = (counting(number, texts) for number, texts in enumerate(training))
    duplicates = find_duplicates(chain(test, *streams))
    first = duplicates.first.tolist()
    near: dict[int, set[int]] = defaultdict(set)
    for left, right in duplicates.pairs.tolist():
        near[left].add(right)
        near[right].add(left)

    def duplicated(documents: range, others: range) -> Flags:
        """Tell which of these documents have an exact or near duplicate among the others."""
        originals = {first[each] for each in others}
        return np.array(
            [first[each] in originals or bool(near.get(first[each], set()) & originals) for each in documents], bool
        )

    test_range = range(len(test))
    ends = list(accumulate(sizes, initial=len(test)))
    ranges = [range(start, end) for start, end in pairwise(ends)]
    return [Overlap(duplicated(each, test_range), duplicated(test_range, each)) for each in ranges]


def shuffle_labels(data: LabelledData, seed: int) -> LabelledData:
    """Shuffle the labels, stratified: every true class gets the same mix of new labels, within one."""
    order = shuffled(np.arange(len(data)), len(data), seed, Stream.SHUFFLED_LABELS).tolist()
    by_class = sorted(order, key=lambda each: data.labels[each])  # in random order within a class
    given: dict[tuple[str, ...], int] = defaultdict(int)
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    for labels in data.labels:
        counts[labels] += 1
    kinds = sorted(counts)  # ranked at random: otherwise a remainder would always go to the class of its own label
    rank = dict(
        zip(kinds, shuffled(np.arange(len(kinds)), len(kinds), seed, Stream.SHUFFLED_LABELS).tolist(), strict=True)
    )
    interleaved = []
    for number, labels in enumerate(data.labels):
        interleaved.append(((given[labels] + 0.5) / counts[labels], rank[labels], number, labels))
        given[labels] += 1
    mixed: list[tuple[str, ...]] = [()] * len(data)
    for place, (*_, labels) in zip(by_class, sorted(interleaved), strict=True):
        mixed[place] = labels
    return dataclasses.replace(data, labels=mixed)


def control_limit(classes: int, documents: Counts, predicted: Fractions, shuffles: int) -> float:
    """Compute the macro-averaged recall that a control may reach: chance plus three standard deviations.

    documents: (C,) test documents of each class; predicted: (C,) fraction of documents predicted as each. The sampling
    variance of the test documents adds to that of the shuffles, and more shuffles do not reduce it.
    """
    sampling = float((predicted * (1 - predicted) / documents).sum()) / len(documents) ** 2
    return min(1.0, 1 / classes + 3 * math.sqrt(2 / classes * SHUFFLE_STD**2 / shuffles + sampling))
