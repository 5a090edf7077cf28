"""Tokens as text while they come: whole characters only, and no character twice.

A token may hold a part of a character (é is two bytes, 🎬 is four), and whether a word is set off by a space can depend
on what stands before it. So a token's text is what the decoded text grows by, and a last character that is unfinished
is held back. Decoding looks back to the last token that ended a character only, so a long text costs no more per token.
"""

from __future__ import annotations

from collections.abc import Iterable

from rehead.text.tokenizer import Tokenizer

UNFINISHED = "\ufffd"  # what decoding shows for bytes that are no character, or none yet
LOOK_BACK = 4  # tokens of the text before; what precedes the first new one decides about its space


class TextStream:
    """Turns the tokens that follow a text into what it grows by."""

    def __init__(self, tokenizer: Tokenizer, before: Iterable[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.tokens = list(before)[-LOOK_BACK:]
        self.given = len(tokenizer.decode(self.tokens))  # characters of these tokens that were given before
        self.new: list[int] = []  # tokens since the last one that ended a character

    def add(self, token: int) -> str:
        """Take up the next token; give the text that is whole now, which may be none."""
        self.new.append(token)
        decoded = self.tokenizer.decode(self.tokens + self.new)
        if decoded.endswith(UNFINISHED):
            return self._give(decoded[:-1])
        text = self._give(decoded)
        self.tokens, self.new = self.new, []
        self.given = len(self.tokenizer.decode(self.tokens))
        return text

    def end(self) -> str:
        """Give what was held back: an unfinished character, shown as �."""
        return self._give(self.tokenizer.decode(self.tokens + self.new))

    def _give(self, decoded: str) -> str:
        text, self.given = decoded[self.given :], max(self.given, len(decoded))
        return text
