"""Standard output as results need it: any terminal or pipe, any encoding, and readers that leave early; and input."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from rehead.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console


def prepare_streams() -> None:
    """Make standard output and error safe to print to: open, if only to nowhere, and never failing on a character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 (for good)
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def text_from_input() -> str:
    """Read a text from standard input, but for the line break at its end, which is none of the text."""
    try:
        return sys.stdin.read().rstrip("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not {error.encoding.upper()} (byte {error.start}). Convert it.") from None


def print_note(text: str) -> None:
    """Print a note to stderr, after all results that were printed before it."""
    sys.stdout.flush()
    print(f"note: {text}", file=sys.stderr)


def results_console(piped_width: int) -> Console:
    """Make a console for tables on standard output. A pipe has no width to fit, so it gets one."""
    from rich.console import Console

    class ResultsConsole(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1, which means "a check has found something"
            raise BrokenPipeError

    width = None if sys.stdout.isatty() else piped_width
    return ResultsConsole(width=width, highlight=False, markup=False, emoji=False)
