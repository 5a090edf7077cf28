"""The command that resumes a run that was stopped, as the user would type it. Light: commands import it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def start_command(arguments: list[str]) -> str:
    """Give the command that started a run, whether these arguments start, overwrite or resume it."""
    return shlex.join(["rehead", *(word for word in arguments if word not in ("--overwrite", "--resume"))])


def resume_command(arguments: list[str]) -> str:
    """Give the command that resumes a run that was started with these arguments."""
    torchrun = "torchrun … -m " if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return f"{torchrun}{start_command(arguments)} --resume"


def report_stop(signum: int) -> int:
    """Print how to resume a command that a signal stopped; give its exit code."""
    if os.environ.get("RANK", "0") == "0":
        print(f"rehead: stopped. Resume with: {resume_command(sys.argv[1:])}", file=sys.stderr)
    return 128 + signum


@contextmanager
def stop_as_interrupt(call: str) -> Iterator[None]:
    """Turn `Stopped` into what Python code expects of Ctrl-C, a KeyboardInterrupt; it names the `call` that resumes."""
    from rehead.training.stopping import Stopped

    try:
        yield
    except Stopped as stopped:
        if stopped.signum == signal.SIGINT:
            raise KeyboardInterrupt(f"stopped. Resume with {call}") from None
        sys.exit(128 + stopped.signum)
