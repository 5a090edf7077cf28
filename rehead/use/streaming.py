"""Streaming detokenization: the text of tokens as they arrive, in complete characters.

A token may be part of a character (é is two bytes, 🎬 is four), and whether a word has a space before it can depend on
the previous token. So the text of a token is what the decoded text grows by, and an incomplete character at its end is
held back. Only the tokens since the last complete character are decoded again, so the cost per token is constant.
"""

from __future__ import annotations

from collections.abc import Iterable

from rehead.text.tokenizer import Tokenizer

INCOMPLETE = "\ufffd"  # the replacement character, to which invalid or incomplete UTF-8 is decoded
CONTEXT_TOKENS = 4  # of the text before, on which the space before the first new token depends


class TextStream:
    """Converts tokens that follow a text into the text they add."""

    def __init__(self, tokenizer: Tokenizer, before: Iterable[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.tokens = list(before)[-CONTEXT_TOKENS:]
        self.emitted = len(tokenizer.decode(self.tokens))  # characters of these tokens that were returned before
        self.new: list[int] = []  # tokens since the last complete character

    def add(self, token: int) -> str:
        """Add a token; return the text that is now complete, possibly empty."""
        self.new.append(token)
        decoded = self.tokenizer.decode(self.tokens + self.new)
        if decoded.endswith(INCOMPLETE):
            return self._emit(decoded[:-1])
        text = self._emit(decoded)
        self.tokens, self.new = self.new, []
        self.emitted = len(self.tokenizer.decode(self.tokens))
        return text

    def end(self) -> str:
        """Return what was held back: an incomplete character, shown as �."""
        return self._emit(self.tokenizer.decode(self.tokens + self.new))

    def _emit(self, decoded: str) -> str:
        text, self.emitted = decoded[self.emitted :], max(self.emitted, len(decoded))
        return text
