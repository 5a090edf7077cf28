"""What the user got wrong, as opposed to what the program got wrong.

A `UserError` carries one line written for the person who meets it: what is wrong, where, and what to do.
The command line prints that line and exits with 2; anything else that escapes is a bug and shows a traceback.
"""


class UserError(Exception):
    """One line for the user. Line breaks (out of a file name, say) are folded, so that it stays one."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class ConfigError(UserError, ValueError):
    """A model or head was asked for with a value that it cannot have."""


class DamagedError(UserError):
    """Something this program wrote is missing, damaged, or not safe to read."""
