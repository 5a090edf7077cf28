"""What the server says at its start about memory, against everything that clients can make it hold."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rehead.runs.run import save
from rehead.use.serve.capacity import RESERVE
from rehead.use.serve.memory import describe_limits, memory_parts
from rehead.use.serve.options import Limits
from tests.adversary.wire import CHUNKED, HOST, JSON, chunk, head, resident
from tests.use.serve.running import classifier
from tests.use.text_classifiers import text_classifier

CONNECTIONS = 64
NOISE = "".join(chr(0x1F300 + number * 7919 % 700) + chr(0x4E00 + number * 104729 % 20_000) for number in range(50_000))


def test_the_sum_is_said_with_its_parts() -> None:
    limits = Limits(connections=100, body_bytes=2**20, total_body_bytes=10 * 2**20)
    parts = memory_parts(limits, ["a", "b"])
    assert parts["connections"] == (100 + RESERVE) * 2**20
    assert parts["bodies"] == 50 * 2**20
    total = sum(parts.values()) // 2**20
    first, second = describe_limits(limits, ["a", "b"], 300 * 2**20)
    for said in ("100 connections", "50 per client", "1 MiB per body", "10 MiB for all"):
        assert said in first
    assert "300 MiB now" in second
    assert f"{300 + total:,} MiB" in second or f"{(300 + total) / 1024:.1f} GiB" in second
    assert "now" not in describe_limits(limits, [], None)[1], "where the system does not say"


@pytest.mark.parametrize("name", ["connections", "total_body_bytes", "batch_characters", "queue"])
def test_what_is_raised_is_counted(name: str) -> None:
    usual, more = Limits(), Limits()
    setattr(more, name, 2 * getattr(usual, name))
    assert sum(memory_parts(more, ["a"]).values()) > sum(memory_parts(usual, ["a"]).values())


METER = """
import ctypes, gc, pathlib, sys, threading, time

class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost").split()]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Counts
file = pathlib.Path(sys.argv.pop(1))

def write():
    while True:
        time.sleep(0.05)
        if file.exists() and not file.stat().st_size:
            gc.collect()
            now = mallinfo()
            file.with_suffix(".new").write_text(str((now.uordblks + now.hblkhd) / 2**20))
            file.with_suffix(".new").replace(file)

threading.Thread(target=write, daemon=True).start()
from rehead.cli import main
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def process(run: Path, *arguments: str, meter: Path | None = None) -> Iterator[tuple[int, int, float]]:
    """A server in a process of its own: its id, its port, and what it says it can grow by, in MiB.

    With a `meter`, it writes to that file, whenever it is empty, how much memory is in use, in MiB: what was allocated
    and not given back, by Python and everything below it. Unlike the resident size, that does not grow because the heap
    is in pieces.
    """
    program = ["-m", "rehead"] if meter is None else ["-c", METER, str(meter)]
    command = [sys.executable, *program, "serve", str(run), "--port", "0", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({} if meter is None else {"PYTHONMALLOC": "malloc"})}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        said = re.search(r"up to ([\d.,]+) (MiB|GiB)", [server.stderr.readline() for _ in range(3)][-1])
        assert said is not None
        threading.Thread(target=server.stderr.read, daemon=True).start()  # a full pipe would stop the server
        try:
            yield server.pid, port, float(said[1].replace(",", "")) * (1024 if said[2] == "GiB" else 1)
        finally:
            server.send_signal(signal.SIGKILL)


def offered(port: int, data: Callable[[int], bytes], count: int = CONNECTIONS) -> list[socket.socket]:
    """Open connections, and offer each as much as it takes at once."""
    found = []
    for number in range(count):
        each = socket.create_connection(("127.0.0.1", port), timeout=20)
        each.settimeout(0.2)
        with contextlib.suppress(OSError):
            each.sendall(data(number))
        found.append(each)
    return found


def grown(pid: int, before: float, act: Callable[[], object]) -> float:
    """The most that the process has grown by while something happens, in MiB."""
    most, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.is_set():
            most[0] = max(most[0], resident(pid) - before)
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        act()
    finally:
        over.set()
        watcher.join()
    return most[0]


BODY = json.dumps({"text": "x" * 1000}).encode()
ATTACKS: dict[str, Callable[[int], bytes]] = {
    "long heads": lambda number: b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 65_000,
    "many headers": lambda number: b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 13_000,
    "many requests": lambda number: b"GET /docs HTTP/1.1\r\nHost:localhost\r\n\r\n" * 100_000,
    "trailers": lambda number: head(HOST, JSON, CHUNKED) + chunk(BODY) + b"0\r\n" + b"X: y\r\n" * 200_000,
    "one trailer": lambda number: head(HOST, JSON, CHUNKED) + chunk(BODY) + b"0\r\nX: " + b"y" * 1_000_000,
    "tiny chunks": lambda number: head(HOST, JSON, CHUNKED) + b"1\r\n \r\n" * 200_000,
    "bodies": lambda number: head(HOST, JSON, ("Content-Length", str(2**20))) + b" " * (2**20 - 1),
    "texts": lambda number: _posted(json.dumps({"texts": ["\U0001f3ac" + "a" * 4000] * 255}, ensure_ascii=False)),
    "noise": lambda number: _posted(json.dumps({"texts": [NOISE] * 2}, ensure_ascii=False)),
    "ligatures": lambda number: _posted(json.dumps({"texts": ["\ufdfa" * 5500] * 60}, ensure_ascii=False)),
    "explanations": lambda number: _posted(json.dumps({"text": "a b " * 5000}), "POST /explain HTTP/1.1"),
}


def _posted(body: str, line: str = "POST /classify HTTP/1.1") -> bytes:
    data = body.encode()
    return head(HOST, JSON, ("Content-Length", str(len(data))), line=line) + data


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bag", "all views"])
def test_nobody_makes_it_take_more_than_it_says(kind: str, tmp_path: Path) -> None:
    """Sixty-four connections do the same at once, each attack after the other, on one server."""
    run = save(classifier() if kind == "bag" else text_classifier("all"), tmp_path / "run")
    few = ["--connections", str(CONNECTIONS), "--client-connections", str(CONNECTIONS)]
    with process(run, *few, "--total-body-bytes", str(16 * 2**20)) as (pid, port, said):
        before, found = resident(pid), {}
        for name, data in ATTACKS.items():

            def act(data: Callable[[int], bytes] = data) -> None:
                held = offered(port, data)
                time.sleep(3)
                for each in held:
                    each.close()
                time.sleep(0.5)

            found[name] = round(grown(pid, before, act))
        print(f"{kind}: at most {said:.0f} MiB said; grown by {found}")
        assert max(found.values()) < said, found


def settled(meter: Path, port: int) -> float:
    """Wait until all connections are seen to, and memory in use no longer changes; give it in MiB."""
    found: list[float] = []
    while len(found) < 3 or max(found[-3:]) - min(found[-3:]) > 0.25:
        assert len(found) < 60, f"it does not settle: {found}"
        time.sleep(1)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(head(HOST, line="GET /healthz HTTP/1.1"))
            assert connection.recv(12) == b"HTTP/1.1 200"
        meter.write_text("")
        while not (given := meter.read_text()):
            time.sleep(0.05)
        found.append(float(given))
    return found[-1]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc counts what is in use, from 2.33 on")
def test_nothing_is_kept_after_an_attack(tmp_path: Path) -> None:
    """Memory in use is level from the second round on: later ones leave nothing behind.

    It was 242.7 to 243.5 MiB over the six rounds, while the resident size grew by 187 to 245 MiB as the heap settled.
    """
    run, meter = save(classifier(), tmp_path / "run"), tmp_path / "meter"
    few = ["--connections", "32", "--client-connections", "32", "--total-body-bytes", str(16 * 2**20)]
    with process(run, *few, meter=meter) as (pid, port, said):
        before, sizes, in_use = resident(pid), [], []
        for _ in range(6):
            for data in ATTACKS.values():
                for each in offered(port, data, 24):
                    each.close()
            in_use.append(settled(meter, port))
            sizes.append(resident(pid) - before)
        print(f"in use {[round(each, 1) for each in in_use]} MiB")
        print(f"grown by {[round(each) for each in sizes]} MiB, {said:.0f} said")
        assert max(sizes) < said
        assert max(in_use[3:]) < max(in_use[1:3]) + 1
