"""A lane: requests wait in a queue, one thread computes them, and those that wait together are computed together.

An asker alone is served at once. While one batch is computed others gather, and they are the next one. Where several
ask all the time, a batch that is just done sends its askers off, who come back with their next texts a moment later: so
the thread then waits for company, a few milliseconds at most, before it begins the next.

What nobody waits for any more is not computed: a request that has timed out, or whose client has left, is taken out of
the queue; of one that is being computed already the answer is thrown away. Whoever computes for long looks up from
time to time (`Job.look`), and so stops.

A server has two lanes, one for labels and one for what takes long (explanations, attention, generated text), so that
nobody who wants a label waits for a story.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 0.05  # seconds without a request after which a lane counts as idle


class FullError(Exception):
    """There is no room to wait in."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"try again in {seconds} s")
        self.seconds = seconds
        "When to ask again."


class LateError(Exception):
    """The answer took too long."""


class GoneError(Exception):
    """Whoever asked has left."""


class DroppedError(Exception):
    """Raised by a computation that has noticed that nobody waits for it."""


@dataclass(eq=False)
class Job:
    """One request: what is to be computed, and who waits for it."""

    what: Any
    texts: int
    "How many texts it counts for in the queue."
    characters: int
    future: asyncio.Future[Any]
    dropped: bool = False
    "Nobody waits for it any more."
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def look(self) -> None:
        """Raise `DroppedError` if nobody waits for it any more."""
        if self.dropped:
            raise DroppedError


Compute = Callable[[Sequence[Job]], Sequence[Any]]


class Lane:
    """A queue and the thread that works it off."""

    def __init__(
        self,
        name: str,
        compute: Compute,
        *,
        room: int,
        characters: int,
        wait: float = 0.0,
        batch: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """`compute` gives a result, or an exception, for each job; `batch(jobs, texts)` hears of every batch."""
        self.name, self.compute, self.room, self.characters, self.wait = name, compute, room, characters, wait
        self._batch = batch
        self._waiting: deque[Job] = deque()
        self._texts = 0  # in the queue
        self._busy: list[Job] = []
        self._changed = threading.Condition()
        self._ending = False
        self._together = 1  # requests in the last batch
        self._rate = 0.0  # texts per second, lately
        self._thread = threading.Thread(target=self._work, name=f"rehead-{name}", daemon=True)
        self._thread.start()

    # What the event loop calls.

    async def ask(self, what: object, *, texts: int, characters: int, seconds: float, claim: dict[str, Any]) -> Any:  # noqa: ANN401
        """Wait for a result. Raises `FullError`, `LateError`, `GoneError`, or what the computation raised.

        `claim` is the request's own dictionary: its "job" is there to be dropped (`drop`) as long as it is waited for.
        """
        loop = asyncio.get_running_loop()
        job = Job(what, texts, characters, loop.create_future())
        with self._changed:
            if self._ending or self._texts + texts > self.room:
                raise FullError(self._until_room())
            self._waiting.append(job)
            self._texts += texts
            self._changed.notify()
        job.timer = loop.call_later(seconds, self.drop, job, LateError())
        claim["job"] = (self, job)
        try:
            return await job.future
        finally:
            claim.pop("job", None)
            job.timer.cancel()
            if not job.future.done() or job.future.cancelled():
                self.drop(job, GoneError())

    def drop(self, job: Job, why: Exception) -> None:
        """Let go of a job: it is not computed, if it still waits, and its asker is told why. Called in its loop."""
        with self._changed:
            job.dropped = True
            if job in self._waiting:
                self._waiting.remove(job)
                self._texts -= job.texts
        if not job.future.done():
            job.future.set_exception(why)
            job.future.exception()  # an asker who is gone never looks

    @property
    def waiting(self) -> int:
        """How many texts wait."""
        return self._texts

    @property
    def alive(self) -> bool:
        """Whether the thread is there to work."""
        return self._thread.is_alive()

    @property
    def empty(self) -> bool:
        """Whether nobody waits for anything."""
        with self._changed:
            return not self._waiting and all(job.dropped for job in self._busy)

    def end(self, seconds: float) -> None:
        """Take nothing more, finish what is there, end the thread; do not wait longer than this."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(seconds)

    def _until_room(self) -> int:
        """Estimate in how many seconds half of what waits will be done."""
        return 1 if self._rate <= 0 else max(1, min(60, math.ceil(self._texts / 2 / self._rate)))

    # What the thread does.

    def _work(self) -> None:
        while jobs := self._next():
            began = time.perf_counter()
            results = self._results(jobs)
            texts, spent = sum(job.texts for job in jobs), max(time.perf_counter() - began, 1e-6)
            self._rate = texts / spent if self._rate == 0 else 0.8 * self._rate + 0.2 * texts / spent
            self._batch(len(jobs), texts)
            self._hand_out(jobs, results)

    def _next(self) -> list[Job]:
        """Wait for work; take what is to be computed together. Nothing: the lane has ended."""
        with self._changed:
            self._busy = []
            idle_since = time.monotonic()
            while True:
                while not self._waiting and not self._ending:
                    self._changed.wait()
                began = time.monotonic()
                if began - idle_since > PATIENCE:
                    self._together = 1
                self._wait_for_company(until=began + self.wait)
                if taken := self._take():
                    self._together = len(taken)
                    self._busy = taken
                if taken or self._ending:  # or all of them left meanwhile
                    return taken

    def _wait_for_company(self, until: float) -> None:
        while len(self._waiting) < self._together and not self._ending and (left := until - time.monotonic()) > 0:
            self._changed.wait(left)

    def _take(self) -> list[Job]:
        """Take from the front of the queue what fits into a batch; one job at least."""
        taken: list[Job] = []
        characters = 0
        while self._waiting and (not taken or characters + self._waiting[0].characters <= self.characters):
            job = self._waiting.popleft()
            self._texts -= job.texts
            characters += job.characters
            taken.append(job)
        return taken

    def _results(self, jobs: Sequence[Job]) -> Sequence[Any]:
        """Compute a batch; if it fails, each job on its own, so that only the one that is to blame fails."""
        try:
            return self.compute(jobs)
        except Exception as error:
            if len(jobs) == 1:
                return [error]
            return [self._results([job])[0] for job in jobs]

    def _hand_out(self, jobs: Sequence[Job], results: Sequence[Any]) -> None:
        given = list(zip(jobs, results, strict=True))
        try:
            jobs[0].future.get_loop().call_soon_threadsafe(_give, given)
        except RuntimeError:  # the loop has been closed: nobody is left to be told
            return


def _give(given: Sequence[tuple[Job, Any]]) -> None:
    for job, result in given:
        if job.future.done():
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
