"""Connections that do not wait for ever: uvicorn's, with limits on their number, on a request's head, and on time.

A client that sends a byte at a time, or nothing, or never reads its answer, is cut off. One that leaves takes its
requests along: what it asked for is no longer computed. Requests that are sent without waiting for the answers before
them are answered one after the other.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from rehead.use.serve.answers import to_json
from rehead.use.serve.guard import SAFE_HEADERS, log_failure
from rehead.use.serve.lane import GoneError
from rehead.use.serve.metrics import Metrics

HEAD_BYTES = 65_536  # the longest head of a request
ABSOLUTE = re.compile(rb"[A-Za-z][^/?#:]*://([^/?#]*)(.*)", re.DOTALL)  # a whole address, which names the host


class Together:
    """A transport that sends what is written at the same time in one go, and is the other one in everything else.

    Uvicorn writes an answer's head and body one by one. Each way to the system lets go of the interpreter, and another
    thread that computes does not give it back at once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the transport has)
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Keep it until the loop's next turn."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Close when everything is sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._transport.write(data)


class PatientProtocol(HttpToolsProtocol):
    """One connection. `limited_to` makes the class for a server's limits."""

    receive_seconds: float
    most: int
    metrics: Metrics

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 (those of uvicorn)
        super().__init__(*arguments, **settings)
        self._clock: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._answering: RequestResponseCycle | None = None
        "The request that is being answered, or was the last to be; `cycle` is the last that has come."
        self._head: int | None = None
        "Bytes that have come of a request's head; none, where no head has begun."
        self._deaf = False
        "Nothing more that comes is looked at."

    @classmethod
    def limited_to(cls, connections: int, receive_seconds: float, metrics: Metrics) -> type[PatientProtocol]:
        """Make a class of connections with these limits, which are counted here."""
        own = {"most": connections, "receive_seconds": receive_seconds, "metrics": metrics}
        return type("LimitedProtocol", (cls,), own)

    # What the transport calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, if there is room; its first request has to come soon."""
        super().connection_made(cast("asyncio.Transport", Together(transport, self.loop)))
        if len(self.connections) > self.most:
            self._refuse(503, "too many connections are open. Try again later.")
            return
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what the client has asked for."""
        self._stop_clock()
        self.pipeline.clear()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
            if (claimed := self._answering.scope["state"].get("job")) is not None:
                lane, job = claimed
                lane.drop(job, GoneError())
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what comes."""
        if self._deaf:
            return
        try:
            super().data_received(data)
        except Exception as error:  # nothing that a client sends may end in a traceback
            log_failure(error)
            self.transport.abort()
            return
        if self._head is not None:
            self._head += len(data)
            if self._head > HEAD_BYTES:
                self._refuse(431, f"the request's head has more than {HEAD_BYTES:,} bytes.")
        if self._clock is None and self._between_requests() and self.timeout_keep_alive_task is None:
            self._start_clock()  # an empty line between requests does not stop the time

    def pause_writing(self) -> None:
        """Give a client that does not read its answer some time to do so."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.receive_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: it has been read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    # What the parser calls. The clock runs from a request's first byte to its last.

    def on_message_begin(self) -> None:
        """Start the clock."""
        super().on_message_begin()
        self._head = 0
        self._start_clock()

    def on_headers_complete(self) -> None:
        """Answer the request, if none before it is still being answered."""
        if absolute := ABSOLUTE.fullmatch(self.url):
            authority, rest = absolute.groups()
            self.url = rest if rest.startswith(b"/") else b"/" + rest
            self.headers[:] = [(b"host", authority), *(each for each in self.headers if each[0] != b"host")]
        super().on_headers_complete()
        self._head = None
        if self._answering is None or self._answering.response_complete:
            self._answering = self.cycle
        else:
            self._stop_clock()  # it waits in the pipeline, and nothing more is read: that is not the client's fault

    def on_message_complete(self) -> None:
        """Stop the clock."""
        super().on_message_complete()
        self._stop_clock()

    # What uvicorn calls.

    def on_response_complete(self) -> None:
        """Go on with the next request, if it has come already; if not all of it has, its time begins."""
        if self.pipeline:
            self._answering = self.pipeline[-1][0]
            if self._answering.more_body:
                self._start_clock()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing more has come."""
        self._close()

    def shutdown(self) -> None:
        """Close the connection when its answers are out; one that does not even send its request is not waited for."""
        if self._between_requests():
            self._close()
        else:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(400, "this is no HTTP request that can be understood.")

    def _unsupported_upgrade_warning(self) -> None:
        """Answer as if no upgrade had been asked for; but the parser has stopped, and a body would not be read."""
        named = dict(self.headers)
        body = b"transfer-encoding" in named or named.get(b"content-length", b"0") != b"0"
        if body or self.scope["method"] == "CONNECT":
            self._refuse(400, "nothing but HTTP/1.1 is spoken here. Send the request without Upgrade.")
        else:
            self.cycle.keep_alive = False
            self._deaf = True

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_clock(self) -> None:
        self._stop_clock()
        self._clock = self.loop.call_later(self.receive_seconds, self._time_is_up)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _time_is_up(self) -> None:
        self._clock = None
        self._refuse(408, f"the request did not arrive whole within {self.receive_seconds:g} s.")

    def _refuse(self, status: int, message: str) -> None:
        """Refuse the request that is coming: answer, where that is still possible, and close."""
        self._deaf = True
        refused = None if self._head is not None else self.cycle  # one whose head has not come whole has no cycle yet
        before = self._answering
        if before is not None and before is not refused and not before.response_complete:
            self.pipeline.clear()
            before.keep_alive = False  # what was asked for in order is answered first, and that is the end
            return
        if (refused is None or not refused.response_started) and not self.transport.is_closing():
            body = to_json({"error": message})
            own = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            headers = [*self.server_state.default_headers, *own, *SAFE_HEADERS, (b"connection", b"close")]
            lines = b"".join(b"%s: %s\r\n" % each for each in headers)
            self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + body)
            if refused is None:
                self.metrics.refused(status)
            else:
                refused.scope["state"]["refused"] = status  # the guard counts it, by its path
        if refused is not None and not refused.response_complete:
            refused.disconnected = True
            refused.message_event.set()
        self._close()

    def _close(self) -> None:
        """Close, even if the client never takes what it was sent."""
        self.transport.close()
        self.loop.call_later(self.receive_seconds, self.transport.abort)
