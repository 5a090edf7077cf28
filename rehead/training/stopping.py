"""Graceful stops: after Ctrl-C or SIGTERM a run finishes its step and saves a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):  # noqa: N818 (not an error)
    """A signal stopped the run, which has saved a checkpoint."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"signal {signum}")
        self.signum = signum


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list that the caller polls after each step; a second one interrupts at once."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def receive(signum: int, frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(signum)

    before = {each: signal.signal(each, receive) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
