"""Which page has which text on its screen: a text that one page was given is not given to another.

A lease ends when the text is dealt with, when its page asks for texts without naming it any more, or after a while
without a word from the page. After a restart of the server a page names the texts that it still shows, and so has them
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SECONDS = 60.0  # since the page was last heard of: it asks for the state every few seconds


@dataclass
class Lease:
    """A text on somebody's screen."""

    page: str
    until: float


class Leases:
    """All texts on screens. The caller sees to it that one thread at a time is here."""

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock = seconds, clock
        self._leases: dict[int, Lease] = {}

    def holds(self, text: int) -> str | None:
        """Name the page that has a text."""
        lease = self._leases.get(text)
        return lease.page if lease is not None and lease.until > self.clock() else None

    def free(self, text: int, page: str) -> bool:
        """Tell whether a page may have a text."""
        return self.holds(text) in (None, page)

    def give(self, text: int, page: str) -> bool:
        """Give a text to a page, unless another has it."""
        if not self.free(text, page):
            return False
        self._leases[text] = Lease(page, self.clock() + self.seconds)
        return True

    def keep(self, page: str, texts: Iterable[int]) -> None:
        """Let a page have exactly these texts, as far as no other has them."""
        kept = {text for text in texts if self.give(text, page)}
        for text in [text for text, lease in self._leases.items() if lease.page == page and text not in kept]:
            del self._leases[text]

    def release(self, text: int) -> None:
        """Note that a text was dealt with."""
        self._leases.pop(text, None)
