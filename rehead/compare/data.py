"""One split for every method: what is learnt from, what chooses, the sealed test part; and the leak check before it.

Without a test part, a fifth of the labelled documents is held out, classes in proportion; of the rest a fifth
validates. Validation grows with the labels: with 100 of 1,600 labels a method has 25 of 400 validation labels to choose
its epoch by, since who has few labels has few for everything. What chooses by cross-validation (the recipe, the
baselines) has its labels only.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.compare.guards import PretrainingText, Sealed, find_leaks, pretraining_text
from rehead.compare.kinds import UNLABELLED
from rehead.compare.options import CompareOptions
from rehead.compare.results import DataFacts, LeakFacts
from rehead.errors import UserError
from rehead.finetune.splits import draws, split
from rehead.finetune.targets import some, targets
from rehead.options import read_options
from rehead.text.datasets import NAMES, load_dataset, read_reviews, to_labelled_data
from rehead.text.documents import LabelledData, ReadOptions, describe_value
from rehead.text.labelled import check_classes, read_examples, sort_names
from rehead.text.readers import Texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

SHARE = 0.2  # that is held out, where a part is not given
LABELLED_PARTS = ("train", "valid", "test")


@dataclass
class Unlabelled:
    """Text without labels that the default recipe may learn from too."""

    texts: list[str]
    fingerprint: str


@dataclass
class Parts:
    """The split, after the leak check."""

    train: LabelledData
    valid: LabelledData
    test: Sealed
    facts: DataFacts
    "What the report says of the data; the classes of the test part are filled in when it is opened."
    leaks: LeakFacts
    seen: Any
    "(test documents,) whether a pretraining text has each."
    unlabelled: Unlabelled | None = None

    @property
    def names(self) -> list[str]:
        """The classes, in order."""
        return self.train.names

    def fingerprints(self) -> dict[str, str]:
        """Hashes of what is read; a comparison that goes on must find the same."""
        found = {
            "train": self.train.fingerprint(),
            "valid": self.valid.fingerprint(),
            "test": self.test.fingerprint,
        }
        return found if self.unlabelled is None else found | {"unlabelled": self.unlabelled.fingerprint}


def prepare(options: CompareOptions, runs: Sequence[tuple[str, dict[str, Any]]]) -> Parts:
    """Read, split, and look for leaks. `runs`: name and details of each pretrained run."""
    reading = read_options(options, ReadOptions)
    train = read_labelled(options.labelled, reading)
    check_classes(train)
    where = {"train": ", ".join(options.labelled), "valid": "", "test": ""}
    test = valid = None
    if options.test is not None:
        test, where["test"] = read_labelled(options.test, reading), ", ".join(options.test)
    if options.valid is not None:
        valid, where["valid"] = read_labelled(options.valid, reading), ", ".join(options.valid)
    if test is None:
        train, test = _held_out(train, options.seed, "test")
        where["test"] = f"a fifth of {where['train']}, held out, classes in proportion"
    if valid is None:
        train, valid = _held_out(train, options.seed + 1, "validation")
        where["valid"] = (
            "a fifth of what was left to learn from" if options.test is None else f"a fifth of {where['train']}"
        )
    train, valid, test = _agree(train, valid, test)
    texts = [pretraining_text(name, details) for name, details in runs]
    unlabelled = _read_unlabelled(options)
    leaks = _look(train, valid, test, texts, unlabelled, quiet=options.quiet)
    checked = len(train) + len(valid)
    train, valid = (
        some(part, np.flatnonzero(~flags)) for part, flags in zip((train, valid), leaks.labelled, strict=True)
    )
    check_classes(train)
    if unlabelled is not None:
        kept = [text for text, copy in zip(unlabelled.texts, leaks.unlabelled, strict=True) if not copy]
        if not kept:
            raise UserError("--unlabelled: all of it is in the test part. Give other text, or drop it.")
        unlabelled.texts = kept
    seen = np.zeros(len(test), bool)
    for flags in leaks.seen:
        seen |= flags
    words = int(np.median([len(text.split()) for text in test.texts]))
    return Parts(
        train,
        valid,
        Sealed(test),
        DataFacts(
            labelled=where["train"],
            valid=where["valid"],
            test=where["test"],
            classes={},
            sizes={"train": len(train), "valid": len(valid), "test": len(test)},
            multilabel=train.multilabel,
            words=words,
            unlabelled=_used(options, unlabelled),
        ),
        LeakFacts(
            checked=checked,
            dropped=sum(int(flags.sum()) for flags in leaks.labelled),
            pretraining=_said(texts, leaks, len(test)),
            seen=int(seen.sum()),
            unlabelled=None if unlabelled is None else int(leaks.unlabelled.sum()),
        ),
        seen,
        unlabelled,
    )


def read_labelled(paths: Sequence[str], reading: ReadOptions) -> LabelledData:
    """Read a labelled part: files and folders, or one built-in set or part of it."""
    built_in = [path for path in paths if path.partition(":")[0] in NAMES and not Path(path).exists()]
    if not built_in:
        return read_examples(list(paths), reading, check=False)
    if len(paths) > 1:
        raise UserError(f"{built_in[0]}: a built-in part stands alone. Name it without other files.")
    name, _, part = built_in[0].partition(":")
    if not part:
        return to_labelled_data(name, read_reviews(name)[0])
    if part not in LABELLED_PARTS:
        raise UserError(f"{built_in[0]}: no such labelled part. There are: {', '.join(LABELLED_PARTS)}.")
    chosen = getattr(load_dataset(name), part)
    assert isinstance(chosen, LabelledData), describe_value(chosen)  # noqa: S101
    return chosen


def few(parts: Parts, counts: Sequence[int], seed: int) -> dict[int, tuple[LabelledData, LabelledData]]:
    """Draw so many labels to learn from, and validation labels in proportion: the 100 are among the 500."""
    least = 2 * len(parts.names)
    share = len(parts.valid) / len(parts.train)
    drawn = draws(parts.train, list(counts), seed)
    sizes = {count: min(len(parts.valid), max(least, round(share * count))) for count in counts}
    chosen = draws(parts.valid, sorted(set(sizes.values())), seed)
    return {count: (some(parts.train, drawn[count]), some(parts.valid, chosen[sizes[count]])) for count in counts}


def _held_out(data: LabelledData, seed: int, what: str) -> tuple[LabelledData, LabelledData]:
    kept, aside = split(data, SHARE, seed)
    if len(aside) < 2:
        raise UserError(f"{len(data):,} examples are too few to hold a {what} part out of. Give more, or that part.")
    return some(data, kept), some(data, aside)


def _agree(*parts: LabelledData) -> list[LabelledData]:
    """Have all parts speak of the same classes; what training does not have cannot be tested."""
    names = sort_names({label for labels in parts[0].labels for label in labels})
    multilabel = any(part.multilabel for part in parts)
    agreed = [dataclasses.replace(part, names=names, multilabel=multilabel) for part in parts]
    for part in agreed[1:]:
        targets(part, names, multilabel=multilabel)  # refuses a label that is not among them
    return agreed


def _read_unlabelled(options: CompareOptions) -> Unlabelled | None:
    if options.unlabelled is None:
        return None
    reading = dataclasses.replace(read_options(options, ReadOptions), skip_empty=True)  # as pretraining does
    texts = Texts(options.unlabelled, reading, check=False)
    return Unlabelled([document.text for document in texts], texts.fingerprint())


def _used(options: CompareOptions, unlabelled: Unlabelled | None) -> str | None:
    """Say which unlabelled text is learnt from, and how much of it."""
    if options.unlabelled is None or unlabelled is None:
        return None
    there = len(unlabelled.texts)
    much = f"{there:,} documents" if there <= UNLABELLED else f"{UNLABELLED:,} of {there:,} documents, drawn by chance"
    return f"{', '.join(options.unlabelled)} ({much})"


@dataclass
class _Leaks:
    labelled: list[Flags]
    "For training and validation: (N,) which documents are in the test part too."
    unlabelled: Flags
    "The same for the unlabelled text."
    seen: list[Flags]
    "For each pretraining text: (test documents,) which of them are in it."


def _look(
    train: LabelledData,
    valid: LabelledData,
    test: LabelledData,
    texts: Sequence[PretrainingText],
    unlabelled: Unlabelled | None,
    *,
    quiet: bool,
) -> _Leaks:
    if not quiet:
        print("looking for test documents in what is learnt from", file=sys.stderr)
    different: dict[str, Iterable[str]] = {  # runs may share their text, and the recipe may learn from it once more
        text.fingerprint: (document.text for document in text.texts) for text in texts if text.texts is not None
    }
    if unlabelled is not None:
        different[unlabelled.fingerprint] = unlabelled.texts
    first, second, *others = find_leaks([train.texts, valid.texts, *different.values()], test.texts)
    found = dict(zip(different, others, strict=True))
    return _Leaks(
        [first.own, second.own],
        np.zeros(0, bool) if unlabelled is None else found[unlabelled.fingerprint].own,
        [found[text.fingerprint].asked if text.texts is not None else np.zeros(len(test), bool) for text in texts],
    )


def _said(texts: Sequence[PretrainingText], leaks: _Leaks, asked: int) -> list[str]:
    """Say of each pretraining text whether the test part is in it."""
    lines = []
    for text, flags in zip(texts, leaks.seen, strict=True):
        count = int(flags.sum())
        if text.texts is None:
            lines.append(f"{text.run}: whether the test part was pretrained on is not known: {text.why}.")
        elif count:
            lines.append(
                f"{text.run}: {count:,} of {asked:,} test documents are in its pretraining text, without their labels. "
                "The baselines have not seen them."
            )
        else:
            lines.append(f"{text.run}: none of the test documents is in its pretraining text.")
    return lines
