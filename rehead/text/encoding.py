"""Texts to ids as a stream, with all cores at work and little in memory.

Documents are gathered into batches of about a million characters, by length and not by number, and a long document
is cut at spaces into parts that may go into several batches: `tokenizers` holds some hundred bytes per token while it
works. Two batches are in its hands at any time, so that the cores stay busy while the ids of one are taken out, and
the caller writes the last one and reads the next.

Measured: a corpus of 2 GB (2 million documents, 400 million tokens) takes 0.36 GB at its peak
(`test_two_gigabytes_are_encoded_in_less_than_one`), and six documents of 15 million characters take as much. File to
store takes about a tenth longer than `encode_batch` of all texts at once (`bench/text.py`), which does not read, write,
or take the ids out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from rehead.errors import UserError
from rehead.text.documents import Document, location
from rehead.text.readers import Texts
from rehead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH_CHARACTERS = 1_000_000
BATCH_CHUNKS = 20_000  # a short document costs more than its characters
CHUNK_CHARACTERS = 100_000
BATCHES_AT_ONCE = 2


class Chunk(NamedTuple):
    """A document, or a part of a long one."""

    text: str
    last: bool
    "Whether the document ends with it."
    document: Document


class EncodedBatch(NamedTuple):
    """Some documents, or parts of them, as ids."""

    ids: NDArray[Any]
    "All of them in a row, with an end mark after each document."
    ends: NDArray[np.int64]
    "Where in `ids` documents end, end mark included; the last one may go on in the next batch."
    bytes_read: int
    "Bytes of the source that were read so far."


def encode_stream(texts: Texts, tokenizer: Tokenizer, dtype: type[np.unsignedinteger[Any]]) -> Iterator[EncodedBatch]:
    """Encode the documents in their order, batch after batch."""
    import numpy as np

    def encode(batch: list[Chunk], bytes_read: int) -> EncodedBatch:
        pieces: list[list[int]] = []
        ends: list[int] = []
        tokens = 0
        for part, ids in zip(batch, _encode_batch(tokenizer, batch), strict=True):
            pieces.append(ids)
            tokens += len(ids)
            if part.last:
                pieces.append([tokenizer.eos])
                tokens += 1
                ends.append(tokens)
        return EncodedBatch(
            np.fromiter(chain.from_iterable(pieces), dtype, count=tokens), np.array(ends, np.int64), bytes_read
        )

    running: deque[Future[EncodedBatch]] = deque()
    with ThreadPoolExecutor(BATCHES_AT_ONCE, "encode") as pool:
        try:
            for batch in _batches(texts, _cuts_at_spaces(tokenizer)):
                running.append(pool.submit(encode, batch, texts.bytes_read))
                if len(running) > BATCHES_AT_ONCE:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def _batches(texts: Texts, cuttable: bool) -> Iterator[list[Chunk]]:
    batch: list[Chunk] = []
    characters = 0
    for document in texts:
        for part in split_into_chunks(document) if cuttable else [Chunk(document.text, True, document)]:
            batch.append(part)
            characters += len(part.text)
            if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_CHUNKS:
                yield batch
                batch, characters = [], 0
    if batch:
        yield batch


def split_into_chunks(document: Document) -> Iterator[Chunk]:
    """Cut a long document into parts that are encoded one by one.

    A cut is before a single space between two words, where a tokenizer begins a new word anyway (one that does not is
    given whole documents: see `_cuts_at_spaces`), so that the ids are those of the whole. Only a stretch of 100,000
    characters without such a space is cut elsewhere.
    """
    text = document.text
    start = 0
    while len(text) - start > CHUNK_CHARACTERS:
        stop = at = start + CHUNK_CHARACTERS
        while (at := text.rfind(" ", start + 1, at)) > 0:
            if text[at - 1].isalnum() and text[at + 1].isalnum():
                stop = at
                break
        yield Chunk(text[start:stop], False, document)
        start = stop
    yield Chunk(text[start:], True, document)


def _cuts_at_spaces(tokenizer: Tokenizer) -> bool:
    """Try whether two parts of a text, cut before a space, have the ids of the whole text.

    A tokenizer that puts a space before every text (`Prepend`, as some SentencePiece models have it) fails this.
    """
    left, right = tokenizer.encode_batch(["the first words 12", " of a sentence"])
    return left + right == tokenizer.encode("the first words 12 of a sentence")


def _encode_batch(tokenizer: Tokenizer, batch: list[Chunk]) -> list[list[int]]:
    try:
        return tokenizer.encode_batch([part.text for part in batch])
    except UserError:
        for part in batch:
            if any("\ud800" <= character <= "\udfff" for character in part.text):
                raise UserError(
                    f"{location(part.document.source, part.document.line)}: half of a surrogate pair, which is no "
                    "character. Repair the text, or remove the document."
                ) from None
        raise
