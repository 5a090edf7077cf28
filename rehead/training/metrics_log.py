"""The metrics log of a run: `metrics.jsonl`, one JSON object per line.

A resumed run continues the same file, after cutting off what was logged after the checkpoint it resumes from, so that
every step is there once. The checkpoint holds the number of lines: the last step of one phase is the first of the next,
so the step alone is ambiguous.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from rehead.errors import UserError

NAME = "metrics.jsonl"


class MetricsLog:
    """The open log of a run."""

    def __init__(self, path: Path, lines: int) -> None:
        """Open the file, keeping the first `lines` lines."""
        self.path = path
        kept = read(path)[:lines] if path.exists() else []
        self.lines = len(kept)
        "How many were kept: fewer, if a crash of the machine lost some."
        beside = path.with_name(f".{path.name}.partial")
        try:
            beside.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
            beside.replace(path)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error

    def write(self, line: dict[str, Any]) -> None:
        """Add a line; what is not a number in JSON (NaN, infinity) becomes null."""
        finite = {name: None if value != value or value in (_INF, -_INF) else value for name, value in line.items()}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(finite, allow_nan=False) + "\n")
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror or error}.") from error


_INF = float("inf")


def read(path: Path) -> list[dict[str, Any]]:
    """Read the log of a run; a last line that was truncated by a crash is left out."""
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            break
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
            break
        lines.append(entry)
    return lines


def memory() -> int:
    """Give the resident memory of this process in bytes (its peak so far, where only that is known)."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
