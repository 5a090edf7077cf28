"""The directory of a project, and all that is done to it.

OUT/
  project.json      what it was begun with; written when all texts are copied
  texts.jsonl       the texts
  journal.jsonl     everything that people decided
  features/         vectors of the texts, which are made again if they are missing
  base/             the base that is pretrained meanwhile
  labels.csv, labels.jsonl, classifier/, report.html    written by Finish

One process has it at a time (`rehead.locks`). Every change is in the journal, on disk, before it counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.disk import atomic_file, fsync, read_json, write_json
from rehead.errors import DamagedError, UserError, short_repr
from rehead.label.journal import Event, Journal
from rehead.label.labels import MAX_CLASS, Labels
from rehead.label.leases import Leases
from rehead.label.options import LabelOptions
from rehead.label.texts import TextStore, copy_texts, describe_copied
from rehead.locks import locked
from rehead.options import read_options
from rehead.progress import progress
from rehead.text.documents import LabelledData, ReadOptions
from rehead.text.labelled import read_examples

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROJECT, TEXTS, JOURNAL = "project.json", "texts.jsonl", "journal.jsonl"
FORMAT = 1
MAX_NOTE = 2_000  # characters
MAX_CLASSES = 2_000


class RequestError(UserError):
    """What a page asked for cannot be done; the message is for whoever sees the page."""


class Project:
    """A project that is open."""

    def __init__(self, path: Path, described: dict[str, Any], store: TextStore, journal: Journal) -> None:
        self.path, self.store, self.journal = path, store, journal
        self.multilabel: bool = described["multilabel"]
        self.seed: int = described["seed"]
        self.suggested_by: str | None = described.get("suggested")
        self.lock = threading.RLock()
        self.working: NDArray[np.int64] = store.working(self.seed)
        self.labels = Labels(journal.events, store.given)
        self.leases = Leases()
        self.listeners: list[Callable[[], None]] = []
        "Called after every change."

    def record(self, event: Event) -> Event:
        """Put an event on disk, then take it into account."""
        with self.lock:
            whole = self.journal.append(event)
            self.labels.apply(whole)
        for each in self.listeners:
            each()
        return whole

    # What people do.

    def label(
        self,
        text: int,
        labels: Sequence[int],
        by: str,
        how: str,
        *,
        guess: Sequence[int] | None = None,
        suggested: Sequence[int] | None = None,
    ) -> Event:
        """Give a text its labels."""
        with self.lock:
            self.check_text(text)
            event: Event = {"kind": "label", "text": text, "labels": self._labels(labels), "by": by, "how": how}
            if guess is not None:
                event["guess"] = list(guess)
            if suggested is not None:
                event["suggested"] = list(suggested)
            found = self.record(event)
            self.leases.release(text)
            return found

    def decide(self, text: int, labels: Sequence[int], by: str) -> Event:
        """Decide what people disagree about."""
        with self.lock:
            self.check_text(text)
            return self.record({"kind": "decide", "text": text, "labels": self._labels(labels), "by": by})

    def skip(self, text: int, by: str) -> Event:
        """Leave a text without a label, for good."""
        with self.lock:
            self.check_text(text)
            found = self.record({"kind": "skip", "text": text, "by": by})
            self.leases.release(text)
            return found

    def note(self, text: int, note: str, by: str) -> Event:
        """Write something about a text."""
        with self.lock:
            self.check_text(text)
            return self.record({"kind": "note", "text": text, "note": note[:MAX_NOTE], "by": by})

    def undo(self, by: str) -> Event:
        """Take back the last thing that this person did to a text; give the event that was taken back."""
        with self.lock:
            last = self.labels.last_undoable(by)
            if last is None:
                raise RequestError("there is nothing to undo.")
            self.record({"kind": "undo", "of": last["seq"], "by": by})
            return last

    def bulk(self, texts: Sequence[int], label: int, by: str, looked_at: Sequence[int]) -> Event:
        """Give many texts one label, after some of them were looked at."""
        with self.lock:
            for text in texts:
                self.check_text(text)
            kept = [text for text in texts if self.labels.texts[text].label is None]
            if not kept:
                raise RequestError("all of these have a label by now.")
            event = {"kind": "bulk", "texts": kept, "labels": self._labels([label]), "by": by}
            return self.record({**event, "looked_at": list(looked_at)})

    def add_class(self, name: str, by: str) -> int:
        """Add a class; give its number."""
        with self.lock:
            name = self._class_name(name)
            if name in self.labels.classes:
                raise RequestError(f"there is a class {short_repr(name)} already.")
            if len(self.labels.classes) >= MAX_CLASSES:
                raise RequestError(f"there are {MAX_CLASSES:,} classes, the limit.")
            self.record({"kind": "class", "name": name, "by": by})
            return self.labels.classes.index(name)

    def rename_class(self, number: int, name: str, by: str) -> None:
        """Give a class another name; labels stay."""
        with self.lock:
            name = self._class_name(name)
            self._classes([number])
            if name == self.labels.classes[number]:
                return
            if name in self.labels.classes:
                raise RequestError(f"there is a class {short_repr(name)} already. Classes are not merged.")
            self.record({"kind": "rename", "class": number, "name": name, "by": by})

    def set_seeds(self, words: dict[int, list[str]], by: str) -> None:
        """Say which words stand for which class."""
        with self.lock:
            self._classes(words)
            kept = {str(number): some for number, some in words.items() if some}
            self.record({"kind": "seeds", "words": kept, "by": by})

    def check_text(self, text: int) -> None:
        """Check that there is this text."""
        if not 0 <= text < len(self.store):
            raise RequestError(f"there is no text {text}.")

    def _labels(self, labels: Sequence[int]) -> list[int]:
        """Check the labels of a text."""
        if not self.multilabel and len(labels) != 1:
            raise RequestError("a text has exactly one label here.")
        return self._classes(labels)

    def _classes(self, numbers: Iterable[int]) -> list[int]:
        """Check that there are these classes."""
        kept = sorted(set(numbers))
        if any(not 0 <= each < len(self.labels.classes) for each in kept):
            raise RequestError("there is no such class.")
        return kept

    def _class_name(self, name: str) -> str:
        name = " ".join("".join(each if each.isprintable() else " " for each in name).split())
        if not name:
            raise RequestError("a class needs a name.")
        if len(name) > MAX_CLASS:
            raise RequestError(f"the name of a class has at most {MAX_CLASS} characters.")
        if self.multilabel and "|" in name:
            raise RequestError("with several labels per text, | separates them. Choose a name without it.")
        return name

    def suggested(self, text: int) -> tuple[list[int], float | None] | None:
        """Give the suggested labels of a text, if it has any; classes of these names are there."""
        found = self.store[text]
        if found.suggested is None:
            return None
        numbers = [self.labels.classes.index(name) for name in found.suggested if name in self.labels.classes]
        return (numbers, found.confidence) if numbers else None


@contextmanager
def open_project(options: LabelOptions, say: Callable[[str], None]) -> Iterator[Project]:
    """Open a project, or begin it; nobody else has it meanwhile."""
    with locked(options.out):
        store = _begun(options, say) if (options.out / PROJECT).exists() else _begin(options, say)
        described = _described(options.out)
        try:
            journal = Journal.open(options.out / JOURNAL)
        except OSError as error:
            store.close()
            raise UserError(f"{options.out} cannot be written: {error.strerror or error}.") from error
        try:
            project = Project(options.out, described, store, journal)
            _add_classes(project, options)
            yield project
        finally:
            journal.close()
            store.close()


def _begin(options: LabelOptions, say: Callable[[str], None]) -> TextStore:
    """Copy the texts, then say in project.json that there is a project."""
    out = options.out
    there = sorted(each.name for each in out.iterdir()) if out.is_dir() else []
    if any(name not in (TEXTS, f".{TEXTS}.partial") for name in there):
        raise UserError(f"{out} exists already and is not a labelling project. Choose another --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        reading = read_options(options, ReadOptions)
        labelled = _read_labelled(options, reading)
        multilabel = options.multilabel or (labelled is not None and labelled.multilabel)
        with progress("reading", unit="texts", quiet=options.quiet) as bar:
            found = copy_texts(
                options.texts,
                reading,
                out / TEXTS,
                labelled=labelled,
                suggested=options.suggested,
                confidence=options.confidence,
                advance=bar.advance,
            )
        say(describe_copied(found))
        store = TextStore(out / TEXTS)
        described = {
            "format": FORMAT,
            "texts": store.fingerprint(),
            "sources": [str(each) for each in options.texts],
            "multilabel": multilabel,
            "suggested": options.suggested,
            "seed": options.seed,
        }
        with atomic_file(out / PROJECT) as partial:
            write_json(partial, described)
        fsync(out)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}.") from error
    return store


def _read_labelled(options: LabelOptions, reading: ReadOptions) -> LabelledData | None:
    if options.labelled is None:
        return None
    data = read_examples(options.labelled, reading, check=False)
    if data.multilabel and not options.multilabel:
        raise UserError(
            f"{options.labelled[0]}: texts with several labels. Give --multilabel, or --single-label if | is part of a "
            "name."
        )
    return data


def _begun(options: LabelOptions, say: Callable[[str], None]) -> TextStore:
    """Open the texts of a project that exists; what was given then must be given now."""
    described = _described(options.out)
    for name, given in (("multilabel", options.multilabel), ("suggested", options.suggested), ("seed", options.seed)):
        if given != described[name]:
            raise UserError(
                f"{options.out} was begun with --{name} {described[name]}, not {given}. Give the same, or choose "
                "another --out."
            )
    if [str(each) for each in options.texts] != described["sources"]:
        raise UserError(
            f"{options.out} was begun with {', '.join(described['sources'])}. Give the same texts, or another --out."
        )
    store = TextStore(options.out / TEXTS)
    if store.fingerprint() != described["texts"]:
        raise DamagedError(f"{options.out / TEXTS}: not the texts of this project. Restore the file from a copy.")
    say(f"{options.out} goes on: {len(store) - len(store.extra):,} texts")
    return store


def _described(out: Path) -> dict[str, Any]:
    found = read_json(out / PROJECT)
    wanted = {"format": int, "texts": str, "sources": list, "multilabel": bool, "seed": int}
    if not isinstance(found, dict) or any(not isinstance(found.get(name), kind) for name, kind in wanted.items()):
        raise DamagedError(f"{out / PROJECT}: not the description of a labelling project. Restore it from a copy.")
    if found["format"] != FORMAT:
        raise UserError(f"{out / PROJECT}: format {found['format']} is of a newer version. Upgrade rehead.")
    found.setdefault("suggested", None)
    return found


def _add_classes(project: Project, options: LabelOptions) -> None:
    """Add the classes that are named on the command line, of labelled texts, and of suggestions."""
    names = [*(options.labels or ()), *sorted(project.store.suggested)]
    renamed = {event["name"] for event in project.journal.events if event["kind"] == "class"}
    for name in names:
        if name not in project.labels.classes and name not in renamed:
            project.add_class(name, "")
