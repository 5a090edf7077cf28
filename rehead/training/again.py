"""How to go on with a run that was stopped: its command, as the user would type it. Light: commands import it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rehead.training.stopping import Stopped


def again(words: list[str]) -> str:
    """Say the command that goes on with a run that these words began."""
    words = [word for word in words if word != "--overwrite"]
    begin = "torchrun … -m " if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return begin + shlex.join(["rehead", *words, *([] if "--resume" in words else ["--resume"])])


def say_again(stopped: Stopped) -> int:
    """Tell the user of a command that was stopped how to go on; give its exit code."""
    if os.environ.get("RANK", "0") == "0":
        print(f"rehead: stopped. Go on with: {again(sys.argv[1:])}", file=sys.stderr)
    return 128 + stopped.signum


@contextmanager
def interrupted(call: str) -> Iterator[None]:
    """Let a function that was called from Python end as Python's own do; an interrupt tells which `call` goes on."""
    from rehead.training.stopping import Stopped

    try:
        yield
    except Stopped as stopped:
        if stopped.signum == signal.SIGINT:
            raise KeyboardInterrupt(f"stopped. Go on with {call}") from None
        sys.exit(128 + stopped.signum)
