"""Connections that are held to keep others out: limits per client, idle ones go first, a reserve for probes."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rehead.use.serve.capacity import IDLE_GRACE, RESERVE, Capacity, client_of
from tests.adversary.wire import BODY, CLOSE, HOST, JSON, head, resident, statuses
from tests.use.serve.running import Gate, Running, classifier, running, until_closed, wait_until

PROBE = head(HOST, CLOSE, line="GET /healthz HTTP/1.1")
ABOUT = head(HOST, line="GET /about HTTP/1.1")
LABEL = head(HOST, JSON, ("Content-Length", str(len(BODY)))) + BODY


@contextmanager
def held(server: Running, count: int, first: bytes = b"", source: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """Hold connections from an address; each has asked this much, and read the answer."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            each = socket.create_connection(("127.0.0.1", server.port), timeout=20, source_address=(source, 0))
            found.append(stack.enter_context(each))
            if first:
                each.sendall(first)
                assert each.recv(65536)
        there = min(count, server.options.connections + RESERVE)
        wait_until(lambda: len(server.server.server_state.connections) >= there)
        yield found


def gone(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("first", [b"", ABOUT], ids=["silent", "kept alive"])
def test_idle_connections_keep_nobody_out(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rehead.use.serve.capacity.IDLE_GRACE", 0.2)
    with running(classifier(), connections=8, client_connections=8) as server, held(server, 8, first) as idle:
        time.sleep(0.3)
        assert server.get("/healthz")[0] == 200
        assert server.post("/classify", {"text": "a"})[0] == 200
        assert [gone(each) for each in idle] == [True] + [False] * 7, "the longest idle, and no more than needed"


def test_probes_are_answered_when_nothing_is_idle() -> None:
    with running(classifier(), connections=4, client_connections=4) as server, contextlib.ExitStack() as stack:
        gate = Gate(server)
        busy = [stack.enter_context(server.connect()) for _ in range(4)]
        for each in busy:
            each.sendall(LABEL)
        wait_until(lambda: len(server.server.server_state.tasks) == 4)
        for _ in range(3):
            assert statuses(server.raw(PROBE)) == [200]
            assert statuses(server.raw(PROBE.replace(b"healthz", b"readyz?x=1"))) == [200]
        assert statuses(server.raw(ABOUT)) == [503]
        assert statuses(server.raw(LABEL)) == [503]
        kept = server.raw(PROBE.replace(b"Connection: close\r\n", b"") + ABOUT)
        assert statuses(kept) == [200], "a probe's connection is not for more"
        gate.open.set()
        for each in busy:
            assert statuses(until_closed(each, 0.5)) == [200], "none of them was disturbed"


def test_the_reserve_is_not_to_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever fills it in silence makes room for the next, and is told why."""
    monkeypatch.setattr("rehead.use.serve.capacity.IDLE_GRACE", 60.0)
    with running(classifier(), connections=2, client_connections=2) as server, held(server, 2 + 3 * RESERVE) as silent:
        assert statuses(server.raw(PROBE)) == [200]
        assert len(server.server.server_state.connections) <= 2 + RESERVE
        assert statuses(until_closed(silent[2])) == [503]
        assert not gone(silent[0])


def test_a_client_has_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rehead.use.serve.capacity.IDLE_GRACE", 60.0)
    with running(classifier(), connections=8) as server, held(server, 6, source="127.0.0.2"):
        with held(server, 3, ABOUT, source="127.0.0.3"), held(server, 1, ABOUT):
            pass
        greedy = socket.create_connection(("127.0.0.1", server.port), timeout=20, source_address=("127.0.0.2", 0))
        with greedy:
            greedy.sendall(ABOUT)
            answer = until_closed(greedy)
    assert statuses(answer) == [503]
    assert b"connections" in answer


def test_the_greediest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rehead.use.serve.capacity.IDLE_GRACE", 0.1)
    with (
        running(classifier(), connections=6, client_connections=5) as server,
        held(server, 2, ABOUT, source="127.0.0.3") as modest,
        held(server, 4, ABOUT, source="127.0.0.2") as greedy,
    ):
        time.sleep(0.2)
        with held(server, 1, ABOUT):
            assert [gone(each) for each in greedy] == [True, False, False, False]
            assert not any(gone(each) for each in modest), "although it has been idle longer"


def test_connections_that_come_and_go_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither timers nor objects: a thousand resets a second would add up."""
    with running(classifier()) as server:
        capacity = server.server.config.http.capacity  # type: ignore[union-attr]

        def wave(count: int) -> None:
            for number in range(count):
                with server.connect() as connection:
                    connection.sendall((b"nonsense\r\n\r\n", ABOUT, b"GET /", LABEL)[number % 4])
                    if number % 2:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
            wait_until(lambda: not server.server.server_state.connections)

        wave(200)
        before = resident()
        wave(2000)
        assert resident() - before < 8
        assert not capacity.clients


class Noted:
    """A connection of the model."""

    def __init__(self) -> None:
        self.evicted = False

    def make_room(self) -> None:
        assert not self.evicted
        self.evicted = True


STEPS = st.lists(
    st.tuples(st.sampled_from(["open", "busy", "idle", "close", "wait"]), st.integers(0, 5), st.integers(0, 9)),
    max_size=80,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(1, 6), st.integers(1, 6))
def test_counts_hold_whatever_happens(steps: list[tuple[str, int, int]], total: int, per_client: int) -> None:
    """Against a list of what is open: never more than allowed, only idle ones are closed, nothing is forgotten."""
    now = [0.0]
    capacity = Capacity(total, per_client, clock=lambda: now[0])
    opened: dict[Noted, str] = {}
    busy: set[Noted] = set()
    for step, client, which in steps:
        live = [each for each in opened if not each.evicted]
        if step == "open":
            new, address = Noted(), f"10.0.0.{client}"
            before = set(live)
            if capacity.admit(new, address):
                opened[new] = address
            closed = [each for each in before if each.evicted]
            assert len(closed) <= 1
            assert not set(closed) & busy
        elif step == "wait":
            now[0] += which / 4 * IDLE_GRACE
        elif live:
            one = live[which % len(live)]
            {"busy": capacity.busy, "idle": capacity.idle, "close": capacity.release}[step](one)
            (busy.add if step == "busy" else busy.discard)(one)
            if step == "close":
                del opened[one]
        live = [each for each in opened if not each.evicted]
        counts = {name: list(map(opened.get, live)).count(name) for name in map(opened.get, live)}
        assert len(live) <= total
        assert all(count <= per_client for count in counts.values())
        assert {name: each.open for name, each in capacity.clients.items()} == counts


def test_a_client_is_an_address_or_a_network() -> None:
    assert client_of("10.1.2.3") == "10.1.2.3" == client_of("::ffff:10.1.2.3")
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:1") != client_of("2001:db8:0:1::1")
    assert client_of("fe80::1%eth0") == client_of("fe80::2%eth0")
    assert client_of("") == ""
