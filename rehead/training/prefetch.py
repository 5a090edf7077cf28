"""Prefetching: a thread prepares the next step's batch while this one is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def prefetch(read: Callable[[int], T], step: int) -> Iterator[Iterator[T]]:
    """Yield `read(step)`, `read(step + 1)` and so on, each computed in a thread while the one before is used."""
    with ThreadPoolExecutor(1, "batches") as thread:
        waiting: list[Future[T]] = [thread.submit(read, step)]

        def batches() -> Iterator[T]:
            following = step
            while True:
                following += 1
                waiting.append(thread.submit(read, following))
                yield waiting.pop(0).result()

        try:
            yield batches()
        finally:
            thread.shutdown(wait=True, cancel_futures=True)
