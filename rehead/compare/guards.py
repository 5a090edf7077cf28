"""What keeps a comparison honest: the leak check, the sealed answers, and the control with shuffled labels.

The leak check runs before anything is trained. A labelled document that is in the test part as well, word for word or
nearly (`rehead.text.duplicates`), is taken out of training and validation; so is one of the unlabelled text that the
default recipe learns from. A test document whose text was pretrained on, without its label, is counted, said, and the
accuracy on the others is given beside: pretraining on test texts is a method of its own, which the baselines do not
have.

`Sealed` holds the test part. Its texts may be read, by the leak check and by models that have learnt; its answers can
be opened once, and `rehead.compare.scoring` does that after the last model has been trained and has answered. So
nothing that is chosen can depend on them.

The control: labels are dealt out anew, so that every true class gets the same mix of them; then a method that is right
more often than chance has been told the answers some other way. One such dealing can still be lucky: out of few strong
features a method learns some rule, which may happen to point along the true one, or against it. Over 20 dealings a
linear head on pretrained vectors of film reviews came to 51.8 % with a standard deviation of 6.7 points (100 labels),
50.6 ± 4.9 (500) and 51.1 ± 4.3 (1,600); over 6, TF-IDF to 51.5 ± 1.4, 48.8 ± 1.6 and 50.2 ± 3.6. So the mean over the
seeds is judged, with three such deviations allowed. With K classes there is less of such luck: on made-up vectors about
the root of 2 / K times as much, up to 20 classes.

What is judged is the mean over the classes of the share that is right. Who knows nothing gets 1 / K of that, however
uneven the classes are, whereas naming the commonest of 90:10 is right 90 % of the time. Where a text has several
labels, each is a question of its own with two classes: there or not.
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
    Shares = NDArray[np.float64]

LUCK = 0.065  # standard deviation of what one dealing of shuffled labels gives, with two classes


class Sealed:
    """A test part whose texts can be read, and whose answers can be opened once."""

    def __init__(self, data: LabelledData) -> None:
        self.texts = data.texts
        self.sources = data.sources
        self.fingerprint = data.fingerprint()
        self.opened = 0
        self._answers = data.labels

    def __len__(self) -> int:
        return len(self.texts)

    def open_answers(self) -> list[tuple[str, ...]]:
        """Give the true labels; a second time is a mistake in the program."""
        if self.opened:
            raise RuntimeError("the answers of the test part have been opened already")
        self.opened += 1
        return self._answers


@dataclass
class PretrainingText:
    """The text that a run was pretrained on, as far as it can still be found."""

    run: str
    texts: Texts | None
    why: str = ""
    "Why it cannot be compared."
    fingerprint: str = ""


@dataclass
class Overlap:
    """What a text and the test part have in common, exactly or nearly."""

    own: Flags
    "(N,) which documents of the text are in the test part."
    asked: Flags
    "(test documents,) which of them are in the text."


def pretraining_text(run: str, details: dict[str, Any]) -> PretrainingText:
    """Find the text that a run was pretrained on: the same files, with the same content."""
    options, recorded = details.get("options"), details.get("text")
    paths = options.get("texts") if isinstance(options, dict) else None
    if not isinstance(options, dict) or not paths or not isinstance(recorded, dict):
        return PretrainingText(run, None, "the run does not say what it was pretrained on")
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
        return PretrainingText(run, None, f"{', '.join(map(str, paths))} is not there any more")
    return PretrainingText(run, texts, fingerprint=fingerprint)


def find_leaks(learnt: Sequence[Iterable[str]], test: Sequence[str]) -> list[Overlap]:
    """Compare each text that is learnt from with the test part, exact and near duplicates together."""
    counted = [0] * len(learnt)

    def watched(number: int, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            counted[number] += 1
            yield text

    streams = (watched(number, texts) for number, texts in enumerate(learnt))
    duplicates = find_duplicates(chain(test, *streams))
    first = duplicates.first.tolist()
    near: dict[int, set[int]] = defaultdict(set)
    for left, right in duplicates.pairs.tolist():
        near[left].add(right)
        near[right].add(left)

    def alike(documents: range, others: range) -> Flags:
        """Tell which of these documents are, exactly or nearly, among the others."""
        there = {first[each] for each in others}
        return np.array(
            [first[each] in there or bool(near.get(first[each], set()) & there) for each in documents], bool
        )

    asked = range(len(test))
    ends = list(accumulate(counted, initial=len(test)))
    places = [range(start, end) for start, end in pairwise(ends)]
    return [Overlap(alike(place, asked), alike(asked, place)) for place in places]


def shuffle_labels(data: LabelledData, seed: int) -> LabelledData:
    """Deal the labels out anew: every class of the truth gets the same mix of them, within one."""
    order = shuffled(np.arange(len(data)), len(data), seed, Stream.SHUFFLED_LABELS).tolist()
    by_class = sorted(order, key=lambda each: data.labels[each])  # chance within the class
    given: dict[tuple[str, ...], int] = defaultdict(int)
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    for labels in data.labels:
        counts[labels] += 1
    kinds = sorted(counts)  # in an order of chance, or what is left over would always go to the class that it names
    rank = dict(
        zip(kinds, shuffled(np.arange(len(kinds)), len(kinds), seed, Stream.SHUFFLED_LABELS).tolist(), strict=True)
    )
    paced = []
    for number, labels in enumerate(data.labels):
        paced.append(((given[labels] + 0.5) / counts[labels], rank[labels], number, labels))
        given[labels] += 1
    mixed: list[tuple[str, ...]] = [()] * len(data)
    for place, (*_, labels) in zip(by_class, sorted(paced), strict=True):
        mixed[place] = labels
    return dataclasses.replace(data, labels=mixed)


def control_limit(classes: int, documents: Counts, named: Shares, dealings: int) -> float:
    """Give the mean recall above which shuffled labels have taught something: chance, three deviations of luck.

    documents: (C,) how many the test part has of each class that is asked for; named: (C,) how often each is answered.
    Which documents were asked adds to the luck of the dealings, and more of them do not even it out.
    """
    asked = float((named * (1 - named) / documents).sum()) / len(documents) ** 2
    return min(1.0, 1 / classes + 3 * math.sqrt(2 / classes * LUCK**2 / dealings + asked))
