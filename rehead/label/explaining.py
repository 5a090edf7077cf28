"""Which words of a text carried the quick head's guess: how much the log-odds fall without each.

As `rehead predict --explain` does it (`rehead.use.explain`), for views that need not read the text again.

Shapes: K classes, D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.label.blocks import Block
from rehead.label.head import Head
from rehead.text.spans import align_tokens, word_spans
from rehead.use.explain import log_odds_drop
from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHARACTERS = 20_000  # of a longer text, none is explained
SHOWN = 40  # words with the largest weights


def word_weights(head: Head, blocks: Sequence[Block], text: str, label: int) -> list[tuple[int, int, float]]:
    """Weigh the words of a text for a class: begin, end and weight of those that count most, in order."""
    spans = word_spans(text)
    if not spans or len(text) > CHARACTERS or head.weight.shape[1] < 2 - head.multilabel:
        return []
    numbers: dict[str, int] = {}
    words = np.array([numbers.setdefault(text[begin:end].casefold(), len(numbers)) for begin, end in spans], np.int64)
    scores: NDArray[Any] = np.tile(head.bias.astype(np.float64), (1 + len(numbers), 1))
    begin = 0
    for block in blocks:
        weight = head.weight[begin : begin + block.matrix.shape[1]]
        begin += block.matrix.shape[1]
        encoded, groups = _grouped(block, text, spans, words, len(numbers))
        if block.view.tokens_without(encoded, groups):  # it would read the text again for every word
            continue
        scores += block.view.scores_without(weight.T, encoded, groups, lambda: None)
    scores *= 2 * head.temperature if head.multilabel else head.temperature
    drops = log_odds_drop(scores, label, multilabel=head.multilabel)
    each = drops[words] / np.bincount(words, minlength=len(numbers))[words]
    top = np.sort(np.argsort(-np.abs(each), kind="stable")[:SHOWN])
    return [(*spans[place], round(float(each[place]), 4)) for place in top.tolist()]


def _grouped(
    block: Block, text: str, spans: list[tuple[int, int]], words: NDArray[np.int64], count: int
) -> tuple[EncodedTexts, Groups]:
    """Group the tokens of a text by the word that they are of."""
    ids: list[int] = []
    tokens: list[tuple[int, int]] = []
    if block.tokenizer is not None and block.view.of_base:
        ids, tokens = block.tokenizer.encode_with_spans(text)
    touch = align_tokens(tokens, spans)
    named = [(span, number) for span, number in zip(spans, words.tolist(), strict=True)]
    return EncodedTexts([text], ids=[np.array(ids, np.int64)]), Groups(touch.token, words[touch.word], count, named)
