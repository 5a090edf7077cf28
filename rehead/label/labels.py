"""What the journal says: classes, the label of every text, who gave it and how, conflicts, notes.

All of it is a fold over events, so opening a project and working in it are one code path. Labels refer to classes by
number, so renaming one changes nothing else. A person's later label of a text replaces an earlier one. If two people
disagree, both labels are kept, and the text has none until somebody decides.

    class     {"name"}                              rename    {"class", "name"}
    label     {"text", "labels", "how", …}          skip      {"text"}
    bulk      {"texts", "labels"}                   note      {"text", "note"}
    decide    {"text", "labels"}                    undo      {"of"}
    seeds     {"words": {class: [words]}}
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rehead.label.journal import Event

Numbers = tuple[int, ...]
MAX_CLASS = 100  # characters of a class name
UNDOABLE = ("label", "skip", "bulk", "note", "decide")


@dataclass(frozen=True)
class Given:
    """A label that somebody gave."""

    labels: Numbers
    by: str
    how: str
    "random, uncertain, rare, doubted, varied, search, class, review, bulk, or imported."
    seq: int
    "Number of the event; 0 for an imported label."
    at: str = ""
    suggested: Numbers | None = None
    "What a rule or a model had suggested."
    guess: Numbers | None = None
    "What the classifier guessed, if the page showed it."

    @property
    def by_person(self) -> bool:
        """Whether a person looked at this very text."""
        return self.how not in ("bulk", "imported")


@dataclass
class TextState:
    """Everything about one text."""

    events: list[Event] = field(default_factory=list)
    imported: Given | None = None
    given: dict[str, Given] = field(default_factory=dict)
    "The last label of each person."
    decided: Given | None = None
    skipped: bool = False
    note: str = ""

    def refold(self) -> None:
        """Compute the state from the events that stand."""
        self.given, self.decided, self.skipped, self.note = {}, None, False, ""
        for event in self.events:
            kind = event["kind"]
            if kind == "skip":
                self.skipped = True
            elif kind == "note":
                self.note = event["note"]
            else:
                found = given_by(event)
                self.skipped = False
                if kind == "decide":
                    self.decided = found
                    self.given[found.by] = found
                elif kind == "bulk":
                    self.given.setdefault("", found)  # as if by nobody: whoever looks at the text says more
                else:
                    self.given[found.by] = found
                    if self.decided is not None and self.decided.by == found.by:
                        self.decided = None if self._differ() else self.decided

    def _people(self) -> list[Given]:
        return [each for by, each in self.given.items() if by]

    def _differ(self) -> bool:
        return len({each.labels for each in self._people()}) > 1

    @property
    def conflict(self) -> bool:
        """Whether people disagree, and nobody has decided."""
        return self.decided is None and self._differ()

    @property
    def label(self) -> Given | None:
        """The label that counts; None if there is none, or people disagree."""
        if self.decided is not None:
            return self.decided
        people = self._people()
        if people:
            return None if self._differ() else max(people, key=lambda each: each.seq)
        return self.given.get("") or self.imported

    @property
    def looked_at(self) -> bool:
        """Whether a person has dealt with this very text."""
        return self.skipped or bool(self._people())


def given_by(event: Event) -> Given:
    """Read a label out of an event."""

    def numbers(name: str) -> Numbers | None:
        return tuple(event[name]) if event.get(name) is not None else None

    return Given(
        tuple(event["labels"]),
        event.get("by", ""),
        "bulk" if event["kind"] == "bulk" else event.get("how", "review"),
        event["seq"],
        event["at"],
        numbers("suggested"),
        numbers("guess"),
    )


class Labels:
    """The state of a project: a fold over the events of its journal."""

    def __init__(self, events: Iterable[Event] = (), imported: dict[int, tuple[str, ...]] | None = None) -> None:
        """`imported`: labels that were there before, by text."""
        self.classes: list[str] = []
        self.seeds: dict[int, list[str]] = {}
        self.texts: dict[int, TextState] = defaultdict(TextState)
        self._events: dict[int, Event] = {}
        self.undone: set[int] = set()
        self.counts: Counter[int] = Counter()
        "Texts by class, of the labels that count."
        self.version = 0
        "Grows with every change."
        for text, names in (imported or {}).items():
            labels = tuple(sorted(self.number(name) for name in names))
            self.texts[text].imported = Given(labels, "", "imported", 0)
            self.counts.update(labels)
        for event in events:
            self.apply(event)

    def number(self, name: str) -> int:
        """Number of a class, which is added if there is none of this name."""
        if name not in self.classes:
            self.classes.append(name)
        return self.classes.index(name)

    def apply(self, event: Event) -> None:
        """Take an event into account."""
        self.version += 1
        self._events[event["seq"]] = event
        kind = event["kind"]
        if kind == "class":
            self.number(event["name"])
        elif kind == "rename":
            self.classes[event["class"]] = event["name"]
        elif kind == "seeds":
            self.seeds = {int(number): list(words) for number, words in event["words"].items()}
        elif kind == "undo":
            undone = self._events.get(event["of"])
            self.undone.add(event["of"])
            for text in _texts_of(undone) if undone else ():
                self._change(text, remove=event["of"])
        else:
            for text in _texts_of(event):
                self._change(text, add=event)

    def _change(self, text: int, *, add: Event | None = None, remove: int | None = None) -> None:
        state = self.texts[text]
        if before := state.label:
            self.counts.subtract(before.labels)
        if add is not None:
            state.events.append(add)
        if remove is not None:
            state.events = [each for each in state.events if each["seq"] != remove]
        state.refold()
        if after := state.label:
            self.counts.update(after.labels)

    def last_undoable(self, by: str) -> Event | None:
        """Find the last event of a person that can be undone and still stands."""
        for seq in sorted(self._events, reverse=True):
            event = self._events[seq]
            if event.get("by") == by and event["kind"] in UNDOABLE and seq not in self.undone:
                return event
        return None

    def labelled(self) -> list[tuple[int, Given]]:
        """List the texts that have a label, in the order in which they got it; imported ones first."""
        found = [(text, label) for text, state in self.texts.items() if (label := state.label) is not None]
        return sorted(found, key=lambda each: (each[1].seq, each[0]))

    def conflicts(self) -> list[int]:
        """List the texts that people disagree about."""
        return [text for text, state in self.texts.items() if state.conflict]

    def names(self, labels: Iterable[int]) -> list[str]:
        """Name the classes of these numbers."""
        return [self.classes[each] for each in labels]

    def agreement(self) -> dict[str, Any]:
        """Count how often people agreed with suggestions: in all, and by the suggested class."""
        seen = [
            (given.suggested, given.labels)
            for state in self.texts.values()
            if (given := state.label) is not None and given.by_person and given.suggested is not None
        ]
        by_class: dict[str, list[int]] = {}
        for suggested, labels in seen:
            for each in suggested:
                both = by_class.setdefault(self.classes[each], [0, 0])
                both[0] += each in labels
                both[1] += 1
        return {"agreed": sum(one == other for one, other in seen), "of": len(seen), "by_class": by_class}


def _texts_of(event: Event) -> list[int]:
    """List the texts that an event is about."""
    if event["kind"] == "bulk":
        return list(event["texts"])
    return [event["text"]] if "text" in event else []
