"""Listening, and ending well: on SIGTERM or Ctrl-C what was accepted is finished, and nothing more is taken.

While it ends, the server still listens, so that a balancer's probe hears 503 from `/readyz` and sends its clients
elsewhere; once nothing is being computed any more, the connections are closed. There is one time for all of it; what
is not done by then is given up, and told so. A second Ctrl-C is that time.
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

import uvicorn

from rehead.errors import UserError
from rehead.use.serve.connections import PatientProtocol
from rehead.use.serve.guard import Guard
from rehead.use.serve.options import ServeOptions
from rehead.use.serve.service import Service

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SWITCH = 0.0005  # seconds after which a thread that computes lets the others have a go: 15 % more answers than by 5 ms
BACKLOG = 2048  # connections that the system takes for us while we are busy
FAREWELL = 0.5  # seconds to tell those who wait that they are given up, and for a thread to stop by itself


class Server(uvicorn.Server):
    """Uvicorn, which finishes what it has accepted before it closes its doors."""

    def __init__(self, guard: Guard, service: Service, options: ServeOptions) -> None:
        self.guard, self.service, self.seconds = guard, service, options.seconds
        self.signal = 0
        "What ended it."
        super().__init__(
            uvicorn.Config(
                guard,
                http=PatientProtocol.limited_to(options.connections, options.receive_seconds, service.metrics),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=max(1, round(options.idle_seconds)),
                backlog=BACKLOG,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what was accepted; refuse what comes meanwhile; close; give up what takes too long."""
        self.guard.draining = True
        until = time.monotonic() + self.seconds
        while not self.service.idle and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.02)
        closing = asyncio.create_task(super().shutdown(sockets))
        while not closing.done() and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.02)
        for each in self.server_state.tasks:
            each.cancel()
        await asyncio.wait({closing, *self.server_state.tasks}, timeout=FAREWELL)
        closing.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note what has come, and end."""
        self.signal = sig
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on a signal, and have done with it: it is not raised again, and more of them disturb nothing."""
        if threading.current_thread() is threading.main_thread():
            for each in SIGNALS:
                signal.signal(each, self.handle_exit)
        yield


def bind(host: str, port: int) -> socket.socket:
    """Take the address; nobody can connect before `serve` listens on it."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise UserError(f"--host={host} is no address of this machine.") from None
    taken = socket.socket(family, socket.SOCK_STREAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taken.bind(address)
    except OSError as error:
        taken.close()
        raise UserError(f"--host={host} --port={port} cannot be used ({error.strerror}). Choose another.") from None
    return taken


def address(taken: socket.socket) -> str:
    """Give the address to open in a browser."""
    host, port = taken.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(guard: Guard, service: Service, options: ServeOptions, taken: socket.socket) -> int:
    """Listen until a signal comes; give its number when what was accepted is done, or given up."""
    server, before = Server(guard, service, options), sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        server.run(sockets=[taken])
    finally:
        sys.setswitchinterval(before)
        service.end(FAREWELL)
    return server.signal


def set_up_logging(*, quiet: bool) -> None:
    """Write the server's few lines to stderr: no request, unless asked for, and never any text."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    for name, level in (("rehead.serve", logging.INFO), ("uvicorn.error", logging.ERROR), ("asyncio", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.ERROR if quiet else level)
