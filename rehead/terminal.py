"""Standard streams: output that works with any terminal, pipe or encoding; a console for tables; text from stdin.

What comes out of files (labels, texts, names) may hold escape codes, which a terminal would obey: it could clear the
screen, change its title, or show other text than there is. So on a terminal, control characters are replaced in all
that is printed; only rich, for colours and bars of our own, writes to the terminal itself (`raw_stream`). Files and
pipes get what is there.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, TextIO

from rehead.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


def prepare_streams() -> None:
    """Make stdout and stderr safe to print to.

    A closed one goes to the null device, no character raises, and no text controls a terminal.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 (never closed)
        elif isinstance(stream, io.TextIOWrapper):
            if stream.errors in ("strict", "surrogateescape"):  # the latter in the C locale
                stream.reconfigure(errors="backslashreplace")
            if stream.isatty():
                setattr(sys, name, TerminalStream(stream))


class TerminalStream:
    """A stream to a terminal, in which control characters of a text are replaced."""

    def __init__(self, unescaped: IO[str]) -> None:
        self.unescaped = unescaped

    def write(self, text: str) -> int:
        """Write a text; line feeds and tabs stay."""
        return self.unescaped.write(printable(text, keep="\n\t"))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (all else is as the stream has it)
        return getattr(self.unescaped, name)


def raw_stream(stream: IO[str]) -> IO[str]:
    """Give the stream itself, for what writes colours."""
    return stream.unescaped if isinstance(stream, TerminalStream) else stream


def printable(text: str, keep: str = "\n") -> str:
    """Replace control characters, except those to `keep`; the text keeps its length."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else " " if each.isspace() else "\ufffd" for each in text)


def stdin() -> TextIO:
    """Give standard input, or raise if the parent process has closed it."""
    if sys.stdin is None:
        raise UserError("standard input is closed. Give a file, or pipe text in.")
    return sys.stdin


def read_stdin() -> str:
    """Read a text from standard input, without the trailing line breaks."""
    try:
        return stdin().read().rstrip("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not {error.encoding.upper()} (byte {error.start}). Convert it.") from None


def print_note(text: str) -> None:
    """Print a note to stderr, after all results that were printed before it."""
    sys.stdout.flush()
    print(f"note: {text}", file=sys.stderr)


def results_console(piped_width: int) -> Console:
    """Create a console for tables on standard output; on a pipe, which has no width, use `piped_width`."""
    from rich.console import Console
    from rich.segment import Segment

    class ResultsConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for each in super().render(renderable, options):
                yield each if each.control else Segment(printable(each.text), each.style)

        def on_broken_pipe(self) -> None:  # rich exits with 1, which here means that a check found something
            raise BrokenPipeError

    width = None if sys.stdout.isatty() else piped_width
    file = raw_stream(sys.stdout)
    return ResultsConsole(file=file, width=width, highlight=False, markup=False, emoji=False)
