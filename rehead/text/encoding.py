"""Streaming tokenization on all cores, with bounded memory.

Documents are collected into batches of about a million characters, and long documents are split at spaces into chunks,
which may fall into different batches: `tokenizers` needs some hundred bytes per token while it works. Two batches are
encoded concurrently, so that the cores stay busy while ids are extracted, written, and the next texts are read.

Measured: a corpus of 2 GB (2 million documents, 400 million tokens) needs 0.36 GB at its peak
(`test_two_gigabytes_are_encoded_in_less_than_one`), and so do six documents of 15 million characters. File to store
takes about 10 % longer than `encode_batch` of all texts at once (`bench/text.py`), which neither reads nor writes, and
does not extract the ids.
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
BATCH_CHUNKS = 20_000  # bounds the overhead per document where documents are short
CHUNK_CHARACTERS = 100_000
BATCHES_AT_ONCE = 2


class Chunk(NamedTuple):
    """A document, or a part of a long one, that is encoded separately."""

    text: str
    last: bool
    "Whether it is the document's last chunk."
    document: Document


class EncodedBatch(NamedTuple):
    """Token ids of consecutive chunks."""

    ids: NDArray[Any]
    "Concatenated, with an end-of-text token after each document."
    ends: NDArray[np.int64]
    "Ends of documents in `ids`, after the end-of-text token; the last document may continue in the next batch."
    bytes_read: int
    "Bytes of the source that were read so far."


def encode_stream(texts: Texts, tokenizer: Tokenizer, dtype: type[np.unsignedinteger[Any]]) -> Iterator[EncodedBatch]:
    """Encode the documents in order, and yield them in batches."""
    import numpy as np

    def encode(batch: list[Chunk], bytes_read: int) -> EncodedBatch:
        runs: list[list[int]] = []
        ends: list[int] = []
        tokens = 0
        for chunk, ids in zip(batch, _encode_batch(tokenizer, batch), strict=True):
            runs.append(ids)
            tokens += len(ids)
            if chunk.last:
                runs.append([tokenizer.eos])
                tokens += 1
                ends.append(tokens)
        return EncodedBatch(
            np.fromiter(chain.from_iterable(runs), dtype, count=tokens), np.array(ends, np.int64), bytes_read
        )

    running: deque[Future[EncodedBatch]] = deque()
    with ThreadPoolExecutor(BATCHES_AT_ONCE, "encode") as pool:
        try:
            for batch in _batches(texts, _splits_at_spaces(tokenizer)):
                running.append(pool.submit(encode, batch, texts.bytes_read))
                if len(running) > BATCHES_AT_ONCE:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def _batches(texts: Texts, splittable: bool) -> Iterator[list[Chunk]]:
    batch: list[Chunk] = []
    characters = 0
    for document in texts:
        for chunk in split_into_chunks(document) if splittable else [Chunk(document.text, True, document)]:
            batch.append(chunk)
            characters += len(chunk.text)
            if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_CHUNKS:
                yield batch
                batch, characters = [], 0
    if batch:
        yield batch


def split_into_chunks(document: Document) -> Iterator[Chunk]:
    """Split a long document into chunks that are encoded separately.

    It is split before a single space between two words, where most tokenizers start a new token anyway, so that the
    ids are those of the whole text. (For other tokenizers documents are not split: see `_splits_at_spaces`.) Only
    100,000 characters without such a space are split elsewhere.
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


def _splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Test whether a text that is split before a space gets the same ids as the whole text.

    Tokenizers that prepend a space to every text (`Prepend`, as in some SentencePiece models) fail this.
    """
    left, right = tokenizer.encode_batch(["the first words 12", " of a sentence"])
    return left + right == tokenizer.encode("the first words 12 of a sentence")


def _encode_batch(tokenizer: Tokenizer, batch: list[Chunk]) -> list[list[int]]:
    try:
        return tokenizer.encode_batch([chunk.text for chunk in batch])
    except UserError:
        for chunk in batch:
            if any("\ud800" <= character <= "\udfff" for character in chunk.text):
                raise UserError(
                    f"{location(chunk.document.source, chunk.document.line)}: contains a lone surrogate, which is not "
                    "a valid character. Repair the text, or remove the document."
                ) from None
        raise
