"""Number of tokens of texts: counted, or estimated if there is no tokenizer yet.

The estimate trains a tokenizer of the default size on one half of a sample of a million characters, and measures tokens
per character on the other half. A vocabulary from so little text splits words into slightly more tokens than the final
one: for 25,000 IMDb reviews the estimate is 4 % too high.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rehead.text.documents import Document

if TYPE_CHECKING:
    from rehead.text.tokenizer import Tokenizer

SAMPLE_CHARACTERS = 1_000_000
BATCH = 1024  # texts encoded at once


class TokenCounter:
    """Counts the tokens of a stream of texts; without a tokenizer, collects an evenly spaced sample of the texts."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self.tokenizer = tokenizer
        self.tokens = self.characters = 0
        self.sample: list[str] = []
        self._held, self._stride = 0, 1

    def watch(self, texts: Iterator[str]) -> Iterator[str]:
        """Yield the texts unchanged, and count them."""
        waiting: list[str] = []
        for number, text in enumerate(texts):
            yield text
            self.characters += len(text)
            if self.tokenizer is None:
                self._take(number, text)
                continue
            waiting.append(text)
            if len(waiting) == BATCH:
                self.tokens += count_tokens(self.tokenizer, waiting)
                waiting = []
        if self.tokenizer is not None and waiting:
            self.tokens += count_tokens(self.tokenizer, waiting)

    def _take(self, number: int, text: str) -> None:
        """Sample every text; whenever the sample is too large, drop every other one and double the stride."""
        if number % self._stride:
            return
        self.sample.append(text)
        self._held += len(text)
        while self._held > SAMPLE_CHARACTERS and len(self.sample) > 2:
            self.sample = self.sample[::2]
            self._held = sum(map(len, self.sample))
            self._stride *= 2


def estimate_tokens(counters: list[TokenCounter]) -> None:
    """Estimate the token counts, with one vocabulary for all, trained on a sample of the first."""
    from rehead.text.vocabulary import train_tokenizer

    train = counters[0].sample[::2]
    tokenizer = train_tokenizer([Document(text[:SAMPLE_CHARACTERS], "sample", 1) for text in train], quiet=True)
    for counter in counters:
        unseen = (counter.sample[1::2] if counter is counters[0] else counter.sample) or counter.sample
        texts = [text[:SAMPLE_CHARACTERS] for text in unseen]
        counter.tokens = round(counter.characters * count_tokens(tokenizer, texts) / max(1, sum(map(len, texts))))


def count_tokens(tokenizer: Tokenizer, texts: list[str]) -> int:
    """Count the tokens of some texts."""
    return sum(map(len, tokenizer.encode_batch(texts)))
