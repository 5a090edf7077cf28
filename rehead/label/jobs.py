"""Other commands of rehead in processes of their own: pretraining while somebody labels, the full recipe at the end.

In the server's own process they would take the interpreter's lock from the page, and their memory would stay. What they
print is read for the progress that the page shows. On Linux they end with the server, however it ends.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from typing import Literal

State = Literal["waiting", "running", "done", "failed", "stopped"]
PERCENT = re.compile(r"\b(\d{1,3}) %")
KEPT = 30  # lines of what it said
# Of a child: asks Linux to end it with its parent, then does what `rehead` does.
PROGRAM = """
import signal, sys
if sys.platform == "linux":
    import ctypes, os
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(143)
from rehead.cli import main
sys.exit(main(sys.argv[2:]))
"""


class Job:
    """A command, and how far it is."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name, self.arguments = name, list(arguments)
        self.state: State = "waiting"
        self.share: float | None = None
        "How much of its present part is done."
        self.lines: deque[str] = deque(maxlen=KEPT)
        self._process: subprocess.Popen[str] | None = None
        self._stopping = threading.Event()

    def run(self) -> bool:
        """Run it to its end; tell whether it succeeded."""
        import os

        if self._stopping.is_set():
            self.state = "stopped"
            return False
        self._process = subprocess.Popen(  # noqa: S603 (rehead itself)
            [sys.executable, "-c", PROGRAM, str(os.getpid()), *self.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self.state = "running"
        assert self._process.stdout is not None  # noqa: S101 (a pipe was asked for)
        for line in self._process.stdout:
            if text := line.strip():
                self.lines.append(text)
                found = PERCENT.search(text)
                self.share = int(found[1]) / 100 if found else self.share
        code = self._process.wait()
        self.state = "stopped" if self._stopping.is_set() else "failed" if code else "done"
        return self.state == "done"

    def stop(self, seconds: float = 10.0) -> None:
        """Tell it to end, and wait: it saves a checkpoint if it can."""
        self._stopping.set()
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()

    @property
    def error(self) -> str:
        """The line that says why it failed."""
        for line in reversed(self.lines):
            if "rehead: error:" in line:
                return line.partition("rehead: error:")[2].strip()
        return self.lines[-1] if self.lines else "it ended without a word"

    def describe(self) -> dict[str, object]:
        """For the page."""
        said = self.error if self.state == "failed" else self.lines[-1] if self.lines else ""
        return {"name": self.name, "state": self.state, "share": self.share, "said": said}
