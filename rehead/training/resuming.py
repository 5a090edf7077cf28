"""The command that resumes a run that was stopped, as the user would type it. Light: commands import it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rehead.replacing import working_directory
from rehead.training.directory import kept
from rehead.training.stopping import Stopped


def start_command(arguments: list[str]) -> str:
    """Give the command that started a run, whether these arguments start, overwrite or resume it."""
    return shlex.join(["rehead", *(word for word in arguments if word not in ("--overwrite", "--resume"))])


def resume_command(arguments: list[str]) -> str:
    """Give the command that resumes a run that was started with these arguments."""
    torchrun = "torchrun … -m " if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return f"{torchrun}{start_command(arguments)} --resume"


def report_stop(stop: BaseException, out: Path | None = None, description: str = "") -> int:
    """Print how to resume a command that a signal stopped; give its exit code.

    `description` is the file in `out` without which there is nothing to resume; then the exception is raised again.
    """
    if out is not None and not (working_directory(out) / description).exists():
        raise stop
    if os.environ.get("RANK", "0") == "0":
        before = "" if out is None or working_directory(out) == out else f" {kept(out)}"
        print(f"rehead: stopped.{before} Resume with: {resume_command(sys.argv[1:])}", file=sys.stderr)
    if isinstance(stop, Stopped):
        return 128 + stop.signum
    return stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else 128 + signal.SIGINT


@contextmanager
def stop_as_interrupt(call: str) -> Iterator[None]:
    """Turn `Stopped` into what Python code expects of Ctrl-C, a KeyboardInterrupt; it names the `call` that resumes."""
    try:
        yield
    except Stopped as stopped:
        if stopped.signum == signal.SIGINT:
            raise KeyboardInterrupt(f"stopped. Resume with {call}") from None
        sys.exit(128 + stopped.signum)
