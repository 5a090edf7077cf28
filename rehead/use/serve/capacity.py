"""Which connections are open: a limit for all, one for each client, and a reserve for health probes.

When there is no room, the connection that has been idle longest makes room for a new one: one of the same client if
that client is at its limit, else one of the client that has the most. Without an idle one, the new connection goes to a
small reserve, in which only health probes are answered and everything else gets 503; there the oldest makes room.

A client is an IPv4 address or the /64 network of an IPv6 address, which is what a single machine is given. Behind a
proxy all connections are the proxy's.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

IDLE_GRACE = 1.0  # seconds: a connection that was used, or opened, just now is not idle
RESERVE = 16  # connections beyond the limit, for probes


class Evictable(Protocol):
    """A connection that can be told to make room."""

    def make_room(self) -> None:
        """Close at once."""


@dataclass
class Client:
    """The connections of one client."""

    open: int = 0
    idle: dict[Evictable, float] = field(default_factory=dict)
    "Since when each is idle, the longest first."


class Capacity:
    """The open connections of a server."""

    def __init__(self, total: int, per_client: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.per_client, self.clock = total, per_client, clock
        self.clients: dict[str, Client] = {}
        self._client_of: dict[Evictable, str] = {}
        self._reserve: dict[Evictable, None] = {}

    def admit(self, connection: Evictable, address: str) -> bool:
        """Take a connection in, and another out if need be; False: it is in the reserve, for probes alone."""
        name = client_of(address)
        if not self._has_room(name):
            if len(self._reserve) >= RESERVE:
                oldest = next(iter(self._reserve))
                self.release(oldest)
                oldest.make_room()
            self._reserve[connection] = None
            return False
        self._client_of[connection] = name
        client = self.clients.setdefault(name, Client())
        client.open += 1
        client.idle[connection] = self.clock()
        return True

    def busy(self, connection: Evictable) -> None:
        """Note that a request arrives."""
        if (name := self._client_of.get(connection)) is not None:
            self.clients[name].idle.pop(connection, None)

    def idle(self, connection: Evictable) -> None:
        """Note that all requests are answered."""
        if (name := self._client_of.get(connection)) is not None:
            self.clients[name].idle[connection] = self.clock()

    def release(self, connection: Evictable) -> None:
        """Note that a connection is closed; again is no harm."""
        self._reserve.pop(connection, None)
        if (name := self._client_of.pop(connection, None)) is not None:
            client = self.clients[name]
            client.open -= 1
            client.idle.pop(connection, None)
            if not client.open:
                del self.clients[name]

    def _has_room(self, name: str) -> bool:
        mine = self.clients.get(name)
        if mine is not None and mine.open >= self.per_client:
            return self._evict_idle([mine])
        return len(self._client_of) < self.total or self._evict_idle(self.clients.values())

    def _evict_idle(self, clients: Iterable[Client]) -> bool:
        """Close the connection that is idle longest, of the client with the most; False if there is none."""
        before = self.clock() - IDLE_GRACE
        some = [client for client in clients if client.idle and next(iter(client.idle.values())) <= before]
        if not some:
            return False
        longest = next(iter(max(some, key=lambda client: client.open).idle))
        self.release(longest)
        longest.make_room()
        return True


def client_of(address: str) -> str:
    """Name the client behind an address."""
    if ":" not in address:
        return address
    whole = ipaddress.IPv6Address(address)
    mapped = whole.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.IPv6Network((whole.packed[:8] + bytes(8), 64)))
