"""Errors that the user can fix, as opposed to bugs.

A `UserError` is one line: what is wrong, where, and what to do. The command line prints it and exits with 2. Any other
exception is a bug and shows a traceback.
"""

import re


class UserError(Exception):
    """An error message of one line.

    Text from files or file names may contain line breaks, which become spaces, and control characters, which are
    escaped so that a terminal does not interpret them.
    """

    def __init__(self, message: str) -> None:
        line = re.sub(r"\s*[\r\n]+\s*", " ", message.strip())
        super().__init__("".join(each if each.isprintable() else _escape(each) for each in line))


def short_repr(value: object) -> str:
    """Give the `repr` of a value, truncated to 60 characters, for messages: it may come from a damaged file."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class ConfigError(UserError, ValueError):
    """An invalid value in the configuration of a model or head."""


class DamagedError(UserError):
    """A file written by this program is missing, corrupt, or unsafe to read."""
