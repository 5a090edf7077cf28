"""What the labelling server answers: requests of the page in, JSON out. HTTP is in `app.py`.

What touches the disk or computes for longer runs in threads of its own, so that the event loop stays free.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.exceptions import HTTPException

import rehead
from rehead.errors import UserError
from rehead.label import requests as asked
from rehead.label.asking import Asking
from rehead.label.finishing import Finishing
from rehead.label.journal import JournalError
from rehead.label.learner import UNSURE, Learner
from rehead.label.options import LabelOptions
from rehead.label.preparing import Preparing
from rehead.label.project import Project
from rehead.label.review import Review
from rehead.label.seeds import clusters
from rehead.use.serve.metrics import Metrics
from rehead.use.serve.requests import parse_request

if TYPE_CHECKING:
    from pydantic import BaseModel

    from rehead.use.serve.guard import Endpoint

T = TypeVar("T")
TOP = 5  # classes of a guess that are sent
KEPT = 500  # explanations that are kept


class LabelService:
    """A project, what learns from it, and the routes of the page."""

    def __init__(self, project: Project, options: LabelOptions) -> None:
        self.project, self.blind = project, options.blind
        self.metrics = Metrics()
        self.learner = Learner(project)
        self.preparing = Preparing(project, self.learner, options.base)
        self.finishing = Finishing(project, self.learner, self.preparing)
        self.asking = Asking(project, self.learner)
        self.review = Review(project, self.learner)
        self._working = 0
        self._clusters: tuple[list[str], list[dict[str, object]]] = ([], [])
        "Of which texts, and the groups."
        self._words: OrderedDict[tuple[int, int, int], list[tuple[int, int, float]]] = OrderedDict()
        project.listeners.append(self.learner.wake)

    def start(self) -> None:
        """Begin to learn and to prepare."""
        self.learner.start()
        self.preparing.start()

    @property
    def idle(self) -> bool:
        """Whether no answer is being computed."""
        return not self._working

    def close(self, seconds: float) -> None:
        """End all that runs in the background."""
        self.finishing.stop()
        self.preparing.stop(max(seconds, 10.0))
        self.learner.stop()

    def endpoints(self) -> dict[str, Endpoint]:
        """The routes, by path."""
        routes: dict[str, tuple[type[BaseModel], Callable[[Any], dict[str, Any]]]] = {
            "/state": (asked.State, self.state),
            "/next": (asked.Next, self.next),
            "/label": (asked.LabelText, self.label),
            "/skip": (asked.OneText, self.skip),
            "/undo": (asked.State, self.undo),
            "/note": (asked.Note, self.note),
            "/decide": (asked.Decide, self.decide),
            "/words": (asked.Explained, self.words),
            "/text": (asked.OneText, self.text),
            "/class": (asked.AddClass, self.add_class),
            "/rename": (asked.RenameClass, self.rename_class),
            "/seeds": (asked.SetSeeds, self.set_seeds),
            "/clusters": (asked.State, self.find_clusters),
            "/review": (asked.Rows, self.rows),
            "/offer": (asked.Offer, self.offer),
            "/accept": (asked.Accept, self.accept),
            "/finish": (asked.State, self.finish),
        }
        return {path: self._endpoint(model, compute) for path, (model, compute) in routes.items()}

    def _endpoint(self, model: type[BaseModel], compute: Callable[[Any], dict[str, Any]]) -> Endpoint:
        async def answer(body: bytes, state: dict[str, Any]) -> dict[str, Any]:
            request = parse_request(model, body)
            self._working += 1
            try:
                return await asyncio.to_thread(functools.partial(_refusing, compute, request))
            finally:
                self._working -= 1

        return answer

    # Routes.

    def state(self, request: asked.State) -> dict[str, Any]:
        """Describe the project and how good it is."""
        project, learner = self.project, self.learner
        with project.lock:
            labels = project.labels
            held = request.holding or []
            if request.holding is not None:
                project.leases.keep(request.page, held)
            last = labels.last_undoable(request.by)
            found = {
                "name": project.path.absolute().name,
                "version": rehead.__version__,
                "multilabel": project.multilabel,
                "blind": self.blind,
                "classes": [
                    {"name": name, "count": labels.counts[number], "seeds": labels.seeds.get(number, [])}
                    for number, name in enumerate(labels.classes)
                ],
                "labelled": sum(state.label is not None for state in labels.texts.values()),
                "mine": sum(request.by in state.given for state in labels.texts.values()),
                "skipped": sum(state.skipped for state in labels.texts.values()),
                "conflicts": len(labels.conflicts()),
                "texts": project.count,
                "whole": project.whole,
                "working": int(learner.pool.askable.sum()),
                "people": len({by for state in labels.texts.values() for by in state.given if by}),
                "agreement": labels.agreement(),
                "undo": None if last is None else last["kind"],
                "revision": labels.version,
                "lost": [text for text in held if project.leases.holds(text) != request.page],
            }
        snapshot = learner.snapshot
        return {
            **found,
            "estimate": learner.estimate,
            "threshold": UNSURE,
            "cut": 0.5 if snapshot is None else snapshot.head.threshold,
            "learnt": None
            if snapshot is None
            else {"revision": snapshot.version, "seconds": round(snapshot.seconds, 3)},
            "reads": learner.block_names,
            "failure": learner.failure,
            "preparing": self.preparing.describe(),
            "finish": self.finishing.describe(),
        }

    def next(self, request: asked.Next) -> dict[str, Any]:
        """Give texts to a page, which keeps those that it is holding."""
        with self.project.lock:
            self.project.leases.keep(request.page, request.holding)
        found: list[dict[str, Any]] = []
        besides = set(request.holding)
        for _ in range(request.count):
            each = self.asking.next(
                request.page, request.by, request.want, request.number, request.query.strip(), besides
            )
            if each is None:
                break
            besides.add(each[0])
            found.append(self._shown(*each))
        return {"texts": found}

    def label(self, request: asked.LabelText) -> dict[str, Any]:
        """Give a text its labels."""
        suggestion = self.project.suggested(request.text) if request.text < len(self.project.store) else None
        event = self.project.label(
            request.text,
            request.labels,
            request.by,
            request.how,
            guess=request.guess,
            suggested=None if suggestion is None else suggestion[0],
        )
        return {"saved": event["seq"], **self._counts()}

    def skip(self, request: asked.OneText) -> dict[str, Any]:
        """Leave a text without a label."""
        return {"saved": self.project.skip(request.text, request.by)["seq"], **self._counts()}

    def undo(self, request: asked.FromPage) -> dict[str, Any]:
        """Take back the last thing; give the text that it was about."""
        event = self.project.undo(request.by)
        texts = event["texts"] if event["kind"] == "bulk" else [event["text"]]
        with self.project.lock:
            if event["kind"] != "bulk":
                self.project.leases.give(texts[0], request.page)
        shown = None if event["kind"] == "bulk" else self._shown(texts[0], event.get("how", "review"))
        return {"undone": event["kind"], "texts": len(texts), "shown": shown, **self._counts()}

    def note(self, request: asked.Note) -> dict[str, Any]:
        """Write a note."""
        return {"saved": self.project.note(request.text, request.note, request.by)["seq"]}

    def decide(self, request: asked.Decide) -> dict[str, Any]:
        """Decide a conflict."""
        return {"saved": self.project.decide(request.text, request.labels, request.by)["seq"], **self._counts()}

    def text(self, request: asked.OneText) -> dict[str, Any]:
        """Show any text again."""
        self.project.check_text(request.text)
        return {"shown": self._shown(request.text, "review")}

    def words(self, request: asked.Explained) -> dict[str, Any]:
        """Give the words that carried a guess, or that speak for a class."""
        snapshot = self.learner.snapshot
        if self.blind or snapshot is None or request.text not in snapshot.pool.place:
            return {"label": None, "words": []}
        shares = snapshot.probabilities[snapshot.pool.place[request.text]]
        if not len(shares):
            return {"label": None, "words": []}
        label = int(shares.argmax()) if request.label is None else request.label
        if label >= len(shares):
            return {"label": None, "words": []}
        key = (snapshot.version, request.text, label)
        if key not in self._words:
            from rehead.label.explaining import word_weights

            self._words[key] = word_weights(
                snapshot.head, snapshot.blocks, self.project.store[request.text].text, label
            )
            while len(self._words) > KEPT:
                self._words.popitem(last=False)
        return {"label": label, "words": [list(each) for each in self._words[key]]}

    def add_class(self, request: asked.AddClass) -> dict[str, Any]:
        """Add a class."""
        return {"number": self.project.add_class(request.name, request.by), **self._counts()}

    def rename_class(self, request: asked.RenameClass) -> dict[str, Any]:
        """Rename a class."""
        self.project.rename_class(request.number, request.name, request.by)
        return self._counts()

    def set_seeds(self, request: asked.SetSeeds) -> dict[str, Any]:
        """Take the words that stand for classes; give further ones."""
        try:
            words = {int(number): [each for each in some if each.strip()] for number, some in request.words.items()}
        except ValueError:
            raise UserError("words are given by the numbers of classes.") from None
        with self.project.lock:
            self.project.set_seeds(words, request.by)
            given = dict(self.project.labels.seeds)
        seeds = self.learner.seeds
        if seeds is None:
            return {"further": {}, "ready": False}
        return {"further": {str(each): some for each, some in seeds.further(given).items()}, "ready": True}

    def find_clusters(self, request: asked.FromPage) -> dict[str, Any]:
        """Group a sample of the texts."""
        preparing = self.preparing
        if preparing.sample_vectors is None or not len(preparing.sample):
            return {"clusters": [], "ready": False}
        sample = preparing.sample
        if self._clusters[0] is not sample:
            self._clusters = sample, clusters(preparing.sample_vectors, sample, self.project.seed)
        return {"clusters": self._clusters[1], "ready": True}

    def rows(self, request: asked.Rows) -> dict[str, Any]:
        """Give a page of the table."""
        return self.review.rows(request.show, request.label, request.query.strip(), request.offset)

    def offer(self, request: asked.Offer) -> dict[str, Any]:
        """Offer the surest texts of a class."""
        return self.review.offer(request.label, request.count)

    def accept(self, request: asked.Accept) -> dict[str, Any]:
        """Accept them."""
        return {"accepted": self.review.accept(request.offer, request.wrong, request.by), **self._counts()}

    def finish(self, request: asked.FromPage) -> dict[str, Any]:
        """Write the labels, and train the classifier."""
        self.finishing.start()
        return {"finish": self.finishing.describe()}

    def _counts(self) -> dict[str, Any]:
        with self.project.lock:
            labels = self.project.labels
            return {
                "classes": [
                    {"name": name, "count": labels.counts[number], "seeds": labels.seeds.get(number, [])}
                    for number, name in enumerate(labels.classes)
                ],
                "labelled": sum(state.label is not None for state in labels.texts.values()),
                "revision": labels.version,
            }

    def _shown(self, text: int, why: str) -> dict[str, Any]:
        """Describe a text for the page."""
        found = self.project.store[text]
        with self.project.lock:
            state = self.project.labels.texts.get(text)
            mine = None if state is None or state.label is None else list(state.label.labels)
            note = "" if state is None else state.note
        suggestion = None
        if not self.blind and (known := self.project.suggested(text)) is not None:
            suggestion = {"labels": known[0], "confidence": known[1], "by": self.project.suggested_by}
        return {
            "text": text,
            "content": found.text,
            "source": found.source,
            "why": why,
            "labels": mine,
            "note": note,
            "guess": self._guess(text),
            "suggestion": suggestion,
        }

    def _guess(self, text: int) -> list[list[float]] | None:
        """Give the most probable classes of a text, each with its probability."""
        snapshot = self.learner.snapshot
        if self.blind or snapshot is None or not snapshot.texts or text not in snapshot.pool.place:
            return None
        shares = snapshot.probabilities[snapshot.pool.place[text]]
        return [[int(each), round(float(shares[each]), 4)] for each in (-shares).argsort()[:TOP]]


def _refusing(compute: Callable[[Any], T], request: Any) -> T:  # noqa: ANN401 (a request)
    """Compute an answer; what the page got wrong is 422, what could not be saved 507."""
    try:
        return compute(request)
    except JournalError as error:
        raise HTTPException(507, str(error)) from None
    except UserError as error:
        raise HTTPException(422, str(error)) from None
