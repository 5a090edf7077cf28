"""Standard streams: output that works with any terminal, pipe or encoding; a console for tables; text from stdin."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from rehead.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console


def prepare_streams() -> None:
    """Make stdout and stderr safe to print to: a closed one goes to the null device, and no character raises."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 (never closed)
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def read_stdin() -> str:
    """Read a text from standard input, without the trailing line breaks."""
    try:
        return sys.stdin.read().rstrip("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not {error.encoding.upper()} (byte {error.start}). Convert it.") from None


def print_note(text: str) -> None:
    """Print a note to stderr, after all results that were printed before it."""
    sys.stdout.flush()
    print(f"note: {text}", file=sys.stderr)


def results_console(piped_width: int) -> Console:
    """Create a console for tables on standard output; on a pipe, which has no width, use `piped_width`."""
    from rich.console import Console

    class ResultsConsole(Console):
        def on_broken_pipe(self) -> None:  # rich exits with 1, which here means that a check found something
            raise BrokenPipeError

    width = None if sys.stdout.isatty() else piped_width
    return ResultsConsole(width=width, highlight=False, markup=False, emoji=False)
