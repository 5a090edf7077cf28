"""Which text a page gets next: by the mixture, or as its reader wishes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rehead.label.choosing import INSTEAD, START, Kind, best, turn
from rehead.label.learner import Learner
from rehead.label.project import Project, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

Want = Literal["mixture", "random", "class", "search"]
FOUND = 200  # hits that are kept of a search


class Asking:
    """Gives texts to pages, each to one page at a time."""

    def __init__(self, project: Project, learner: Learner) -> None:
        self.project, self.learner = project, learner
        self._turn = len(project.journal.events)
        self._searches: dict[tuple[int, str], list[int]] = {}
        "Hits by the number of texts that were there, and the words."

    def next(self, page: str, by: str, want: Want, number: int | None, query: str, besides: set[int]) -> Any:  # noqa: ANN401
        """Choose a text for a page and lease it: (text, why); None if there is none left."""
        with self.project.lock:
            for text, why in self._candidates(page, by, want, number, query):
                if text not in besides and self.project.leases.give(text, page):
                    if want == "mixture":
                        self._turn += 1
                    return text, why
        return None

    def _candidates(self, page: str, by: str, want: Want, number: int | None, query: str) -> Iterator[tuple[int, str]]:
        if want == "search":
            yield from ((text, "search") for text in self._search(query) if self._open(text))
        elif want == "class":
            yield from ((text, "class") for text in self._of_class(number) if self._open(text))
        elif want == "random":
            if not self.project.whole:
                raise RequestError("texts can be drawn at random once all of them are read.")
            yield from self._of_kind("random")
        else:
            seeded = bool(self.project.labels.seeds)
            kind = turn(self._turn, started=self._started(), multilabel=self.project.multilabel, seeded=seeded)
            for each in (kind, *INSTEAD[kind]):
                yield from self._of_kind(each)

    def _started(self) -> bool:
        snapshot = self.learner.snapshot
        return snapshot is not None and "uncertain" in snapshot.lists and len(snapshot.texts) >= START

    def _open(self, text: int) -> bool:
        """Whether nobody has dealt with a text."""
        state = self.project.labels.texts.get(text)
        return state is None or not (state.looked_at or state.label is not None)

    def _of_kind(self, kind: Kind) -> Iterator[tuple[int, str]]:
        learner, labels, ids = self.learner, self.project.labels, self.learner.pool.ids
        if kind == "random":
            for place in learner.pool.permutation:
                text = int(ids[place])
                state = labels.texts.get(text)
                if state is None or not (state.looked_at or state.imported is not None):
                    yield text, kind  # also one with a bulk label, at which nobody has looked
            return
        snapshot = learner.snapshot
        places = learner.first if snapshot is None and kind == "varied" else []
        if snapshot is not None:
            places = snapshot.lists.get(kind, [])
        for place in list(places):
            text = int(ids[place])
            if kind == "doubted":
                if self._to_doubt(text):
                    yield text, kind
            elif self._open(text):
                yield text, kind

    def _to_doubt(self, text: int) -> bool:
        """Whether a doubted label was not asked for again yet."""
        state = self.project.labels.texts.get(text)
        if state is None or state.conflict or state.label is None:
            return False
        asked = any(event.get("how") == "doubted" for event in state.events if event["kind"] == "label")
        return not asked and state.decided is None

    def _of_class(self, number: int | None) -> list[int]:
        """List the texts that a class is most probable for."""
        snapshot = self.learner.snapshot
        if snapshot is None or number is None or not 0 <= number < snapshot.probabilities.shape[1]:
            raise RequestError("nothing is known about this class yet. Label a text of it first, or give words for it.")
        pool = snapshot.pool
        places = best(np.where(pool.askable, snapshot.probabilities[:, number], -1), 500)
        return [int(pool.ids[place]) for place in places]

    def _search(self, query: str) -> list[int]:
        """Find texts with all words of a query, in the order of the file."""
        words = [word for word in query.casefold().split() if word]
        if not words:
            raise RequestError("give a word to search for.")
        pool = self.learner.pool
        key = (len(pool.ids), " ".join(words))
        if key not in self._searches:
            found: list[int] = []
            pattern = re.compile(re.escape(max(words, key=len)))
            ids = pool.ids[pool.askable]
            for text, content in zip(ids, self.project.store.texts(ids), strict=True):
                folded = content.casefold()
                if pattern.search(folded) and all(word in folded for word in words):
                    found.append(int(text))
                    if len(found) == FOUND:
                        break
            self._searches = {key: found}
        return self._searches[key]
