"""What learns while somebody labels: a thread that refits the quick head after every label, and ranks what to ask.

The page never waits for it. A label wakes the thread; it fits, scores all texts, ranks them, and puts a new `Snapshot`
in the place of the old one. Labels that come meanwhile are in the next one. When no label is waiting, it estimates how
good the classifier is, and draws the learning curve.

Shapes: W texts, N labelled texts, K classes.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.label.blocks import Block, side_by_side
from rehead.label.choosing import START, Lists, contradiction, doubted, rank, varied
from rehead.label.estimate import (
    LEAST_CLASS,
    LEAST_RANDOM,
    MORE,
    PER_CLASS,
    PER_LABEL,
    design_effect,
    expected_shares,
    gain,
    macro_f1,
    points,
    wilson,
)
from rehead.label.head import Head, fit_head

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.label.project import Project
    from rehead.label.seeds import Seeds

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float32]

UNSURE = 0.7  # threshold of the page: below it, a text is left unsure
VARIED = 40  # texts in the first list
VARIED_OF = 4_000  # texts that they are chosen from: of 50,000 it would take a second after every label


@dataclass(frozen=True, eq=False)
class Pool:
    """The texts that are worked with, by their places."""

    ids: Ints
    "Numbers of the texts: (W,), ascending."
    place: dict[int, int]
    askable: NDArray[np.bool_]
    permutation: Ints
    "Places in the order in which random ones are asked; none until all texts are there."

    @classmethod
    def of(cls, project: Project) -> Pool:
        """Take the texts that a project has now."""
        ids = project.working
        askable = np.isin(ids, project.asked)
        drawn = np.flatnonzero(askable) if project.whole else np.zeros(0, np.int64)
        permutation = np.random.default_rng(project.seed + 1).permutation(drawn)
        return cls(ids, {int(number): place for place, number in enumerate(ids)}, askable, permutation)

    def first(self) -> list[int]:
        """Choose places to begin with, before anything was read."""
        order = self.permutation
        if not len(order):
            order = np.random.default_rng(0).permutation(np.flatnonzero(self.askable))
        return [int(place) for place in order[:VARIED]]


@dataclass(frozen=True)
class Snapshot:
    """What the head of some moment says about all texts."""

    version: int
    "Of the labels that it was fitted to."
    pool: Pool
    head: Head
    probabilities: Floats
    "(W, K)"
    texts: list[int]
    "Labelled texts, in the order of their labels: (N,)."
    doubt: dict[int, float]
    "How sure the others are that a label is wrong, by text."
    instead: dict[int, int]
    "The class that they would give instead, where a text has one label."
    lists: Lists
    blocks: list[Block]
    features: Floats
    seconds: float


@dataclass
class Labelled:
    """The labels at some moment, as arrays."""

    version: int
    classes: int
    texts: list[int]
    places: Ints
    truth: Floats
    random: list[int]
    "Rows of the random texts among them."
    free: NDArray[np.bool_]
    "Texts that nobody has dealt with."
    seeds: dict[int, list[str]]
    counts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


class Learner:
    """The thread, and what it knows."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.multilabel = project.multilabel
        self.pool = Pool.of(project)
        self.snapshot: Snapshot | None = None
        self.estimate: dict[str, Any] = {}
        self.failure = ""
        self._blocks: list[Block] = []
        self._features: Floats = np.zeros((len(self.pool.ids), 0), np.float32)
        self.seeds: Seeds | None = None
        self.first = self.pool.first()
        "Places to begin with, before there is a head."
        self._wake = threading.Event()
        self._ended = False
        self.busy = False
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End, after what is being computed."""
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def wake(self) -> None:
        """Tell that something has changed."""
        self._wake.set()

    def set_blocks(self, blocks: Sequence[Block]) -> None:
        """Compute with these features from now on."""
        self.use(self.pool, blocks, self.seeds)

    def use(self, pool: Pool, blocks: Sequence[Block], seeds: Seeds | None) -> None:
        """Work with these texts from now on, which were read as these blocks."""
        with self.project.lock:  # nobody takes places of the pool before for places of this one
            if pool is not self.pool:
                self.snapshot, self.pool, self.first = None, pool, pool.first()
            self._features = side_by_side(blocks) if blocks else np.zeros((len(pool.ids), 0), np.float32)
            self._blocks, self.seeds = list(blocks), seeds
        self.wake()

    @property
    def settled(self) -> bool:
        """Whether the last snapshot is that of the last label, and of all features."""
        snapshot = self.snapshot
        if self.busy or snapshot is None or len(snapshot.blocks) != len(self._blocks):
            return False
        return snapshot.version == self.project.labels.version

    @property
    def block_names(self) -> list[str]:
        """What is read of the texts."""
        return [each.name for each in self._blocks]

    def _run(self) -> None:
        while not self._ended:
            self._wake.wait()
            self._wake.clear()
            if self._ended or not self._blocks:
                continue
            self.busy = True
            try:
                snapshot, labelled = self._learn()
                with self.project.lock:
                    if snapshot.pool is not self.pool:
                        continue
                    self.snapshot, self.failure = snapshot, ""
                if not self._wake.is_set():
                    self._estimate(snapshot, labelled)
            except Exception as error:  # the page goes on asking, and says that it does not learn
                self.failure = f"{type(error).__name__}: {error}"
                traceback.print_exc()
            finally:
                self.busy = False

    def labelled(self) -> Labelled:
        """Read the labels of this moment."""
        with self.project.lock:
            labels = self.project.labels
            pool = self.pool
            given = [(text, each) for text, each in labels.labelled() if text in pool.place]
            version, classes = labels.version, len(labels.classes)
            texts = [text for text, _ in given]
            places = np.array([pool.place[text] for text in texts], np.int64)
            truth = np.zeros((len(texts), classes), np.float32)
            for row, (_, each) in enumerate(given):
                truth[row, list(each.labels)] = 1
            free = self.free(pool)
            rows = {text: row for row, text in enumerate(texts)}
            random = [rows[text] for text in self.random_texts() if text in rows]
            seeds = {number: list(words) for number, words in labels.seeds.items() if number < classes}
        return Labelled(version, classes, texts, places, truth, random, free, seeds, truth.sum(0).astype(np.int64))

    def free(self, pool: Pool) -> NDArray[np.bool_]:
        """Mark the texts that nobody has dealt with: (W,)."""
        free: NDArray[np.bool_] = pool.askable.copy()
        with self.project.lock:
            for text, state in self.project.labels.texts.items():
                if text in pool.place and (state.looked_at or state.label is not None):
                    free[pool.place[text]] = False
        return free

    def random_texts(self) -> list[int]:
        """List the random texts so far: the first of the permutation, as far as their labels are known."""
        found = []
        pool = self.pool
        for place in pool.permutation:
            state = self.project.labels.texts.get(text := int(pool.ids[place]))
            if state is None or not (state.looked_at or state.imported is not None):
                if self.project.leases.holds(text) is not None:  # it is on somebody's screen
                    continue
                break
            found.append(text)
        return found

    def _learn(self) -> tuple[Snapshot, Labelled]:
        """Fit, score and rank."""
        began = time.perf_counter()
        with self.project.lock:
            pool, features, blocks, seeds = self.pool, self._features, self._blocks, self.seeds
            labelled = self.labelled()
        prior = None
        if seeds is not None and labelled.seeds and labelled.classes:
            prior = seeds.scores(features[:, : seeds.width], labelled.seeds, labelled.classes)
        head = self._fit(features, labelled, len(labelled.texts), prior)
        shares = head.probabilities(features, prior)
        started = int((labelled.counts > 0).sum()) >= min(2, max(1, labelled.classes))
        if started and labelled.classes >= 2 - self.multilabel:
            lists = rank(features, shares, labelled.counts, labelled.free, multilabel=self.multilabel)
        else:
            lists = {}
        if not lists or len(labelled.texts) < START:
            lists |= self._first_lists(features, labelled, prior)
        doubt, instead = {}, {}
        if labelled.texts and labelled.classes:
            found = contradiction(head.out_of_fold, labelled.truth, self.multilabel)
            doubt = {text: float(each) for text, each in zip(labelled.texts, found, strict=True)}
            if not self.multilabel:
                instead = dict(zip(labelled.texts, head.out_of_fold.argmax(1).tolist(), strict=True))
            rows = doubted(head.out_of_fold, labelled.truth, self.multilabel)
            lists["doubted"] = [int(labelled.places[row]) for row in rows]
        seconds, texts = time.perf_counter() - began, labelled.texts
        snapshot = Snapshot(
            labelled.version, pool, head, shares, texts, doubt, instead, lists, blocks, features, seconds
        )
        return snapshot, labelled

    def _first_lists(self, features: Floats, labelled: Labelled, prior: Floats | None) -> Lists:
        """Choose the first texts: those that the seeds are surest of, class by class; without seeds, varied ones."""
        if prior is not None:
            top = [np.argsort(-np.where(labelled.free, prior[:, each], -np.inf))[:VARIED] for each in labelled.seeds]
            mixed = [int(place) for places in zip(*top, strict=True) for place in places if labelled.free[place]]
            return {"varied": list(dict.fromkeys(mixed))}
        asked, free = labelled.places[-VARIED:], np.flatnonzero(labelled.free)
        some = np.concatenate([asked, np.random.default_rng(self.project.seed).permutation(free)[:VARIED_OF]])
        found = some[varied(features[some], np.arange(len(asked)), VARIED)]
        return {"varied": found.tolist()}

    def _fit(self, features: Floats, labelled: Labelled, count: int, prior: Floats | None) -> Head:
        """Fit to the first labels."""
        places = labelled.places[:count]
        own = None if prior is None else prior[places]
        return fit_head(features[places], labelled.truth[:count], multilabel=self.multilabel, prior=own)

    def _estimate(self, snapshot: Snapshot, labelled: Labelled) -> None:
        """Say how good it is; stop as soon as a label is waiting."""
        shares, count = snapshot.probabilities, len(labelled.texts)
        found: dict[str, Any] = {"version": labelled.version, "random": len(labelled.random), "labels": count}
        found |= self._shares(snapshot.head, shares[snapshot.pool.askable])
        random, design = np.array(labelled.random, np.int64), 1.0
        if labelled.classes and count and len(random) >= LEAST_RANDOM:
            truth = labelled.truth[random]
            guess = snapshot.head.decide(snapshot.head.out_of_fold[random])
            right = (guess == truth).all(1)
            design = design_effect(snapshot.head, labelled.truth, random)
            found["accuracy"] = wilson(float(right.sum()), len(random), design).rounded()
            whole = snapshot.head.decide(shares[snapshot.pool.askable])
            several = self.multilabel
            expected = expected_shares(shares[snapshot.pool.askable], whole, multilabel=several)
            found["macro_f1"] = None
            found["macro_f1_needs"] = (PER_LABEL if several else PER_CLASS) * labelled.classes
            if len(random) >= found["macro_f1_needs"]:
                f1 = macro_f1(truth, guess, whole.mean(0), expected, multilabel=several, design=design)
                found["macro_f1"] = f1.rounded()
            found["scarce"] = [int(each) for each in np.flatnonzero(truth.sum(0) < LEAST_CLASS)]
        self.estimate = {**self.estimate, **found}
        if count < LEAST_RANDOM or not labelled.classes:
            return
        curve = self._curve(snapshot, labelled, random, design)
        if curve is not None:
            self.estimate = {**self.estimate, **curve}

    def _shares(self, head: Head, some: Floats) -> dict[str, Any]:
        """Count how many of all texts would get which label, and how many would be left unsure."""
        if not some.shape[1]:
            return {"shares": [], "unsure": len(some), "texts": len(some)}
        sure = np.maximum(some, 1 - some).min(1) if self.multilabel else some.max(1)
        return {
            "shares": head.decide(some).mean(0).round(4).tolist(),
            "unsure": int((sure < UNSURE).sum()),
            "texts": len(some),
        }

    def _curve(self, snapshot: Snapshot, labelled: Labelled, random: Ints, design: float) -> dict[str, Any] | None:
        """Fit to the first labels of several numbers; None if a label came meanwhile."""
        features, sizes = snapshot.features, points(len(labelled.texts))
        truth, curve = labelled.truth[random], []
        changed = more = None
        for size in sizes:
            if self._wake.is_set():
                return None
            head = snapshot.head if size == len(labelled.texts) else self._fit(features, labelled, size, None)
            if size == len(labelled.texts) - MORE:
                some = snapshot.pool.askable
                before = head.decide(head.probabilities(features))[some]
                now = snapshot.head.decide(snapshot.probabilities)[some]
                changed = float((before != now).any(1).mean())
                if not self.multilabel:
                    more = gain(snapshot.probabilities[some], now, before, len(labelled.texts))
            if len(random) >= LEAST_RANDOM:
                later = random >= size
                guess = np.zeros_like(truth)
                guess[~later] = head.decide(head.out_of_fold[random[~later]])
                if later.any():
                    guess[later] = head.decide(head.probabilities(features[labelled.places[random[later]]]))
                right = (guess == truth).all(1)
                curve.append({"labels": size, **wilson(float(right.sum()), len(random), design).rounded()})
        return {
            "curve": curve,
            "changed": changed,
            "gain": None if more is None else {"expected": round(more.expected, 4), "half": round(more.half, 4)},
        }
