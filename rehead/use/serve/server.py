"""The listening server and its graceful shutdown: on SIGTERM or Ctrl-C, accepted requests are finished first.

During the shutdown the server keeps listening, so that a load balancer's probe gets 503 from `/readyz` and sends its
clients elsewhere; once nothing is being computed, the connections are closed. One deadline covers all of it: requests
that are unfinished by then get 503. A second Ctrl-C makes the deadline now.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

import uvicorn

from rehead.errors import UserError
from rehead.use.serve.capacity import Capacity
from rehead.use.serve.connections import LimitedProtocol
from rehead.use.serve.guard import Guard
from rehead.use.serve.metrics import Metrics
from rehead.use.serve.options import ServerLimits

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SWITCH_INTERVAL = 0.0005  # seconds; the event loop then waits less for the computing threads: 15 % more requests
BACKLOG = 2048  # connections that the kernel queues
ABORT_SECONDS = 0.5  # after the deadline, to send the 503s, and for a worker thread to stop
SECURITY_HEADERS = [  # of every response
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]


class Answering(Protocol):
    """What computes the answers of a server."""

    metrics: Metrics

    @property
    def idle(self) -> bool:
        """Whether no result is waited for."""

    def close(self, seconds: float) -> None:
        """Finish what was accepted; wait at most this many seconds."""


class Server(uvicorn.Server):
    """uvicorn with a shutdown that finishes accepted requests, within a deadline."""

    def __init__(self, guard: Guard, service: Answering, options: ServerLimits) -> None:
        self.guard, self.service, self.seconds = guard, service, options.seconds
        self.signal = 0
        "The last signal received."
        super().__init__(
            uvicorn.Config(
                guard,
                http=LimitedProtocol.with_limits(
                    Capacity(options.connections, options.max_client_connections()),
                    options.receive_seconds,
                    options.body_bytes,
                    service.metrics,
                ),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                headers=SECURITY_HEADERS,
                proxy_headers=False,
                timeout_keep_alive=max(1, round(options.idle_seconds)),
                backlog=BACKLOG,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish accepted requests, refuse new ones, close the connections; at the deadline, abort what is left.

        uvicorn's `timeout_graceful_shutdown` stops listening first, and so cannot answer probes meanwhile.
        """
        self.guard.draining = True
        deadline = time.monotonic() + self.seconds
        while not self.service.idle and time.monotonic() < deadline and not self.force_exit:
            await asyncio.sleep(0.02)
        closing = asyncio.create_task(super().shutdown(sockets))
        while not closing.done() and time.monotonic() < deadline and not self.force_exit:
            await asyncio.sleep(0.02)
        for task in self.server_state.tasks:
            task.cancel()
        await asyncio.wait({closing, *self.server_state.tasks}, timeout=ABORT_SECONDS)
        closing.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Remember the signal, and shut down."""
        self.signal = sig
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down on a signal; unlike uvicorn, do not raise it again afterwards, so that the command can report."""
        if threading.current_thread() is threading.main_thread():
            for each in SIGNALS:
                signal.signal(each, self.handle_exit)
        yield


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket; clients can connect once it listens."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise UserError(f"--host={host} is not an address of this machine.") from None
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise UserError(f"--host={host} --port={port} cannot be used ({error.strerror}). Choose another.") from None
    return bound


def url_of(bound: socket.socket) -> str:
    """Return the URL to open in a browser."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(guard: Guard, service: Answering, options: ServerLimits, bound: socket.socket) -> int:
    """Serve until a signal arrives and the shutdown is complete; return the signal's number."""
    server, before = Server(guard, service, options), sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        server.run(sockets=[bound])
    finally:
        sys.setswitchinterval(before)
        service.close(ABORT_SECONDS)
    return server.signal


def set_up_logging(*, quiet: bool) -> None:
    """Log to stderr: errors, and requests if they were asked for; never any text."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    for name, level in (("rehead.serve", logging.INFO), ("uvicorn.error", logging.ERROR), ("asyncio", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.ERROR if quiet else level)
