"""Dynamic batching: requests wait in a bounded queue, and one worker thread computes those that wait as one batch.

A request that finds the worker idle is computed at once. Requests that arrive while a batch is being computed form the
next one. Under steady load from several clients, a finished batch releases its clients, which send their next requests
a moment later; so the worker then waits a few milliseconds at most for as many requests as the last batch had.

A request is cancelled when it times out or its client disconnects: it is removed from the queue or, if it is being
computed already, its result is discarded. Long computations call `Job.raise_if_cancelled` regularly, and so stop early.

What a job costs (characters, or tokens that layers read) is known before it starts, and how fast a worker is from the
batches before. A job that could not be done in time, behind those that wait, is refused at once.

A server has two workers, one for labels and one for slow requests (explanations, attention, generated text), so that a
slow request never delays a label.
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

IDLE_SECONDS = 0.05  # without a request: after that, a worker expects no further clients


class QueueFullError(Exception):
    """The queue has no room for the request."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"try again in {retry_after} s")
        self.retry_after = retry_after
        "Seconds."


class TooMuchWorkError(Exception):
    """The request alone would take much longer than it may wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it would take about {seconds:.0f} s")
        self.seconds = seconds
        "That it would take, about."


class DeadlineExceededError(Exception):
    """The result took longer than the request may wait."""


class ClientDisconnectedError(Exception):
    """The client closed its connection before the result was ready."""


class JobCancelledError(Exception):
    """Raised inside the computation of a job that was cancelled."""


@dataclass(eq=False)
class Job:
    """One request in the queue, or being computed."""

    payload: Any
    texts: int
    "How many texts it counts for in the queue."
    cost: int
    "Characters, or tokens that are read: what the work grows with."
    future: asyncio.Future[Any]
    cancelled: bool = False
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def raise_if_cancelled(self) -> None:
        """Raise `JobCancelledError` if the job was cancelled."""
        if self.cancelled:
            raise JobCancelledError


Compute = Callable[[Sequence[Job]], Sequence[Any]]


class BatchWorker:
    """A bounded queue and the thread that computes what is in it, batch by batch."""

    def __init__(
        self,
        name: str,
        compute: Compute,
        *,
        capacity: int,
        batch_cost: int,
        rated_cost: int = 1,
        batch_wait: float = 0.0,
        on_batch: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """Start the thread.

        `compute` returns one result, or exception, per job. The queue holds `capacity` texts, a batch
        costs about `batch_cost`; one below `rated_cost` does not tell how fast the worker is. `batch_wait` is in
        seconds. `on_batch(jobs, texts)` is called after every batch.
        """
        self.name, self.compute, self.capacity = name, compute, capacity
        self.batch_cost, self.rated_cost, self.batch_wait = batch_cost, rated_cost, batch_wait
        self._on_batch = on_batch
        self._queue: deque[Job] = deque()
        self._queued_texts = self._queued_cost = 0
        self._running: list[Job] = []
        self._changed = threading.Condition()
        self._closing = False
        self._last_batch = 1  # requests in it
        self._rate = 0.0  # cost per second, as a moving average; 0 until it is known
        self._thread = threading.Thread(target=self._work, name=f"rehead-{name}", daemon=True)
        self._thread.start()

    # Called from the event loop.

    async def submit(
        self,
        payload: object,
        *,
        texts: int,
        cost: int,
        seconds: float,
        state: dict[str, Any],
    ) -> Any:  # noqa: ANN401
        """Wait for a result, at most this many seconds.

        Raises `QueueFullError`, `TooMuchWorkError`, `DeadlineExceededError`, `ClientDisconnectedError`, or what the
        computation raised. `state` is the request's ASGI state: while the request waits, its "job" is (worker, job), to
        be cancelled.
        """
        loop = asyncio.get_running_loop()
        job = Job(payload, texts, cost, loop.create_future())
        with self._changed:
            if self._closing or self._queued_texts + texts > self.capacity:
                raise QueueFullError(self._retry_after())
            self._check_time(cost, seconds)
            self._queue.append(job)
            self._queued_texts += texts
            self._queued_cost += cost
            self._changed.notify()
        job.timer = loop.call_later(seconds, self.cancel, job, DeadlineExceededError())
        state["job"] = (self, job)
        try:
            return await job.future
        finally:
            state.pop("job", None)
            job.timer.cancel()
            if not job.future.done() or job.future.cancelled():
                self.cancel(job, ClientDisconnectedError())

    def cancel(self, job: Job, reason: Exception) -> None:
        """Remove a job from the queue, or discard its result; its future raises the reason. Call in its event loop."""
        with self._changed:
            job.cancelled = True
            if job in self._queue:
                self._queue.remove(job)
                self._queued_texts -= job.texts
                self._queued_cost -= job.cost
        if not job.future.done():
            job.future.set_exception(reason)
            job.future.exception()  # marked as retrieved: a client that has disconnected never awaits it

    @property
    def queued_texts(self) -> int:
        """Texts that wait in the queue."""
        return self._queued_texts

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    @property
    def idle(self) -> bool:
        """Whether no result is waited for."""
        with self._changed:
            return not self._queue and all(job.cancelled for job in self._running)

    def close(self, seconds: float) -> None:
        """Accept no more jobs, finish those in the queue and end the thread; wait for it at most this many seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def rate(self, cost: int, seconds: float) -> None:
        """Learn how fast the worker is from work that was measured, unless there was too little of it."""
        if cost >= self.rated_cost:
            now = cost / max(seconds, 1e-6)
            self._rate = now if self._rate == 0 else 0.8 * self._rate + 0.2 * now

    def _check_time(self, cost: int, seconds: float) -> None:
        """Refuse a job that would not be done in time: what is ahead of it, and its own work, take too long.

        A job that finds the worker idle is refused only if it takes twice that: an estimate is no measurement.
        """
        if self._rate <= 0:
            return
        ahead = self._queued_cost + sum(job.cost for job in self._running if not job.cancelled)
        if cost / self._rate > 2 * seconds:
            raise TooMuchWorkError(cost / self._rate)
        if ahead and (ahead + cost) / self._rate > seconds:
            raise QueueFullError(self._retry_after())

    def _retry_after(self) -> int:
        """Estimate in how many seconds half of the queue will be done."""
        return 1 if self._rate <= 0 else max(1, min(60, math.ceil(self._queued_cost / 2 / self._rate)))

    # Run in the thread.

    def _work(self) -> None:
        while jobs := self._next_batch():
            began = time.perf_counter()
            results = self._results(jobs)
            if not any(job.cancelled for job in jobs):
                self.rate(sum(job.cost for job in jobs), time.perf_counter() - began)
            self._on_batch(len(jobs), sum(job.texts for job in jobs))
            self._deliver(jobs, results)

    def _next_batch(self) -> list[Job]:
        """Wait for jobs; take those to be computed together. Empty once the worker is closed."""
        with self._changed:
            self._running = []
            idle_since = time.monotonic()
            while True:
                while not self._queue and not self._closing:
                    self._changed.wait()
                began = time.monotonic()
                if began - idle_since > IDLE_SECONDS:
                    self._last_batch = 1
                self._wait_for_more(until=began + self.batch_wait)
                if batch := self._take_batch():
                    self._last_batch = len(batch)
                    self._running = batch
                if batch or self._closing:  # neither: all jobs were cancelled meanwhile
                    return batch

    def _wait_for_more(self, until: float) -> None:
        """Wait for as many jobs as the last batch had."""
        while len(self._queue) < self._last_batch and not self._closing and (left := until - time.monotonic()) > 0:
            self._changed.wait(left)

    def _take_batch(self) -> list[Job]:
        """Take from the front of the queue what fits into a batch; at least one job."""
        batch: list[Job] = []
        cost = 0
        while self._queue and (not batch or cost + self._queue[0].cost <= self.batch_cost):
            job = self._queue.popleft()
            self._queued_texts -= job.texts
            self._queued_cost -= job.cost
            cost += job.cost
            batch.append(job)
        return batch

    def _results(self, jobs: Sequence[Job]) -> Sequence[Any]:
        """Compute a batch; if that fails, compute each job alone, so that only the one that causes the error fails."""
        try:
            return self.compute(jobs)
        except Exception as error:
            if len(jobs) == 1:
                return [error]
            return [self._results([job])[0] for job in jobs]

    def _deliver(self, jobs: Sequence[Job], results: Sequence[Any]) -> None:
        pairs = list(zip(jobs, results, strict=True))
        try:
            jobs[0].future.get_loop().call_soon_threadsafe(_set_results, pairs)
        except RuntimeError:  # the event loop is closed: no request is left to answer
            return


def _set_results(pairs: Sequence[tuple[Job, Any]]) -> None:
    for job, result in pairs:
        if job.future.done():
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
