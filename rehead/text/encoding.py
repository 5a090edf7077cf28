"""Texts to ids as a stream, with all cores at work and little in memory.

Documents are gathered into batches of about a million characters, by length and not by number, and a document of
16 MB is cut at spaces into parts: `tokenizers` holds some hundred bytes per token while it works. Two batches are in
its hands at any time, so that the cores stay busy while the ids of one are taken out, and the caller writes the last
one and reads the next.

MEASURED
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from rehead.errors import UserError
from rehead.text.documents import Document, place
from rehead.text.readers import Texts
from rehead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH_CHARACTERS = 1_000_000
BATCH_DOCUMENTS = 20_000  # a short document costs more than its characters
PART_CHARACTERS = 100_000
BATCHES_AT_ONCE = 2


class EncodedBatch(NamedTuple):
    """Some documents as ids."""

    ids: NDArray[Any]
    "All of them in a row, each followed by the end mark."
    lengths: NDArray[np.int64]
    "Ids of each document, with its end mark."
    bytes_read: int
    "Bytes of the source that were read so far."


def encoded(texts: Texts, tokenizer: Tokenizer, dtype: type[np.unsignedinteger[Any]]) -> Iterator[EncodedBatch]:
    """Encode the documents in their order, batch after batch."""
    import numpy as np

    def encode(documents: list[Document]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        parts = [parts_of(document.text) for document in documents]
        encoded = iter(_encode_batch(tokenizer, documents, [part for each in parts for part in each]))
        pieces: list[list[int]] = []
        lengths = np.zeros(len(documents), np.int64)
        for number, each in enumerate(parts):
            for _ in each:
                pieces.append(next(encoded))
                lengths[number] += len(pieces[-1])
            pieces.append([tokenizer.eos])
            lengths[number] += 1
        return np.fromiter(chain.from_iterable(pieces), dtype, count=int(lengths.sum())), lengths

    running: deque[tuple[Future[tuple[NDArray[Any], NDArray[np.int64]]], int]] = deque()
    with ThreadPoolExecutor(BATCHES_AT_ONCE, "encode") as pool:
        try:
            for documents in _batches(texts):
                running.append((pool.submit(encode, documents), texts.bytes_read))
                if len(running) > BATCHES_AT_ONCE:
                    done, bytes_read = running.popleft()
                    yield EncodedBatch(*done.result(), bytes_read)
            while running:
                done, bytes_read = running.popleft()
                yield EncodedBatch(*done.result(), bytes_read)
        finally:
            for future, _ in running:
                future.cancel()


def _batches(texts: Texts) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in texts:
        batch.append(document)
        characters += len(document.text)
        if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_DOCUMENTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def parts_of(text: str) -> list[str]:
    """Cut a long text into parts that are encoded one by one.

    A cut is before a single space between two words, where every tokenizer we know begins a new word anyway, so that
    the ids are those of the whole. Only a stretch of 100,000 characters without such a space is cut elsewhere.
    """
    parts = []
    start = 0
    while len(text) - start > PART_CHARACTERS:
        stop = at = start + PART_CHARACTERS
        while (at := text.rfind(" ", start + 1, at)) > 0:
            if text[at - 1].isalnum() and text[at + 1].isalnum():
                stop = at
                break
        parts.append(text[start:stop])
        start = stop
    parts.append(text[start:])
    return parts


def _encode_batch(tokenizer: Tokenizer, documents: list[Document], parts: list[str]) -> list[list[int]]:
    try:
        return tokenizer.encode_batch(parts)
    except UserError:
        for document in documents:
            if not document.text.isascii() and any("\ud800" <= character <= "\udfff" for character in document.text):
                raise UserError(
                    f"{place(document.source, document.line)}: half of a surrogate pair, which is no character. "
                    "Repair the text, or remove the document."
                ) from None
        raise
