"""The results of a comparison, `results.json`, as dataclasses: the only input of the report.

Accuracy, F1 and probabilities are fractions from 0 to 1, times are in seconds. Null means not measured.
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
    """A method that is compared."""

    key: str
    kind: Kind
    title: str
    about: str
    "Description, one sentence."
    run: str | None = None
    "The pretrained run that it starts from, or whose architecture it has."
    parameters: int | None = None
    name: str = ""
    "Short name of the run, if there are several."
    architecture: str = ""
    "Digest of the shape and the tokenizer of the run that it is trained from, or has the shape of."


@dataclass
class DataFacts:
    """Training, validation and test data."""

    labelled: str
    valid: str
    "Origin of the validation set, as text."
    test: str
    classes: dict[str, int]
    "Class → documents of the test set."
    sizes: dict[str, int]
    "train, valid, test → documents."
    multilabel: bool
    words: int
    "Median length of a test document, in words."
    unlabelled: str | None = None
    "The unlabelled text for self-training and its size, as text."


@dataclass
class CurvePoint:
    """A point of a training curve: metrics on the validation set after some epochs and seconds."""

    epoch: float
    seconds: float
    accuracy: float
    macro_f1: float
    loss: float | None = None


@dataclass
class Curve:
    """The training curves of a method, one per seed; each starts before the first step."""

    method: str
    labels: int
    seeds: list[list[CurvePoint]]


@dataclass
class Score:
    """The test scores of a method for one training set size."""

    method: str
    labels: int
    accuracy: Summary
    "Multilabel: the share of exact matches, documents with all labels correct."
    macro_f1: Summary
    by_seed: list[float]
    "Accuracy, seed by seed."
    train_seconds: float
    "Mean over the seeds."
    documents_per_second: float
    "Of prediction, from text to probabilities."
    calibration_error: float
    "Expected calibration error, mean over the seeds."
    notes: list[str] = field(default_factory=list)
    micro_f1: Summary | None = None
    "F1 over all pairs of document and label; None if not multilabel, where it is the accuracy."


@dataclass
class Paired:
    """A paired comparison of two methods on the same documents."""

    first: str
    second: str
    labels: int
    difference: Difference
    p: float
    "Of a permutation test over documents, all seeds together; significance is decided by this one."
    by_seed: list[Mcnemar]
    "McNemar's exact test, seed by seed."


@dataclass
class Reach:
    """How soon a method reaches the best validation accuracy of scratch (means over the seeds)."""

    method: str
    labels: int
    target: float
    "Scratch's best validation accuracy."
    reached: int
    "Number of seeds that reached it."
    seeds: int
    epochs: float | None
    seconds: float | None


@dataclass
class Confusion:
    """Confusion matrix: true classes (rows) by predicted classes (columns), mean over the seeds."""

    method: str
    labels: int
    matrix: list[list[float]]


@dataclass
class Bin:
    """A bin of a reliability diagram: predictions of similar confidence."""

    confidence: float
    right: float
    documents: int


@dataclass
class Reliability:
    """The reliability diagram of a method."""

    method: str
    labels: int
    bins: list[Bin]


@dataclass
class Mistake:
    """A misclassified test document, with the confidence of the prediction."""

    text: str
    source: str
    line: int
    truth: str
    answer: str
    confidence: float
    baseline: str | None = None
    "Prediction of the best baseline."


@dataclass
class Control:
    """A method trained on shuffled labels: it must not exceed chance."""

    method: str
    labels: int
    recall: float
    "Macro-averaged recall."
    chance: float
    "Recall at chance level."
    limit: float
    "Above this, the recall is significantly better than chance."

    @property
    def passed(self) -> bool:
        """Whether it falls to chance."""
        return self.recall <= self.limit


@dataclass
class LeakFacts:
    """The result of the leak check before training."""

    checked: int
    "Labelled documents compared with the test set."
    dropped: int
    "Labelled documents removed from training and validation: exact or near duplicates of test documents."
    pretraining: list[str]
    "One sentence for each pretrained run: how many test documents its pretraining text contains."
    seen: int
    "Test documents that are in the pretraining text, without their labels."
    unseen_accuracy: dict[str, float] = field(default_factory=dict)
    "Method → accuracy on the other test documents, for the largest training set; empty if none was seen."
    unlabelled: int | None = None
    "Documents removed from the unlabelled text as duplicates of test documents; None without such text."


@dataclass
class Guards:
    """Safeguards of the comparison."""

    leaks: LeakFacts
    controls: list[Control]
    opened: int
    "How often the test labels were revealed."


@dataclass
class RunFacts:
    """Command, options, versions and hardware, to reproduce the comparison."""

    command: str
    options: dict[str, Any]
    versions: dict[str, str]
    cores: int
    seconds: float
    date: str
    runs: list[str]
    "How each run was pretrained, a sentence each."


@dataclass
class Results:
    """A whole comparison."""

    format: int
    answer: list[str]
    "Summary: accuracies and verdict, a sentence each."
    data: DataFacts
    methods: list[Method]
    counts: list[int]
    "Training set sizes, ascending."
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
        """Find a method by its key."""
        return next(each for each in self.methods if each.key == key)

    def score(self, key: str, labels: int | None = None) -> Score | None:
        """Find the score of a method, by default for the largest training set; None if it was not run."""
        labels = self.counts[-1] if labels is None else labels
        return next((each for each in self.scores if each.method == key and each.labels == labels), None)

    def best(self, kinds: typing.Collection[str], labels: int | None = None) -> Score | None:
        """Find the best score among methods of these kinds, by mean accuracy."""
        found = [self.score(each.key, labels) for each in self.methods if each.kind in kinds]
        return max((each for each in found if each), key=lambda score: score.accuracy.mean, default=None)

    @property
    def ours(self) -> Method | None:
        """The headline method: the default recipe, or else a pretrained one; never selected by its score."""
        for kind in ("recipe", "pretrained", "frozen", "scratch"):
            for each in self.methods:
                if each.kind == kind:
                    return each
        return None


def to_json(results: Results) -> dict[str, Any]:
    """Convert results to the content of `results.json`."""
    return dataclasses.asdict(results)


def load_results(path: Path) -> Results:
    """Read a `results.json`."""
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise DamagedError(f"{path}: not a results file of this version (format {FORMAT}). Compare again.")
    try:
        return from_json(Results, value)
    except (TypeError, ValueError, KeyError) as error:
        raise DamagedError(f"{path}: not a valid results file ({error}). Compare again.") from None


def from_json(kind: type[T], value: Any) -> T:  # noqa: ANN401 (whatever the file holds)
    """Parse a value of a type made of dataclasses, lists, dicts and plain values."""
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
            raise ValueError(f"{short_repr(value)} is not one of {inner}")
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
