"""How to go on with a run that was stopped: its command, as the user would type it. Light: commands import it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def begun(words: list[str]) -> str:
    """Say the command that began a run, whether these words begin it, begin it anew or go on with it."""
    return shlex.join(["rehead", *(word for word in words if word not in ("--overwrite", "--resume"))])


def again(words: list[str]) -> str:
    """Say the command that goes on with a run that these words began."""
    torchrun = "torchrun … -m " if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return f"{torchrun}{begun(words)} --resume"


def say_again(signum: int) -> int:
    """Tell the user of a command that a signal stopped how to go on; give its exit code."""
    if os.environ.get("RANK", "0") == "0":
        print(f"rehead: stopped. Go on with: {again(sys.argv[1:])}", file=sys.stderr)
    return 128 + signum


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
