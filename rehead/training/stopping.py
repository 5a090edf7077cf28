"""Being told to stop: Ctrl-C and SIGTERM are heeded at the end of a step, where a checkpoint can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):  # noqa: N818 (not an error)
    """The run was told to stop, by this signal, and has saved a checkpoint."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"signal {signum}")
        self.signum = signum


@contextmanager
def told_to_stop() -> Iterator[list[int]]:
    """Collect the signals that ask us to stop: the first is heeded at the end of a step, a second one at once."""
    told: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield told
        return

    def heed(signum: int, frame: object) -> None:
        if told:
            raise KeyboardInterrupt
        told.append(signum)

    before = {each: signal.signal(each, heed) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
