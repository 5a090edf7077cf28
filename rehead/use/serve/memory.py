"""What the limits of a server add up to in memory: said at the start, and checked by tests/adversary.

Each part is what the limits allow, all at once, whatever clients do. Constants are measured: what a connection holds
besides the body, and what scoring takes per character, on the text that takes most (emoji and rare characters, of which
every byte is a token).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rehead.use.serve.capacity import RESERVE
from rehead.use.serve.options import Limits

MEBIBYTE = 2**20
CONNECTION_BYTES = MEBIBYTE  # head, unparsed input, pipelined requests, and what is not sent yet
BODY_COPIES = 5  # the body itself, and its texts as Python strings, up to four bytes a character
CHARACTER_BYTES = 1024  # to tokenize and score a character, with what the allocator keeps
EXPLAINED_CHARACTER_BYTES = 2560  # the same, to explain
WORD_BYTES = 64  # of a word in the answer of an explanation
LABEL_BYTES = 24  # of a label's probability in an answer, besides its name


def memory_parts(limits: Limits, names: Sequence[str]) -> dict[str, int]:
    """Compute how many bytes the requests of clients can take, by what they are for."""
    at_once, explained = max(limits.batch_characters, limits.characters), limits.max_explain_characters()
    label_answer = sum(LABEL_BYTES + 2 * len(name.encode()) for name in names)
    return {
        "connections": (limits.connections + RESERVE) * CONNECTION_BYTES,
        "bodies": limits.total_body_bytes * BODY_COPIES,
        "computing": at_once * CHARACTER_BYTES + explained * EXPLAINED_CHARACTER_BYTES,
        "answers": limits.queue * label_answer + limits.slow_queue * explained * WORD_BYTES,
    }


def describe_limits(limits: Limits, names: Sequence[str], resident: int | None) -> list[str]:
    """Say in two lines what the limits are, and what they add up to."""
    parts = memory_parts(limits, names)
    total = sum(parts.values())
    added = ", ".join(f"{name} {_size(each)}" for name, each in parts.items())
    now = "" if resident is None else f"{_size(resident)} now, at most {_size(resident + total)}: "
    return [
        f"limits: {limits.connections:,} connections ({limits.max_client_connections():,} per client), "
        f"{_size(limits.body_bytes)} per body ({_size(limits.total_body_bytes)} for all), {limits.texts:,} texts of "
        f"{limits.characters:,} characters per request, {limits.queue:,} texts queued, "
        f"{limits.seconds:g} s per answer.",
        f"memory: {now}requests take up to {_size(total)} ({added}).",
    ]


def resident_bytes() -> int | None:
    """Return how much memory this process takes now; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _size(count: int) -> str:
    if count >= 1024 * MEBIBYTE:
        return f"{count / 1024 / MEBIBYTE:.1f} GiB"
    return f"{count / MEBIBYTE:,.0f} MiB" if count >= MEBIBYTE else f"{count / 1024:,.0f} KiB"
