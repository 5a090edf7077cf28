"""Sides of a comparison, timed in turn: what every benchmark of speed here goes by."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch


def best(sides: Mapping[str, Callable[[], object]], rounds: int, *, elsewhere: bool = False) -> dict[str, float]:
    """Seconds of each side: the best of several rounds, the sides taking turns.

    On one thread it is the time that the processor gave this process: what others do on the machine counts for less.
    On more, or where other processes do the work (`elsewhere`), it is the time on the wall.
    """
    times = {name: float("inf") for name in sides}
    clock = time.process_time if torch.get_num_threads() == 1 and not elsewhere else time.perf_counter
    for _ in range(rounds):
        for name, call in sides.items():
            start = clock()
            call()
            times[name] = min(times[name], clock() - start)
    return times
