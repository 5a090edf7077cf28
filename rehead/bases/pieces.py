"""Texts that are longer than an encoder reads at once: their beginning, their end, both, or windows over all of it.

A text that fits is one piece, tokenized as ever. Of a longer one, the tokens between the special ones (and after the
prompt) are cut by the rules of `rehead.text.long_documents`, and each piece gets the special tokens and the prompt of a
whole text. Windows of a text are of equal length. There are `most` of them at most, evenly spaced, the first and the
last among them: that bounds the work of a text.

Shapes: N texts, P pieces.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers
from torch import Tensor

from rehead.bases.tokens import pieces_around
from rehead.errors import UserError
from rehead.text.long_documents import LongRule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MOST_WINDOWS = 4  # of a text: about 1,000 or 2,000 tokens, which few reviews or mails exceed


@dataclass(frozen=True)
class Cutting:
    """What is read of a text that is too long to be read at once."""

    rule: LongRule = "head"
    most: int = MOST_WINDOWS
    "Windows of a text, at most."


HEAD = Cutting()


@dataclass
class TextPieces:
    """Texts as token ids, in pieces."""

    document: Ints
    "Which text each piece is of, ascending: (P,)."
    ids: list[list[int]]
    "Special tokens included."

    def means(self, vectors: NDArray[np.float32], texts: int) -> NDArray[np.float32]:
        """Average the vectors (P, W) of the pieces of each text: (N, W)."""
        if len(vectors) == texts:
            return vectors
        begins, counts = np.unique(self.document, return_index=True, return_counts=True)[1:]
        return (np.add.reduceat(vectors, begins) / counts[:, None]).astype(np.float32)


def special_tokens(tokenizer: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """Give the ids that a tokenizer puts before and after every text, such as [CLS] and [SEP]."""
    bare, whole = (tokenizer.encode("a", add_special_tokens=each).ids for each in (False, True))
    begin = next((at for at in range(len(whole)) if whole[at : at + len(bare)] == bare), 0)
    return whole[:begin], whole[begin + len(bare) :]


class TextCutter:
    """Tokenizes the texts of an encoder, and cuts those that are too long."""

    def __init__(
        self,
        token_ids: Callable[[Sequence[str]], list[list[int]]],
        tokenizer: tokenizers.Tokenizer | None,
        *,
        longest: int | None,
        prompt: str,
        lowercase: bool,
        root: Path,
    ) -> None:
        """Tokenize by `token_ids`, which reads the beginning of a text; without a `tokenizer` there is nothing more."""
        self.token_ids, self.tokenizer, self.root = token_ids, tokenizer, root
        self.longest, self.prompt, self.lowercase = longest, prompt, lowercase

    def cut(self, texts: Sequence[str], how: Cutting) -> TextPieces:
        """Tokenize texts, and cut those that are too long."""
        whole = self.token_ids(texts)
        long = [place for place, each in enumerate(whole) if self.longest is not None and len(each) >= self.longest]
        if how.rule == "head" or not long:
            return TextPieces(np.arange(len(whole)), whole)
        given = [texts[place].strip() for place in long]
        given = [text.lower() for text in given] if self.lowercase else given
        stated = self.stated(how)
        every = self._around[0].encode_batch_fast(given, add_special_tokens=False)
        pieces = [[each] for each in whole]
        for place, bare in zip(long, every, strict=True):
            pieces[place] = pieces_around(whole[place], bare.ids, stated)
        document = np.repeat(np.arange(len(pieces)), [len(each) for each in pieces])
        return TextPieces(document, [part for each in pieces for part in each])

    def encode(
        self,
        texts: Sequence[str],
        how: Cutting,
        batches: Callable[[Sequence[int]], Iterable[Ints]],
        vectors_of: Callable[[Sequence[list[int]]], Tensor],
    ) -> NDArray[np.float32]:
        """Encode one text or more in batches of pieces, the vectors of the pieces of a text averaged: (N, W)."""
        pieces = self.cut(texts, how)
        order, found = [], []
        for members in batches([len(each) for each in pieces.ids]):
            order.append(members)
            found.append(vectors_of([pieces.ids[place] for place in members]).numpy())
        vectors = np.concatenate(found)[np.argsort(np.concatenate(order))]
        return pieces.means(vectors, len(texts))

    def stated(self, how: Cutting) -> dict[str, Any]:
        """State how long texts are cut, as `rehead.bases.tokens` and so exports take it."""
        _, before, after = self._around
        return {"longest": self.longest, "long": how.rule, "windows": how.most, "before": before, "after": after}

    @functools.cached_property
    def _around(self) -> tuple[tokenizers.Tokenizer, list[int], list[int]]:
        """A tokenizer that does not truncate, and what stands before and after the tokens of a piece."""
        if self.tokenizer is None:
            raise UserError(
                f"{self.root}: its tokenizer has no tokenizer.json, so it reads the beginning of long texts only: give "
                "--long head. Or make one: AutoTokenizer.from_pretrained('DIR').save_pretrained('DIR')."
            )
        copy = tokenizers.Tokenizer.from_str(self.tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        before, after = special_tokens(copy)
        prompt = copy.encode(self.prompt, add_special_tokens=False).ids if self.prompt else []
        return copy, [*before, *prompt], after
