"""Writes of one turn are sent together, in order, and before the connection closes; the last answer is not lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rehead.use.serve.transport import CoalescingTransport


class Noted:
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("closed")

    def write_eof(self) -> None:
        self.told.append("end")

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        self.told.append("aborted")

    def is_closing(self) -> bool:
        return "closed" in self.told or "aborted" in self.told


def test_head_and_body_go_in_one_piece_at_the_next_turn() -> None:
    noted = Noted()

    async def main() -> None:
        transport = CoalescingTransport(cast("asyncio.Transport", noted), asyncio.get_running_loop())
        transport.write(b"head")
        transport.write(b"body")
        assert noted.told == []
        await asyncio.sleep(0)
        assert noted.told == [b"headbody"]
        transport.write(b"next")
        await asyncio.sleep(0)
        assert noted.told == [b"headbody", b"next"]

    asyncio.run(main())


def test_closing_sends_what_is_left_first_and_only_once() -> None:
    noted = Noted()

    async def main() -> None:
        transport = CoalescingTransport(cast("asyncio.Transport", noted), asyncio.get_running_loop())
        transport.write(b"last words")
        assert not transport.is_closing()
        transport.close()
        await asyncio.sleep(0)
        assert transport.is_closing()

    asyncio.run(main())
    assert noted.told == [b"last words", "closed"]


def test_an_answer_to_an_incomplete_request_is_left_time_to_be_read() -> None:
    noted = Noted()

    async def main() -> None:
        transport = CoalescingTransport(cast("asyncio.Transport", noted), asyncio.get_running_loop(), linger_bytes=100)
        transport.unread = True
        transport.write(b"413")
        transport.close()
        transport.close()
        assert noted.told == [b"413", "end"]
        assert transport.is_closing()
        transport.discard(60)
        transport.discard(40)
        assert noted.told == [b"413", "end"]
        transport.discard(1)
        assert noted.told == [b"413", "end", "aborted"]

    asyncio.run(main())


def test_it_does_not_wait_longer_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rehead.use.serve.transport.LINGER_SECONDS", 0.01)
    noted, gone = Noted(), Noted()

    async def main() -> None:
        for each, leaves in ((noted, False), (gone, True)):
            transport = CoalescingTransport(cast("asyncio.Transport", each), asyncio.get_running_loop(), linger_bytes=9)
            transport.unread = True
            transport.close()
            if leaves:
                transport.closed()
        await asyncio.sleep(0.1)

    asyncio.run(main())
    assert noted.told == ["end", "aborted"]
    assert gone.told == ["end"], "the timer outlives the connection"
