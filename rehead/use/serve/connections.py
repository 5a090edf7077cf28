"""uvicorn's HTTP protocol with the limits that it lacks: connections, size of a request's head, time to send and read.

A client that sends a byte at a time, or nothing, or never reads its response, is disconnected. A client that
disconnects cancels its requests. Pipelined requests are answered in order.

uvicorn has an option `limit_concurrency`, but that is checked when a request has arrived, so connections that send none
are not limited; its other options set no limit for the head, nor a time for a request to arrive or a response to be
read. So the protocol class is extended, at the methods that asyncio, httptools and uvicorn's server call.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from rehead.use.serve.batching import ClientDisconnectedError
from rehead.use.serve.guard import log_failure
from rehead.use.serve.metrics import Metrics
from rehead.use.serve.responses import error_json

MAX_HEAD_BYTES = 65_536  # request line and headers
ABSOLUTE_URL = re.compile(rb"[A-Za-z][^/?#:]*://([^/?#]*)(.*)", re.DOTALL)  # as in requests to a proxy


class CoalescingTransport:
    """A transport that joins the writes of one turn of the event loop into one system call.

    uvicorn writes the head and the body of a response separately. Every system call releases the GIL, and a thread that
    computes does not give it back at once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._buffer: list[bytes] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the transport has)
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Buffer the data until the next turn of the event loop."""
        if not self._buffer:
            self._loop.call_soon(self._flush)
        self._buffer.append(data)

    def close(self) -> None:
        """Send what is buffered, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._buffer:
            data = b"".join(self._buffer)
            self._buffer.clear()
            self._transport.write(data)


class LimitedProtocol(HttpToolsProtocol):
    """One connection. `with_limits` makes the class for a server's limits."""

    max_connections: int
    receive_seconds: float
    metrics: Metrics

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 (those of uvicorn)
        super().__init__(*arguments, **settings)
        self._receive_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._active: RequestResponseCycle | None = None
        "The request that is being answered, or was answered last; `cycle` is the last one received."
        self._head_bytes: int | None = None
        "Bytes received of an incomplete head; None between heads."
        self._ignore_input = False
        "Whether further data from the client is discarded."

    @classmethod
    def with_limits(cls, max_connections: int, receive_seconds: float, metrics: Metrics) -> type[LimitedProtocol]:
        """Make a subclass with these limits; requests refused before they are parsed are counted in the metrics."""
        limits = {"max_connections": max_connections, "receive_seconds": receive_seconds, "metrics": metrics}
        return type("ConfiguredProtocol", (cls,), limits)

    # Called by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection below the limit; its first request has to arrive in time."""
        super().connection_made(cast("asyncio.Transport", CoalescingTransport(transport, self.loop)))
        if len(self.connections) > self.max_connections:
            self._refuse(503, "too many open connections. Try again later.")
            return
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the client's requests."""
        self._stop_timer()
        self.pipeline.clear()
        if self._active is not None and not self._active.response_complete:
            self._active.disconnected = True
            self._active.message_event.set()
            if (running := self._active.scope["state"].get("job")) is not None:
                worker, job = running
                worker.cancel(job, ClientDisconnectedError())
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what was received, within the limits."""
        if self._ignore_input:
            return
        try:
            super().data_received(data)
        except Exception as error:  # no input may end in a traceback
            log_failure(error)
            self.transport.abort()
            return
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(431, f"the request line and headers exceed the limit of {MAX_HEAD_BYTES:,} bytes.")
        if self._receive_timer is None and self._between_requests() and self.timeout_keep_alive_task is None:
            self._start_timer()  # an empty line between requests has stopped uvicorn's keep-alive timer

    def pause_writing(self) -> None:
        """Disconnect a client that does not read its response in time."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.receive_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that timer: the response has been read."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    # Called by the parser. The timer runs from the first byte of a request to its last.

    def on_message_begin(self) -> None:
        """Start the timer."""
        super().on_message_begin()
        self._head_bytes = 0
        self._start_timer()

    def on_headers_complete(self) -> None:
        """Answer the request, unless an earlier one is still being answered."""
        if absolute := ABSOLUTE_URL.fullmatch(self.url):
            authority, rest = absolute.groups()
            self.url = rest if rest.startswith(b"/") else b"/" + rest
            self.headers[:] = [(b"host", authority), *(each for each in self.headers if each[0] != b"host")]
        super().on_headers_complete()
        self._head_bytes = None
        if self._active is None or self._active.response_complete:
            self._active = self.cycle
        else:
            self._stop_timer()  # it waits in the pipeline, and reading is paused: the client is not to blame
        if self.parser.should_upgrade():
            self._decline_upgrade()

    def on_message_complete(self) -> None:
        """Stop the timer."""
        super().on_message_complete()
        self._stop_timer()

    # Called by uvicorn.

    def on_response_complete(self) -> None:
        """Continue with the next pipelined request; start the timer if its body is incomplete."""
        if self.pipeline:
            self._active = self.pipeline[-1][0]
            if self._active.more_body:
                self._start_timer()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self._close()

    def shutdown(self) -> None:
        """Close the connection once its requests are answered; do not wait for one that is incomplete."""
        if self._between_requests():
            self._close()
        else:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not valid HTTP."""
        self._refuse(400, "this is not a valid HTTP request.")

    def _decline_upgrade(self) -> None:
        """Answer as if no upgrade had been requested; but the parser stops here, so a body could not be read."""
        headers = dict(self.headers)
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        if has_body or self.scope["method"] == "CONNECT":
            self._refuse(400, "only HTTP/1.1 is supported. Send the request without Upgrade.")
        else:
            self.cycle.keep_alive = False
            self._ignore_input = True

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        self._stop_timer()
        self._receive_timer = self.loop.call_later(self.receive_seconds, self._receive_timeout)

    def _stop_timer(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _receive_timeout(self) -> None:
        self._receive_timer = None
        self._refuse(408, f"the request did not arrive completely within {self.receive_seconds:g} s.")

    def _refuse(self, status: int, message: str) -> None:
        """Refuse the request that is arriving: send an error, if no response has started, and close."""
        self._ignore_input = True
        refused = None if self._head_bytes is not None else self.cycle  # there is no cycle before the head is complete
        earlier = self._active
        if earlier is not None and earlier is not refused and not earlier.response_complete:
            self.pipeline.clear()
            earlier.keep_alive = False  # the request before it is answered first, then the connection is closed
            return
        if (refused is None or not refused.response_started) and not self.transport.is_closing():
            body = error_json(message)
            own = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            headers = [*self.server_state.default_headers, *own, (b"connection", b"close")]
            lines = b"".join(b"%s: %s\r\n" % each for each in headers)
            self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + body)
            if refused is None:
                self.metrics.refused(status)
            else:
                refused.scope["state"]["refused"] = status  # counted by the guard, under its path
        if refused is not None and not refused.response_complete:
            refused.disconnected = True
            refused.message_event.set()
        self._close()

    def _close(self) -> None:
        """Close the connection, even if the client never reads what it was sent."""
        self.transport.close()
        self.loop.call_later(self.receive_seconds, self.transport.abort)
