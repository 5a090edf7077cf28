"""Progress of long jobs on stderr: a progress bar on a terminal, log lines on a pipe, nothing when quiet.

    with progress("encoding", total, unit="B", quiet=options.quiet) as bar:
        for chunk in chunks:
            bar.advance(len(chunk))

Stdout is for results. A pipe or a CI log gets a line after every tenth of the job or every 30 seconds, at most one in
two seconds, and one at the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from rehead.terminal import printable, raw_stream

if TYPE_CHECKING:
    import rich.progress

MIN_INTERVAL = 2.0  # seconds between two log lines
MAX_INTERVAL = 30.0  # seconds


class Progress:
    """A progress counter that prints nothing. `progress` chooses between it, `Lines` and `Bar`."""

    def __init__(self, what: str, total: int | None, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = self.before = 0
        self.note = ""
        "Shown after the counts, such as the current loss."
        self.clock = clock
        self.started = clock()

    def advance(self, amount: int = 1) -> None:
        """Add `amount` to what is done."""
        self.update(self.done + amount)

    def update(self, done: int) -> None:
        """Set how much is done in total."""
        self.done = done

    def resume(self, done: int) -> None:
        """Start at `done`, of an earlier run: it does not count for the rate and the remaining time."""
        self.done = self.before = done

    @property
    def rate(self) -> float:
        """Units per second."""
        seconds = self.clock() - self.started
        return (self.done - self.before) / seconds if seconds else 0.0

    def finish(self) -> None:
        """Report the end of the job; not called if it failed."""


class Lines(Progress):
    """Progress as log lines, for a pipe or a file."""

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
        """Start at `done`, of an earlier run, without a line for it."""
        super().resume(done)
        self.last_done = done

    def update(self, done: int) -> None:
        """Set how much is done in total, and write a line if one is due."""
        super().update(done)
        pause = self.clock() - self.last_time
        tenth = bool(self.total) and 10 * (done - self.last_done) >= (self.total or 0)
        if pause >= MAX_INTERVAL or (tenth and pause >= MIN_INTERVAL):
            self._write(self._state())

    def finish(self) -> None:
        """Write the total amount and time."""
        seconds = self.clock() - self.started
        note = f", {self.note}" if self.note else ""
        self._write(f"{amount(self.done - self.before, self.unit)} in {duration(seconds)}{note}")

    def _state(self) -> str:
        rate = self.rate
        fields = [amount(self.done, self.unit)]
        if self.total:
            fields = [f"{100 * self.done // self.total} %, {fields[0]} of {amount(self.total, self.unit)}"]
        if self.unit != "s" and rate >= 1:  # below one unit per second the remaining time says more
            fields.append(f"{amount(rate, self.unit)}/s")
        if self.total and rate:
            fields.append(f"{duration((self.total - self.done) / rate)} left")
        if self.note:
            fields.append(self.note)
        return ", ".join(fields)

    def _write(self, state: str) -> None:
        self.last_time, self.last_done = self.clock(), self.done
        self.stream.write(f"{self.what}: {state}\n")
        self.stream.flush()


class Bar(Progress):
    """Progress as a bar, for a terminal."""

    def __init__(self, what: str, total: int | None, unit: str, bar: rich.progress.Progress) -> None:
        super().__init__(what, total, unit)
        self.bar = bar
        self.task = bar.add_task(printable(what), total=total, counts="", rate="", note="")

    def update(self, done: int) -> None:
        """Set how much is done in total, and redraw the bar."""
        super().update(done)
        known = self.clock() - self.started > 1 and self.rate >= 1 and self.unit != "s"
        rate = f"{amount(self.rate, self.unit)}/s" if known else ""
        of = f" of {amount(self.total, self.unit)}" if self.total else ""
        counts = amount(done, self.unit) + of
        self.bar.update(self.task, completed=done, counts=counts, rate=rate, note=printable(self.note))

    def finish(self) -> None:
        """Fill the bar, even if the total was an estimate."""
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
    """Report the progress of a job of `total` units (None: unknown); the unit `B` is shown as kB, MB, GB."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        yield Progress(what, total, unit)
    elif stream.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}", markup=False),  # it may name a file
            BarColumn(),
            TextColumn("{task.fields[counts]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        # A bar consists of escape codes, so it goes to the terminal itself.
        # Results printed meanwhile must stay on stdout; by default rich would redirect them to stderr.
        with RichProgress(*columns, console=Console(file=raw_stream(stream)), redirect_stdout=False) as bar:
            shown = Bar(what, total, unit, bar)
            yield shown
            shown.finish()
    else:
        lines = Lines(what, total, unit, stream)
        yield lines
        lines.finish()


def amount(number: float, unit: str) -> str:
    """Format a number with its unit: `12.3 MB`, `1,200 steps`."""
    if unit != "B":
        return f"{number:,.0f} {unit}".rstrip()
    for prefix in ("", "k", "M", "G", "T"):
        if number < 1000 or prefix == "T":
            break
        number /= 1000
    return f"{number:.1f} {prefix}B" if prefix else f"{number:.0f} B"


def duration(seconds: float) -> str:
    """Format a time span with at most two units: `0.4 s`, `2 min 5 s`, `3 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    hours, part = divmod(minutes, 60)
    return f"{minutes} min {rest} s" if hours < 1 else f"{hours} h {part} min"
