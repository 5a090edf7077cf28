"""What forged input may end in: an answer, or one line."""

from __future__ import annotations

from collections.abc import Callable

from rehead.errors import UserError


def refusal(act: Callable[[], object]) -> str | None:
    """Do something; give the line by which it was refused, if it was."""
    try:
        act()
    except UserError as error:
        line = str(error)
    else:
        return None
    assert line.isprintable()
    return line
