"""Any bytes on a connection of `rehead serve`, in any packets: the parser's limits and the guard's decisions.

The first bytes of an input say where packets end; the rest is what the client sends. What must hold:

- nothing raises, and nothing is logged as an internal error;
- a request reaches the application only under an own host name, with the token, as JSON, with a body within the limit;
- headers are those of the head: no trailer is among them;
- what is kept of the input, parsed or not, is bounded; when the client has gone, nothing is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

INSTRUMENTED = ["rehead.use.serve.guard", "rehead.use.serve.connections", "rehead.use.serve.transport"]
TOKEN = "a-token-of-many-characters"
BODY_BYTES = 200
HEAD_BYTES = 600


class Wire(asyncio.Transport):
    """A transport without a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def write_eof(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)


class Failures(logging.Handler):
    """What went wrong inside a task, where an exception is not seen: errors in the log, and broken promises."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(f"{record.getMessage()} {record.exc_info}")


def prepare() -> Callable[[bytes], None]:
    """Import what is fuzzed; give the function that takes an input."""
    import uvicorn
    from uvicorn.server import ServerState

    from rehead.use.serve import connections
    from rehead.use.serve.capacity import Capacity
    from rehead.use.serve.guard import Guard
    from rehead.use.serve.metrics import Metrics

    connections.MAX_HEAD_BYTES, connections.PIECE_BYTES = HEAD_BYTES, 64
    failures = Failures()
    for name in ("rehead.serve", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [failures], False
        logger.setLevel(logging.ERROR)

    async def endpoint(body: bytes, state: dict[str, Any]) -> dict[str, Any]:
        assert len(body) <= BODY_BYTES
        state["reached"] = True
        return {}

    async def routes(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    guard = Guard(
        routes,
        metrics=Metrics(),
        paths=["/classify", "/healthz"],
        endpoints={"/classify": endpoint},
        body_bytes=BODY_BYTES,
        total_body_bytes=10 * BODY_BYTES,
        token=TOKEN,
    )

    heads: list[tuple[Any, list[tuple[bytes, bytes]]]] = []

    class Watched(connections.LimitedProtocol):
        """A connection that notes the headers of every head."""

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            heads.append((self.scope, list(self.headers)))

    config = uvicorn.Config(guard, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False)
    config.load()
    capacity = Capacity(4, 4)
    protocol = Watched.with_limits(capacity, 10.0, BODY_BYTES, Metrics())
    loop = asyncio.new_event_loop()

    async def serve(packets: list[bytes]) -> None:
        wire, state = Wire(), ServerState()
        heads.clear()
        connection = protocol(config=config, server_state=state, app_state={}, _loop=loop)
        connection.connection_made(wire)
        for packet in packets:
            if not wire.closed:
                connection.data_received(packet)
            _check_bounded(connection, packet)
            for _ in range(3):
                await asyncio.sleep(0)
        connection.connection_lost(None)
        for _ in range(20):
            if not state.tasks:
                break
            await asyncio.sleep(0)
        assert not state.tasks, "a request goes on without its client"
        assert not capacity.clients
        assert guard.held_bytes == 0
        assert b"HTTP/1.1 5" not in wire.sent
        assert not failures.found, failures.found
        for scope, headers in heads:
            assert scope["headers"] == headers, "a trailer became a header"
            if scope["state"].get("reached"):
                _check_reached(headers)

    def one(data: bytes) -> None:
        loop.run_until_complete(serve(_packets(data)))

    return one


def _packets(data: bytes) -> list[bytes]:
    """Cut an input: its first byte says into how many, the next where."""
    count = data[0] % 5 if data else 0
    sizes, rest, found = list(data[1 : 1 + count]), data[1 + count :], []
    for size in sizes:
        found.append(rest[: 1 + size])
        rest = rest[1 + size :]
    return [each for each in (*found, rest) if each]


def _check_reached(headers: list[tuple[bytes, bytes]]) -> None:
    """Decide anew, the long way, whether a request may be computed."""

    def only(name: bytes) -> bytes:
        values = [value for each, value in headers if each == name]
        assert len(values) <= 1, values
        return values[0] if values else b""

    host, _, port = only(b"host").decode("latin-1").lower().rpartition(":")
    if host in ("", "[:", "[:0:0:0:0:0:0:"):  # no port, or inside brackets
        host, port = only(b"host").decode("latin-1").lower(), ""
    assert host in ("localhost", "127.0.0.1", "[::1]"), host
    assert not port.strip("0123456789"), port
    scheme, token = only(b"authorization").split(b" ", 1)
    assert (scheme.lower(), token.strip()) == (b"bearer", TOKEN.encode())
    assert only(b"content-type").split(b";")[0].strip().lower() == b"application/json"
    assert not only(b"content-encoding")
    assert only(b"transfer-encoding").strip().lower() in (b"", b"chunked")


def _check_bounded(connection: Any, packet: bytes) -> None:
    if connection.headers:
        assert sum(len(name) + len(value) for name, value in connection.headers) <= HEAD_BYTES + 64
    assert len(connection._unparsed) <= 4096 + len(packet)
    assert len(connection.pipeline) <= 64
    if connection.cycle is not None:
        assert len(connection.cycle.body) <= 4096 + len(packet)
