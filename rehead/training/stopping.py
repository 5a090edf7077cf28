"""Graceful stops: after Ctrl-C, SIGTERM or SIGHUP (a terminal that closes) a run saves a checkpoint after its step."""

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


def ending_signals() -> list[signal.Signals]:
    """List the signals that tell a process to end, but for those that it was started to ignore."""
    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP
    return [each for each in known if signal.getsignal(each) is not signal.SIG_IGN]


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect signals in a list that the caller polls after each step; a second one interrupts at once.

    SIGHUP stays ignored where it is (nohup).
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def receive(signum: int, frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(signum)

    before = {each: signal.signal(each, receive) for each in (signal.SIGINT, *ending_signals())}
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
