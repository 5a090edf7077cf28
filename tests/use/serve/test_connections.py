"""Writes of one turn of the event loop are sent together, in order, and before the connection closes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from rehead.use.serve.connections import CoalescingTransport


class Noted:
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.told


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
