"""What the user got wrong, as opposed to what the program got wrong.

A `UserError` carries one line written for the person who meets it: what is wrong, where, and what to do.
The command line prints that line and exits with 2; anything else that escapes is a bug and shows a traceback.
"""

import re


class UserError(Exception):
    """One line for the user.

    What comes out of a file or a file name may hold line breaks, which are folded, and other characters that a
    terminal would obey instead of showing: they are written as escapes.
    """

    def __init__(self, message: str) -> None:
        line = re.sub(r"\s*[\r\n]+\s*", " ", message.strip())
        super().__init__("".join(each if each.isprintable() else _escape(each) for each in line))


def shown(value: object) -> str:
    """Write a value out for a message, shortened: it may come from a damaged file."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class ConfigError(UserError, ValueError):
    """A model or head was asked for with a value that it cannot have."""


class DamagedError(UserError):
    """Something this program wrote is missing, damaged, or not safe to read."""
