"""The directory of a project, and all that is done to it.

OUT/
  project.json      what it was begun with
  texts.jsonl       the texts
  journal.jsonl     everything that people decided
  features/         vectors of the texts, which are made again if they are missing
  base/             the base that is pretrained meanwhile
  labels.csv, labels.jsonl, classifier/, report.html    written by Finish

One process has it at a time (`rehead.locks`). Every change is in the journal, on disk, before it counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError, short_repr
from rehead.label.journal import Event, Journal
from rehead.label.labels import MAX_CLASS, Labels
from rehead.label.leases import Leases
from rehead.label.texts import TextStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.label.opening import Reading

TEXTS = "texts.jsonl"
MAX_NOTE = 2_000  # characters
MAX_CLASSES = 2_000


class RequestError(UserError):
    """What a page asked for cannot be done; the message is for whoever sees the page."""


class Project:
    """A project that is open."""

    def __init__(self, path: Path, described: dict[str, Any], store: TextStore, journal: Journal) -> None:
        self.path, self.journal = path, journal
        self.multilabel: bool = described["multilabel"]
        self.seed: int = described["seed"]
        self.first: int = described.get("first_texts", 0)
        "Texts that labelling could begin with while the others were read."
        self.suggested_by: str | None = described.get("suggested")
        self.lock = threading.RLock()
        self.labels = Labels(journal.events, store.given)
        self.reading: Reading | None = None
        "What reads the rest of the texts, if it was not there when the project was opened."
        self.use(store)
        self.leases = Leases()
        self.listeners: list[Callable[[], None]] = []
        "Called after every change."

    def use(self, store: TextStore) -> None:
        """Have these texts from now on. All that have a label, or may get one, are worked with."""
        with self.lock:
            self.store = store
            self.asked: NDArray[np.int64] = store.asked(self.seed)
            "Texts that can be asked; ascending."
            known = {*self.labels.texts, *range(self.first)}
            more = np.array([text for text in known if 0 <= text < len(store)], np.int64)
            self.working: NDArray[np.int64] = np.union1d(self.asked, more)

    @property
    def whole(self) -> bool:
        """Whether all texts are there."""
        return self.reading is None or self.reading.whole

    @property
    def count(self) -> int:
        """Texts to be labelled, as far as they are read."""
        if self.reading is not None and not self.reading.ended.is_set():
            return self.reading.found.texts
        return len(self.store) - len(self.store.extra)

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
        """Say which words stand for these classes; those of others stay."""
        with self.lock:
            self._classes(words)
            kept = {str(number): some for number, some in {**self.labels.seeds, **words}.items() if some}
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
