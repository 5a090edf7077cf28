"""What a comparison found: `results.json`, as dataclasses. The report shows this and nothing else.

Shares (accuracy, F1, probabilities) lie between 0 and 1, times are seconds. What was not measured is null.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from rehead.compare.kinds import Kind
from rehead.compare.statistics import Difference, Mcnemar, Summary
from rehead.disk import read_json
from rehead.errors import DamagedError, short_repr

FORMAT = 1

T = TypeVar("T")


@dataclass
class Method:
    """One way to come from labels to a classifier."""

    key: str
    kind: Kind
    title: str
    about: str
    "One sentence: what is done."
    run: str | None = None
    "The pretrained run that it starts from, or whose shape it has."
    parameters: int | None = None
    name: str = ""
    "What the run is called, where there are several."


@dataclass
class DataFacts:
    """What was learnt from and asked."""

    labelled: str
    valid: str
    "Where the validation part came from, in words."
    test: str
    classes: dict[str, int]
    "Class → documents of the test part."
    sizes: dict[str, int]
    "train, valid, test → documents."
    multilabel: bool
    words: int
    "Median length of a test document."
    unlabelled: str | None = None
    "The text without labels that the default recipe may learn from, and how much of it, in words."


@dataclass
class Moment:
    """A point of a training curve: the validation part, after so many epochs and seconds."""

    epoch: float
    seconds: float
    accuracy: float
    macro_f1: float
    loss: float | None = None


@dataclass
class Curve:
    """The training curves of a method, one per seed; each begins before the first step."""

    method: str
    labels: int
    seeds: list[list[Moment]]


@dataclass
class Score:
    """What a method reached on the test part with so many labels."""

    method: str
    labels: int
    accuracy: Summary
    macro_f1: Summary
    by_seed: list[float]
    "Accuracy, seed by seed."
    train_seconds: float
    "Mean over the seeds."
    documents_per_second: float
    "Of prediction, from text to probabilities."
    calibration_error: float
    "Expected calibration error, mean over the seeds: by how much confidence and accuracy differ."
    notes: list[str] = field(default_factory=list)


@dataclass
class Paired:
    """Two methods on the same documents, and whether the second gets more right."""

    first: str
    second: str
    labels: int
    difference: Difference
    p: float
    "By a permutation test over documents, all seeds together: it decides."
    by_seed: list[Mcnemar]
    "McNemar's exact test, seed by seed."


@dataclass
class Reach:
    """How soon a method reaches the best that scratch reaches on the validation part (means over the seeds)."""

    method: str
    labels: int
    target: float
    "Scratch's best validation accuracy."
    reached: int
    "In how many seeds it was reached."
    seeds: int
    epochs: float | None
    seconds: float | None


@dataclass
class Confusion:
    """How often documents of each class (rows) were given each label (columns), mean over the seeds."""

    method: str
    labels: int
    matrix: list[list[float]]


@dataclass
class Bin:
    """Answers of about the same confidence."""

    confidence: float
    right: float
    documents: int


@dataclass
class Reliability:
    """Whether a method is right as often as it says."""

    method: str
    labels: int
    bins: list[Bin]


@dataclass
class Mistake:
    """A test document that a method got wrong, and how sure it was."""

    text: str
    source: str
    line: int
    truth: str
    answer: str
    confidence: float
    baseline: str | None = None
    "What the best baseline said."


@dataclass
class Control:
    """A method taught with shuffled labels: it must not know anything."""

    method: str
    labels: int
    recall: float
    "Share of a class's documents that it got right, mean over the classes."
    chance: float
    "What knowing nothing gives."
    limit: float
    "Above this it would have learnt what it was not told."

    @property
    def passed(self) -> bool:
        """Tell whether it fell to chance."""
        return self.recall <= self.limit


@dataclass
class LeakFacts:
    """What the leak check found before anything was trained."""

    checked: int
    "Documents compared with the test part."
    dropped: int
    "Labelled documents taken out of training and validation: they are in the test part too, exactly or nearly."
    pretraining: list[str]
    "What is known of each pretrained run's text, a sentence each."
    seen: int
    "Test documents that are in the pretraining text, without their labels."
    unseen_accuracy: dict[str, float] = field(default_factory=dict)
    "Method → accuracy on the other test documents, with the most labels; empty if none was seen."
    unlabelled: int | None = None
    "Documents taken out of the unlabelled text, since they are in the test part too; None without such text."


@dataclass
class Guards:
    """What keeps the comparison honest."""

    leaks: LeakFacts
    controls: list[Control]
    opened: int
    "How often the answers of the test part were opened."


@dataclass
class RunFacts:
    """What was run, and how to run it again."""

    command: str
    options: dict[str, Any]
    versions: dict[str, str]
    cores: int
    seconds: float
    date: str
    runs: list[str]
    "How each pretrained run came about, a sentence each."


@dataclass
class Results:
    """A whole comparison."""

    format: int
    answer: list[str]
    "In plain words."
    data: DataFacts
    methods: list[Method]
    counts: list[int]
    "Numbers of labels, rising."
    seeds: int
    scores: list[Score]
    paired: list[Paired]
    curves: list[Curve]
    reaches: list[Reach]
    confusions: list[Confusion]
    reliabilities: list[Reliability]
    mistakes: list[Mistake]
    guards: Guards
    run: RunFacts

    def method(self, key: str) -> Method:
        """Find a method."""
        return next(each for each in self.methods if each.key == key)

    def score(self, key: str, labels: int | None = None) -> Score | None:
        """Find what a method reached, by default with the most labels; None if it was not run."""
        labels = self.counts[-1] if labels is None else labels
        return next((each for each in self.scores if each.method == key and each.labels == labels), None)

    def best(self, kinds: typing.Collection[str], labels: int | None = None) -> Score | None:
        """Find the best score among methods of these kinds, by mean accuracy."""
        found = [self.score(each.key, labels) for each in self.methods if each.kind in kinds]
        return max((each for each in found if each), key=lambda score: score.accuracy.mean, default=None)

    @property
    def ours(self) -> Method | None:
        """What the headline is about: the default recipe, or else what is pretrained; never chosen by its score."""
        for kind in ("recipe", "pretrained", "frozen", "scratch"):
            for each in self.methods:
                if each.kind == kind:
                    return each
        return None


def to_json(results: Results) -> dict[str, Any]:
    """Give what `results.json` holds."""
    return dataclasses.asdict(results)


def load_results(path: Path) -> Results:
    """Read a `results.json`."""
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise DamagedError(f"{path}: not the results of a comparison that this version knows. Compare again.")
    try:
        return from_json(Results, value)
    except (TypeError, ValueError, KeyError) as error:
        raise DamagedError(f"{path}: not what a comparison wrote ({error}). Compare again.") from None


def from_json(kind: type[T], value: Any) -> T:  # noqa: ANN401 (whatever the file holds)
    """Read a value of a type that is made of dataclasses, lists, dicts and plain values."""
    read: T = _read(kind, value)
    return read


def _read(hint: Any, value: Any) -> Any:  # noqa: ANN401
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        rest = next(each for each in inner if each is not type(None))
        return None if value is None else _read(rest, value)
    if origin is Literal:
        if value not in inner:
            raise ValueError(f"{short_repr(value)} is none of {inner}")
        return value
    if origin is list:
        return [_read(inner[0], each) for each in _of(list, value)]
    if origin is dict:
        return {key: _read(inner[1], each) for key, each in _of(dict, value).items()}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        given = _of(dict, value)
        if strange := given.keys() - hints.keys():
            raise ValueError(f"{hint.__name__} has no {sorted(strange)[0]!r}")  # type: ignore[union-attr]
        return hint(**{name: _read(hints[name], each) for name, each in given.items()})  # type: ignore[operator]
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _of(hint, value)


def _of(kind: Any, value: Any) -> Any:  # noqa: ANN401
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise ValueError(f"{short_repr(value)} is not of the type {kind.__name__}")
    return value
