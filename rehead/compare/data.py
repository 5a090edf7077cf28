"""Training, validation and test set, the same for every method, and the leak check before training.

Without --test, a stratified fifth of the labelled documents is held out as the test set; without --valid, a fifth of
the rest is the validation set. The validation set scales with the training set: with 100 of 1,600 labels a method has
25 of 400 validation labels to select its epoch, since in practice few labels means few for validation too. Methods that
select by cross-validation (the recipe, the baselines) use the training labels only.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.compare.guards import PretrainingText, SealedTestSet, find_leaks, pretraining_text
from rehead.compare.kinds import UNLABELLED
from rehead.compare.options import CompareOptions
from rehead.compare.results import DataFacts, LeakFacts
from rehead.errors import UserError
from rehead.finetune.splits import nested_subsets, split
from rehead.finetune.targets import subset, targets
from rehead.options import read_options
from rehead.text.datasets import NAMES, load_dataset, read_reviews, to_labelled_data
from rehead.text.documents import LabelledData, ReadOptions, describe_value
from rehead.text.labelled import check_classes, read_examples, sort_names
from rehead.text.readers import Texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

HELD_OUT = 0.2  # fraction held out where no test or validation set is given
LABELLED_SPLITS = ("train", "valid", "test")


@dataclass
class Unlabelled:
    """Unlabelled text for the self-training of the default recipe."""

    texts: list[str]
    fingerprint: str


@dataclass
class Splits:
    """Training, validation and test set, after the leak check."""

    train: LabelledData
    valid: LabelledData
    test: SealedTestSet
    facts: DataFacts
    "What the report says about the data; the class counts of the test set are filled in when its labels are revealed."
    leaks: LeakFacts
    seen: Any
    "(test documents,) whether each is in a pretraining text."
    unlabelled: Unlabelled | None = None

    @property
    def names(self) -> list[str]:
        """The classes, in order."""
        return self.train.names

    def fingerprints(self) -> dict[str, str]:
        """Hash the data; a resumed comparison must find the same hashes."""
        found = {
            "train": self.train.fingerprint(),
            "valid": self.valid.fingerprint(),
            "test": self.test.fingerprint,
        }
        return found if self.unlabelled is None else found | {"unlabelled": self.unlabelled.fingerprint}


def prepare(options: CompareOptions, runs: Sequence[tuple[str, dict[str, Any]]]) -> Splits:
    """Read the data, split it, and check it for leaks. `runs`: name and details of each pretrained run."""
    reading = read_options(options, ReadOptions)
    train = read_labelled(options.labelled, reading)
    check_classes(train)
    for note in train.notes:
        print(f"warning: {note}", file=sys.stderr)
    where = {"train": ", ".join(options.labelled), "valid": "", "test": ""}
    test = valid = None
    if options.test is not None:
        test, where["test"] = read_labelled(options.test, reading), ", ".join(options.test)
    if options.valid is not None:
        valid, where["valid"] = read_labelled(options.valid, reading), ", ".join(options.valid)
    if test is None:
        train, test = _hold_out(train, options.seed, "test")
        where["test"] = f"a stratified fifth of {where['train']}, held out"
    if valid is None:
        train, valid = _hold_out(train, options.seed + 1, "validation")
        where["valid"] = "a fifth of the rest" if options.test is None else f"a fifth of {where['train']}"
    train, valid, test = _align_classes(train, valid, test)
    texts = [pretraining_text(name, details) for name, details in runs]
    unlabelled = _read_unlabelled(options)
    leaks = _check_leaks(train, valid, test, texts, unlabelled, quiet=options.quiet)
    checked = len(train) + len(valid)
    _check_left(train, leaks.labelled[0])
    train, valid = (
        subset(data, np.flatnonzero(~flags)) for data, flags in zip((train, valid), leaks.labelled, strict=True)
    )
    if unlabelled is not None:
        kept = [text for text, copy in zip(unlabelled.texts, leaks.unlabelled, strict=True) if not copy]
        if not kept:
            raise UserError("--unlabelled: all of its documents are in the test set. Give other text, or drop it.")
        unlabelled.texts = kept
    seen = np.zeros(len(test), bool)
    for flags in leaks.seen:
        seen |= flags
    words = int(np.median([len(text.split()) for text in test.texts]))
    return Splits(
        train,
        valid,
        SealedTestSet(test),
        DataFacts(
            labelled=where["train"],
            valid=where["valid"],
            test=where["test"],
            classes={},
            sizes={"train": len(train), "valid": len(valid), "test": len(test)},
            multilabel=train.multilabel,
            words=words,
            unlabelled=_describe_unlabelled(options, unlabelled),
        ),
        LeakFacts(
            checked=checked,
            dropped=sum(int(flags.sum()) for flags in leaks.labelled),
            pretraining=_describe_leaks(texts, leaks, len(test)),
            seen=int(seen.sum()),
            unlabelled=None if unlabelled is None else int(leaks.unlabelled.sum()),
        ),
        seen,
        unlabelled,
    )


def read_labelled(paths: Sequence[str], reading: ReadOptions) -> LabelledData:
    """Read a labelled set: files and folders, or a built-in dataset or one of its splits."""
    built_in = [path for path in paths if path.partition(":")[0] in NAMES and not Path(path).exists()]
    if not built_in:
        return read_examples(list(paths), reading, check=False)
    if len(paths) > 1:
        raise UserError(f"{built_in[0]}: a built-in dataset cannot be combined with other files. Give it alone.")
    name, _, split_name = built_in[0].partition(":")
    if not split_name:
        return to_labelled_data(name, read_reviews(name)[0])
    if split_name not in LABELLED_SPLITS:
        raise UserError(f"{built_in[0]}: no such labelled split. Choose from {', '.join(LABELLED_SPLITS)}.")
    chosen = getattr(load_dataset(name), split_name)
    assert isinstance(chosen, LabelledData), describe_value(chosen)  # noqa: S101
    return chosen


def draw_subsets(splits: Splits, counts: Sequence[int], seed: int) -> dict[int, tuple[LabelledData, LabelledData]]:
    """Draw nested training subsets of these sizes, each with a validation subset in proportion."""
    least = 2 * len(splits.names)
    share = len(splits.valid) / len(splits.train)
    drawn = nested_subsets(splits.train, list(counts), seed)
    sizes = {count: min(len(splits.valid), max(least, round(share * count))) for count in counts}
    chosen = nested_subsets(splits.valid, sorted(set(sizes.values())), seed)
    return {count: (subset(splits.train, drawn[count]), subset(splits.valid, chosen[sizes[count]])) for count in counts}


def _hold_out(data: LabelledData, seed: int, name: str) -> tuple[LabelledData, LabelledData]:
    kept, held_out = split(data, HELD_OUT, seed)
    if len(held_out) < 2:
        flag = "--test" if name == "test" else "--valid"
        raise UserError(f"{len(data):,} examples are too few to hold out a {name} set. Give more, or give {flag}.")
    return subset(data, kept), subset(data, held_out)


def _align_classes(*splits: LabelledData) -> list[LabelledData]:
    """Give all sets the classes of the training set, in one order; refuse a label that training does not have."""
    names = sort_names({label for labels in splits[0].labels for label in labels})
    multilabel = any(each.multilabel for each in splits)
    aligned = [dataclasses.replace(each, names=names, multilabel=multilabel) for each in splits]
    for each in aligned[1:]:
        targets(each, names, multilabel=multilabel)  # refuses an unknown label
    return aligned


def _read_unlabelled(options: CompareOptions) -> Unlabelled | None:
    if options.unlabelled is None:
        return None
    reading = dataclasses.replace(read_options(options, ReadOptions), skip_empty=True)  # as pretraining does
    texts = Texts(options.unlabelled, reading, check=False)
    return Unlabelled([document.text for document in texts], texts.fingerprint())


def _describe_unlabelled(options: CompareOptions, unlabelled: Unlabelled | None) -> str | None:
    """Name the unlabelled text that is used, and its size."""
    if options.unlabelled is None or unlabelled is None:
        return None
    count = len(unlabelled.texts)
    size = f"{count:,} documents" if count <= UNLABELLED else f"random sample of {UNLABELLED:,} of {count:,} documents"
    return f"{', '.join(options.unlabelled)} ({size})"


@dataclass
class _Leaks:
    labelled: list[Flags]
    "For training and validation set: (N,) which documents are also in the test set."
    unlabelled: Flags
    "The same for the unlabelled text."
    seen: list[Flags]
    "For each pretraining text: (test documents,) which test documents are in it."


def _check_leaks(
    train: LabelledData,
    valid: LabelledData,
    test: LabelledData,
    texts: Sequence[PretrainingText],
    unlabelled: Unlabelled | None,
    *,
    quiet: bool,
) -> _Leaks:
    if not quiet:
        print("checking the training data for test documents", file=sys.stderr)
    # By fingerprint: runs may share their pretraining text, and --unlabelled may be the same text.
    different: dict[str, Iterable[str]] = {
        text.fingerprint: (document.text for document in text.texts) for text in texts if text.texts is not None
    }
    if unlabelled is not None:
        different[unlabelled.fingerprint] = unlabelled.texts
    first, second, *others = find_leaks([train.texts, valid.texts, *different.values()], test.texts)
    found = dict(zip(different, others, strict=True))
    return _Leaks(
        [first.in_test, second.in_test],
        np.zeros(0, bool) if unlabelled is None else found[unlabelled.fingerprint].in_test,
        [found[text.fingerprint].in_text if text.texts is not None else np.zeros(len(test), bool) for text in texts],
    )


def _check_left(train: LabelledData, in_test: Flags) -> None:
    """Require two training examples of each class that are not in the test set, too."""
    for name in train.names:
        has = np.array([name in labels for labels in train.labels])
        before, left = int(has.sum()), int((has & ~in_test).sum())
        if left < 2:
            raise UserError(
                f"the class {name!r} has {before:,} training examples, but {before - left:,} of them are copies or "
                f"near copies of test documents, and are removed: {left or 'none'} left, where 2 are needed. Remove "
                "near duplicates from the data (rehead data check names them), or add other examples."
            )


def _describe_leaks(texts: Sequence[PretrainingText], leaks: _Leaks, test_size: int) -> list[str]:
    """Describe, for each pretraining text, how many test documents are in it."""
    lines = []
    for text, flags in zip(texts, leaks.seen, strict=True):
        count = int(flags.sum())
        if text.texts is None:
            lines.append(f"{text.run}: whether it was pretrained on test documents is unknown: {text.why}.")
        elif count:
            lines.append(
                f"{text.run}: {count:,} of {test_size:,} test documents are in its pretraining text, without their "
                "labels. The baselines have not seen them."
            )
        else:
            lines.append(f"{text.run}: none of the test documents is in its pretraining text.")
    return lines
