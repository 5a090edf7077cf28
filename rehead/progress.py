"""Show how far a long job is: a bar on a terminal, a plain line now and then on a pipe, nothing when quiet.

    with progress("encoding", total, unit="B", quiet=options.quiet) as bar:
        for part in parts:
            bar.advance(len(part))

Everything goes to stderr: stdout is for results. A pipe or a CI log gets a line when another tenth is done or half a
minute has passed, never two lines within two seconds, and one line at the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import rich.progress

SHORTEST_PAUSE = 2.0  # seconds between two plain lines, at least
LONGEST_PAUSE = 30.0  # seconds without a plain line, at most


class Progress:
    """How far a job is. This one is silent; `progress` chooses between it and those that speak."""

    def __init__(self, what: str, total: int | None, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = self.before = 0
        self.note = ""
        "What else there is to say of the job now, such as a loss."
        self.clock = clock
        self.started = clock()

    def advance(self, amount: int = 1) -> None:
        """Count `amount` more as done."""
        self.reach(self.done + amount)

    def reach(self, done: int) -> None:
        """Count `done` as done in all."""
        self.done = done

    def resume(self, done: int) -> None:
        """Count `done` as done before, by somebody else: rates and the time left are reckoned without it."""
        self.done = self.before = done

    @property
    def rate(self) -> float:
        """How much is done in a second."""
        seconds = self.clock() - self.started
        return (self.done - self.before) / seconds if seconds else 0.0

    def finish(self) -> None:
        """Say that the job has come to its end; not called when it failed."""


class Lines(Progress):
    """Progress as plain lines, for a pipe or a log."""

    def __init__(
        self,
        what: str,
        total: int | None,
        unit: str,
        stream: IO[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(what, total, unit, clock)
        self.stream = stream
        self.last_time, self.last_done = self.started, 0

    def resume(self, done: int) -> None:
        """Count what was done before; no line is due for it."""
        super().resume(done)
        self.last_done = done

    def reach(self, done: int) -> None:
        """Count, and write a line if one is due."""
        super().reach(done)
        pause = self.clock() - self.last_time
        tenth = bool(self.total) and 10 * (done - self.last_done) >= (self.total or 0)
        if pause >= LONGEST_PAUSE or (tenth and pause >= SHORTEST_PAUSE):
            self._write(self._state())

    def finish(self) -> None:
        """Write how much was done, in how long."""
        seconds = self.clock() - self.started
        note = f", {self.note}" if self.note else ""
        self._write(f"{amount(self.done - self.before, self.unit)} in {duration(seconds)}{note}")

    def _state(self) -> str:
        rate = self.rate
        words = [amount(self.done, self.unit)]
        if self.total:
            words = [f"{100 * self.done // self.total} %, {words[0]} of {amount(self.total, self.unit)}"]
        if self.unit != "s" and rate >= 1:  # of slow things the time left says more
            words.append(f"{amount(rate, self.unit)}/s")
        if self.total and rate:
            words.append(f"{duration((self.total - self.done) / rate)} left")
        if self.note:
            words.append(self.note)
        return ", ".join(words)

    def _write(self, state: str) -> None:
        self.last_time, self.last_done = self.clock(), self.done
        self.stream.write(f"{self.what}: {state}\n")
        self.stream.flush()


class Bar(Progress):
    """Progress as a bar, for a terminal."""

    def __init__(self, what: str, total: int | None, unit: str, bar: rich.progress.Progress) -> None:
        super().__init__(what, total, unit)
        self.bar = bar
        self.task = bar.add_task(what, total=total, counts="", rate="", note="")

    def reach(self, done: int) -> None:
        """Move the bar."""
        super().reach(done)
        known = self.clock() - self.started > 1 and self.rate >= 1 and self.unit != "s"
        rate = f"{amount(self.rate, self.unit)}/s" if known else ""
        of = f" of {amount(self.total, self.unit)}" if self.total else ""
        counts = amount(done, self.unit) + of
        self.bar.update(self.task, completed=done, counts=counts, rate=rate, note=self.note)

    def finish(self) -> None:
        """Fill the bar, also where the total was a guess."""
        self.bar.update(self.task, total=max(self.done, 1), completed=max(self.done, 1))


@contextmanager
def progress(
    what: str,
    total: int | None = None,
    *,
    unit: str = "",
    quiet: bool = False,
    stream: IO[str] | None = None,
) -> Iterator[Progress]:
    """Report on a job of `total` units (None: unknown); the unit `B` is written as kB, MB, GB."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        yield Progress(what, total, unit)
    elif stream.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[counts]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        # A result printed meanwhile must stay on stdout: rich would carry it over to stderr.
        with RichProgress(*columns, console=Console(file=stream), redirect_stdout=False) as bar:
            shown = Bar(what, total, unit, bar)
            yield shown
            shown.finish()
    else:
        lines = Lines(what, total, unit, stream)
        yield lines
        lines.finish()


def amount(number: float, unit: str) -> str:
    """Write a number with its unit: `12.3 MB`, `1,200 steps`."""
    if unit != "B":
        return f"{number:,.0f} {unit}".rstrip()
    for prefix in ("", "k", "M", "G", "T"):
        if number < 1000 or prefix == "T":
            break
        number /= 1000
    return f"{number:.1f} {prefix}B" if prefix else f"{number:.0f} B"


def duration(seconds: float) -> str:
    """Write a time span with two units at most: `0.4 s`, `2 min 5 s`, `3 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    hours, part = divmod(minutes, 60)
    return f"{minutes} min {rest} s" if hours < 1 else f"{hours} h {part} min"
