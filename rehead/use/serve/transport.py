"""A transport that sends the writes of one turn together, and that closes without losing its last answer.

A socket that is closed while the client still sends makes the operating system reset the connection, and the client may
never read why it was refused (RFC 9112, section 9.6). So an answer to a request that has not arrived completely is
followed by the end of the stream; what still arrives is discarded, unparsed, within a number of bytes and a second.
"""

from __future__ import annotations

import asyncio
from typing import Any

LINGER_SECONDS = 1.0


class CoalescingTransport:
    """A transport that joins the writes of one turn of the event loop into one system call.

    uvicorn writes the head and the body of a response separately. Every system call releases the GIL, and a thread that
    computes does not give it back at once.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        *,
        linger_bytes: int = 0,
        flush_seconds: float = 10.0,
    ) -> None:
        """`linger_bytes` are discarded at most of what still arrives; `flush_seconds` has the client to read."""
        self._transport, self._loop = transport, loop
        self._linger_bytes, self._flush_seconds = linger_bytes, flush_seconds
        self._buffer: list[bytes] = []
        self._end: asyncio.TimerHandle | None = None
        self._lingering = False
        self.unread = False
        "Whether a request is arriving, of which nothing more will be parsed once the transport is closed."

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the transport has)
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Buffer the data until the next turn of the event loop."""
        if not self._buffer:
            self._loop.call_soon(self._flush)
        self._buffer.append(data)

    def is_closing(self) -> bool:
        """Tell whether the transport is closed, or about to be."""
        return self._lingering or self._transport.is_closing()

    def close(self) -> None:
        """Send what is buffered, then close, whether or not the client reads it; linger if it is still sending."""
        self._flush()
        if self.is_closing():
            return
        if self.unread:
            self._lingering = True
            self._transport.write_eof()
            self._transport.resume_reading()  # to notice that the client has closed, too
            self._end = self._loop.call_later(LINGER_SECONDS, self._transport.abort)
        else:
            self._transport.close()
            self._end = self._loop.call_later(self._flush_seconds, self._transport.abort)

    def discard(self, count: int) -> None:
        """Count what arrives on a closing connection; beyond the limit, reset it."""
        self._linger_bytes -= count
        if self._linger_bytes < 0:
            self._transport.abort()

    def closed(self) -> None:
        """Forget the timer: the connection is gone."""
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _flush(self) -> None:
        if self._buffer:
            data = b"".join(self._buffer)
            self._buffer.clear()
            self._transport.write(data)
