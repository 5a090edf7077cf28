"""Connections that do not wait for ever: uvicorn's, with a limit on their number and on how long a client may take.

A client that sends a byte at a time, or nothing, or never reads its answer, is cut off. One that leaves takes its
request along: what it asked for is no longer computed.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from rehead.use.serve.answers import to_json
from rehead.use.serve.guard import log_failure
from rehead.use.serve.lane import GoneError

STATES_TO_ANSWER_IN = (h11.IDLE, h11.SEND_RESPONSE)


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


class PatientProtocol(H11Protocol):
    """One connection. `limited_to` makes the class for a server's limits."""

    receive_seconds = 10.0
    most = 512

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 (those of uvicorn)
        super().__init__(*arguments, **settings)
        self._clock: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    @classmethod
    def limited_to(cls, connections: int, receive_seconds: float) -> type[PatientProtocol]:
        """Make a class of connections with these limits."""
        return type("LimitedProtocol", (cls,), {"most": connections, "receive_seconds": receive_seconds})

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
        if self.scope is not None and (claimed := self.scope["state"].get("job")) is not None:
            lane, job = claimed
            lane.drop(job, GoneError())
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Look at the clock with everything that comes: it runs from a request's first byte to its last."""
        if self._clock is None and self._between_requests():
            self._start_clock()
        try:
            super().data_received(data)
        except Exception as error:  # nothing that a client sends may end in a traceback
            log_failure(error)
            self.transport.abort()
            return
        self._look()

    def on_response_complete(self) -> None:
        """After an answer; a request that came in behind it has its own time."""
        super().on_response_complete()
        self._look()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing more has come."""
        self.transport.close()
        self._close_for_good()

    def pause_writing(self) -> None:
        """Give a client that does not read its answer some time to do so."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.receive_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: it has been read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def shutdown(self) -> None:
        """Close the connection when its answer is out; one that does not even send its request is not waited for."""
        if self._between_requests():
            self.transport.close()
            self._close_for_good()
        else:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(400, "this is no HTTP request that can be understood.")

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: an upgrade that nobody offers is answered as if it had not been asked for."""

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        """Stop the clock when a request is whole, or none has begun."""
        whole = self.cycle is not None and not self.cycle.more_body
        idle = self._between_requests() and self.cycle is not None and self.conn.their_state is h11.IDLE
        if whole or (idle and not self.conn.trailing_data[0]):
            self._stop_clock()
        elif self._clock is None and not self.transport.is_closing():
            self._start_clock()

    def _start_clock(self) -> None:
        self._clock = self.loop.call_later(self.receive_seconds, self._time_is_up)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _time_is_up(self) -> None:
        self._clock = None
        self._refuse(408, f"the request did not arrive whole within {self.receive_seconds:g} s.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer, if nothing has been answered yet, and close."""
        if self.conn.our_state in STATES_TO_ANSWER_IN and not self.transport.is_closing():
            body = to_json({"error": message})
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            response = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                if (output := self.conn.send(event)) is not None:
                    self.transport.write(output)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._close_for_good()

    def _close_for_good(self) -> None:
        """Close even if the client never takes what it was sent."""
        self.loop.call_later(self.receive_seconds, self.transport.abort)
