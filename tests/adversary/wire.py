"""Requests as bytes, whatever a client may make of them, and what comes back."""

from __future__ import annotations

import itertools
import json
import re
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.use.serve.running import SECRET, until_closed

Field = tuple[str, str]
HOST = ("Host", "localhost")
JSON = ("Content-Type", "application/json")
TOKEN = ("Authorization", f"Bearer {SECRET}")
CHUNKED = ("Transfer-Encoding", "chunked")
CLOSE = ("Connection", "close")
BODY = json.dumps({"text": "a good film"}).encode()


def head(*fields: Field, line: str = "POST /classify HTTP/1.1") -> bytes:
    return "\r\n".join([line, *(f"{name}: {value}" for name, value in fields), "", ""]).encode("latin-1")


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


def last_chunk(trailers: Iterable[Field] = ()) -> bytes:
    return b"0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in trailers).encode("latin-1") + b"\r\n"


def statuses(answer: bytes) -> list[int]:
    """The status of every answer on a connection."""
    return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def send_until_closed(connection: socket.socket, pieces: Iterable[bytes], seconds: float = 10.0) -> tuple[int, bytes]:
    """Send until the server closes, or the time is over; give how many bytes it took, and what it said."""
    sent, until = 0, time.monotonic() + seconds
    connection.settimeout(seconds)
    try:
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
            if time.monotonic() > until:
                break
    except OSError:
        pass
    return sent, until_closed(connection)


def resident(process: int | str = "self") -> float:
    """Resident memory in MiB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def split(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Cut at these places."""
    places = [0, *sorted({each for each in cuts if 0 < each < len(data)}), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(places)]
