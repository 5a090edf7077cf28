"""uvicorn's HTTP protocol with the limits that it lacks: connections, what is not body, time to send and to read.

A client that sends a byte at a time, or nothing, or never reads its response, is disconnected. A client that
disconnects cancels its requests. Pipelined requests are answered in order, and parsed as they are answered.

Everything of a request that is not its body is limited: its head, and behind it chunk sizes, chunk extensions and
trailers, which may grow with the body but not without it. Trailers are discarded: uvicorn appends them to the headers,
where they would count as headers. A connection whose request is answered before it has arrived completely, as with 401
or 413, is closed, and nothing more of it is parsed.

uvicorn has an option `limit_concurrency`, but that is checked when a request has arrived, so connections that send none
are not limited; its other options set no limit for the head, nor a time for a request to arrive or a response to be
read. So the protocol class is extended, at the methods that asyncio, httptools and uvicorn's server call.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Literal, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from rehead.use.serve.batching import ClientDisconnectedError
from rehead.use.serve.capacity import Capacity
from rehead.use.serve.guard import PROBES, log_failure
from rehead.use.serve.metrics import Metrics
from rehead.use.serve.responses import error_json
from rehead.use.serve.transport import CoalescingTransport

MAX_HEAD_BYTES = 65_536  # request line and headers; and all that is neither head nor body
PIECE_BYTES = 4096  # parsed at once: a limit is exceeded by less than that
PROBE_SECONDS = 2.0  # for a request to arrive on a connection of the reserve
ABSOLUTE_URL = re.compile(rb"[A-Za-z][^/?#:]*://([^/?#]*)(.*)", re.DOTALL)  # as in requests to a proxy
NO_ROOM = "too many open connections. Try again later."


class RefusedError(Exception):
    """Raised in a callback of the parser: the request was refused, and nothing more is parsed."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection. `with_limits` makes the class for a server's limits."""

    capacity: Capacity
    receive_seconds: float
    body_bytes: int
    metrics: Metrics
    transport: CoalescingTransport  # type: ignore[assignment]

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 (those of uvicorn)
        super().__init__(*arguments, **settings)
        self._receive_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._active: RequestResponseCycle | None = None
        "The request that is being answered, or was answered last; `cycle` is the last one received."
        self._arriving: Literal["nothing", "head", "body"] = "nothing"
        self._overhead = 0
        "Bytes received of an incomplete head; after it, of what is not body, less what the body allows."
        self._unparsed = b""
        "What was received and waits until earlier requests are answered."
        self._keep_alive = False
        "Whether the connection may be kept once the last request has arrived completely."
        self._ignore_input = False
        "Whether further data from the client is discarded."
        self._probes_only = False

    @classmethod
    def with_limits(
        cls, capacity: Capacity, receive_seconds: float, body_bytes: int, metrics: Metrics
    ) -> type[LimitedProtocol]:
        """Make a subclass with these limits; requests refused before they are parsed are counted in the metrics."""
        limits = {"capacity": capacity, "receive_seconds": receive_seconds, "body_bytes": body_bytes}
        return type("ConfiguredProtocol", (cls,), {**limits, "metrics": metrics})

    # Called by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; its first request has to arrive in time."""
        wrapped = CoalescingTransport(
            transport, self.loop, linger_bytes=self.body_bytes + MAX_HEAD_BYTES, flush_seconds=self.receive_seconds
        )
        super().connection_made(cast("asyncio.Transport", wrapped))
        self._probes_only = not self.capacity.admit(self, self.client[0] if self.client else "")
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the client's requests, and all timers, which would keep this object alive."""
        self.capacity.release(self)
        self._stop_timer()
        self._stop_write_timer()
        self._unset_keepalive_if_required()
        self.transport.closed()
        self.pipeline.clear()
        self._unparsed = b""
        if self._active is not None and not self._active.response_complete:
            self._active.disconnected = True
            self._active.message_event.set()
            if (running := self._active.scope["state"].get("job")) is not None:
                worker, job = running
                worker.cancel(job, ClientDisconnectedError())
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what was received, within the limits."""
        if self.transport.is_closing():
            self.transport.discard(len(data))
        elif not self._ignore_input:
            self._unparsed += data
            self._parse()

    def _parse(self) -> None:
        """Parse piece by piece, until a request waits for the one before it, or the connection is to be closed."""
        while self._unparsed and not self._ignore_input and not self.transport.is_closing():
            if self.pipeline:
                self.flow.pause_reading()
                return
            room = min(PIECE_BYTES, MAX_HEAD_BYTES - self._overhead)
            piece, self._unparsed = self._unparsed[:room], self._unparsed[room:]
            self._overhead += len(piece)
            try:
                super().data_received(piece)
            except Exception as error:  # no input may end in a traceback
                log_failure(error)
                self.transport.abort()
                return
            if self._arriving == "nothing":
                self._overhead = 0
            elif self._overhead >= MAX_HEAD_BYTES and not self._ignore_input:
                self._refuse_overhead()
        if self._receive_timer is None and self._between_requests() and self.timeout_keep_alive_task is None:
            self._start_timer()  # an empty line between requests has stopped uvicorn's keep-alive timer

    def pause_writing(self) -> None:
        """Disconnect a client that does not read its response in time."""
        super().pause_writing()
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(self.receive_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that timer: the response has been read."""
        super().resume_writing()
        self._stop_write_timer()

    # Called by the parser. The timer runs from the first byte of a request to its last.

    def on_message_begin(self) -> None:
        """Start the timer."""
        super().on_message_begin()
        self._arriving = "head"
        self.transport.unread = True
        self.capacity.busy(self)
        self._start_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; discard a trailer."""
        if self._arriving == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Answer the request, unless an earlier one is still being answered."""
        if absolute := ABSOLUTE_URL.fullmatch(self.url):
            authority, rest = absolute.groups()
            self.url = rest if rest.startswith(b"/") else b"/" + rest
            others = [each for each in self.headers if each[0] != b"host"]
            if len(self.headers) - len(others) < 2:  # the guard refuses more than one
                self.headers[:] = [(b"host", authority), *others]
        if self._probes_only and self.url.partition(b"?")[0].decode("latin-1") not in PROBES:
            self._refuse(503, NO_ROOM)
            raise RefusedError
        super().on_headers_complete()
        self._arriving, self._overhead = "body", 0
        self._keep_alive, self.cycle.keep_alive = self.cycle.keep_alive and not self._probes_only, False
        if self._active is None or self._active.response_complete:
            self._active = self.cycle
        else:
            self._stop_timer()  # it waits in the pipeline, and reading is paused: the client is not to blame
        if self.parser.should_upgrade():
            self._decline_upgrade()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body; it allows as many bytes of framing."""
        self._overhead = max(0, self._overhead - 2 * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer; the connection may be kept."""
        super().on_message_complete()
        self._arriving, self._overhead = "nothing", 0
        if not self.cycle.response_started:
            self.transport.unread = False
            self.cycle.keep_alive = self._keep_alive
        self._stop_timer()

    # Called by uvicorn.

    def on_response_complete(self) -> None:
        """Continue with the next pipelined request; start the timer if its body is incomplete."""
        if self.pipeline:
            self._active = self.pipeline[-1][0]
            if self._active.more_body:
                self._start_timer()
        elif self._arriving == "nothing":
            self.capacity.idle(self)
        super().on_response_complete()
        if self._unparsed:
            self.loop.call_soon(self._parse)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self.transport.close()

    def shutdown(self) -> None:
        """Close the connection once its requests are answered; do not wait for one that is incomplete."""
        if self._between_requests():
            self.transport.close()
        else:
            self._keep_alive = self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not valid HTTP, unless it was refused for another reason."""
        if not self._ignore_input:
            self._refuse(400, "this is not a valid HTTP request.")

    # Called by `Capacity`.

    def make_room(self) -> None:
        """Close at once, for another connection."""
        if self._probes_only:
            self._refuse(503, NO_ROOM)
        else:
            self.transport.abort()

    def _decline_upgrade(self) -> None:
        """Answer as if no upgrade had been requested; but the parser stops here, so a body could not be read."""
        headers = dict(self.headers)
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        if has_body or self.scope["method"] == "CONNECT":
            self._refuse(400, "only HTTP/1.1 is supported. Send the request without Upgrade.")
        else:
            self._keep_alive = False
            self._ignore_input = True

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        self._stop_timer()
        seconds = min(PROBE_SECONDS, self.receive_seconds) if self._probes_only else self.receive_seconds
        self._receive_timer = self.loop.call_later(seconds, self._receive_timeout)

    def _stop_timer(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _receive_timeout(self) -> None:
        self._receive_timer = None
        if self._probes_only:
            self._refuse(503, NO_ROOM)
        else:
            self._refuse(408, f"the request did not arrive completely within {self.receive_seconds:g} s.")

    def _refuse_overhead(self) -> None:
        if self._arriving == "head":
            self._refuse(431, f"the request line and headers exceed the limit of {MAX_HEAD_BYTES:,} bytes.")
        else:
            self._refuse(413, f"chunk extensions and trailers exceed the limit of {MAX_HEAD_BYTES:,} bytes.")

    def _refuse(self, status: int, message: str) -> None:
        """Refuse the request that is arriving: send an error, if no response has started, and close."""
        self._ignore_input = True
        self._unparsed = b""
        refused = None if self._arriving == "head" else self.cycle  # there is no cycle before the head is complete
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
        self.transport.close()
