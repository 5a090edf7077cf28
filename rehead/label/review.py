"""Looking back: all labels in a table, and accepting many sure ones at once after looking at some of them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rehead.label.learner import Learner
from rehead.label.project import Project, RequestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Show = Literal["all", "doubted", "conflicts", "bulk", "imported", "notes", "skipped"]
PAGE = 50  # rows at once
SNIPPET = 400  # characters of a text in the table
LOOKED_AT = 20  # texts that are shown before many are accepted
BULK = 1_000  # texts that are accepted at once, at most
OFFERS = 20  # lists that were shown and can still be accepted


@dataclass
class Offer:
    """Texts that can be accepted, once those that were shown have been looked at."""

    label: int
    texts: list[int]
    shown: list[int]


class Review:
    """The table, and the offers of bulk labels."""

    def __init__(self, project: Project, learner: Learner) -> None:
        self.project, self.learner = project, learner
        self._offers: dict[str, Offer] = {}

    def rows(self, show: Show, label: int | None, query: str, offset: int) -> dict[str, Any]:
        """Give one page of the table: labels that the classifier contradicts first, then the newest."""
        labels, snapshot = self.project.labels, self.learner.snapshot
        doubt = {} if snapshot is None else snapshot.doubt
        with self.project.lock:
            kept = []
            for text, state in labels.texts.items():
                given = state.label
                wanted = {
                    "all": given is not None or state.conflict,
                    "doubted": given is not None and doubt.get(text, 0) > 0,
                    "conflicts": state.conflict,
                    "bulk": given is not None and given.how == "bulk",
                    "imported": given is not None and given.how == "imported",
                    "notes": bool(state.note),
                    "skipped": state.skipped,
                }[show]
                if not wanted or (label is not None and (given is None or label not in given.labels)):
                    continue
                kept.append((text, state))
            if query:
                needle = query.casefold()
                kept = [each for each in kept if needle in self.project.store[each[0]].text.casefold()]
            kept.sort(key=lambda each: (not each[1].conflict, -doubt.get(each[0], 0.0), -_newest(each[1])))
            instead = {} if snapshot is None else snapshot.instead
            rows = [
                {**self._row(text), "doubt": round(doubt.get(text, 0.0), 3), "instead": instead.get(text)}
                for text, _ in kept[offset : offset + PAGE]
            ]
        return {"rows": rows, "total": len(kept), "offset": offset}

    def _row(self, text: int) -> dict[str, Any]:
        found, state = self.project.store[text], self.project.labels.texts[text]
        given = state.label
        return {
            "text": text,
            "snippet": found.text[:SNIPPET],
            "cut": len(found.text) > SNIPPET,
            "source": found.source,
            "labels": None if given is None else list(given.labels),
            "by": "" if given is None else given.by,
            "how": "" if given is None else given.how,
            "at": "" if given is None else given.at,
            "people": [{"by": each.by, "labels": list(each.labels)} for by, each in state.given.items() if by],
            "conflict": state.conflict,
            "skipped": state.skipped,
            "note": state.note,
        }

    def offer(self, label: int, wanted: int) -> dict[str, Any]:
        """Choose the texts that the classifier is surest have a label, and a random twenty of them to look at."""
        snapshot, learner = self.learner.snapshot, self.learner
        if snapshot is None or label >= snapshot.probabilities.shape[1]:
            raise RequestError("there is no classifier yet. Label some texts of two classes first.")
        shares: NDArray[Any] = snapshot.probabilities
        free = learner.free(snapshot.pool)
        predicted = snapshot.head.decide(shares)[:, label] > 0
        places = np.flatnonzero(free & predicted)
        places = places[np.argsort(-shares[places, label], kind="stable")][: min(wanted, BULK)]
        texts = [int(snapshot.pool.ids[place]) for place in places]
        if not texts:
            raise RequestError("the classifier gives this label to no further text.")
        shown = np.random.default_rng().permutation(len(texts))[:LOOKED_AT].tolist()
        token = secrets.token_hex(8)
        self._offers[token] = Offer(label, texts, [texts[each] for each in shown])
        for old in list(self._offers)[:-OFFERS]:
            del self._offers[old]
        some = [
            {"text": texts[each], "snippet": self.project.store[texts[each]].text[:SNIPPET],
             "share": round(float(shares[places[each], label]), 4)}
            for each in shown
        ]  # fmt: skip
        return {"offer": token, "count": len(texts), "shown": some, "least": round(float(shares[places[-1], label]), 4)}

    def accept(self, token: str, wrong: list[int], by: str) -> int:
        """Accept an offer, but for the texts that were found wrong; give how many got the label."""
        offer = self._offers.pop(token, None)
        if offer is None:
            raise RequestError("these texts are not offered any more. Ask for them again.")
        kept = [text for text in offer.texts if text not in wrong]
        event = self.project.bulk(kept, offer.label, by, [text for text in offer.shown if text not in wrong])
        return len(event["texts"])


def _newest(state: Any) -> int:  # noqa: ANN401 (a TextState)
    return max((event["seq"] for event in state.events), default=0)
