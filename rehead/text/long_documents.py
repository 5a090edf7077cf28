"""Truncate documents that are longer than the maximum length, or split them into windows: the option `--long`.

    head         keep the beginning
    tail         keep the end
    head+tail    keep both: a quarter of the maximum length from the beginning, three quarters from the end
    windows      keep everything, as windows of equal length with as little overlap as possible

A piece is (document, start, head, tail): `head` ids from `start` on, then the last `tail` ids of the document. So the
pieces of a corpus are four arrays, computed from the lengths; ids are read only when a batch needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from rehead.errors import ConfigError, UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LongRule = Literal["head", "tail", "head+tail", "windows"]
UNLIMITED = 2**40  # tokens: longer than any document


class Pieces(NamedTuple):
    """Pieces of documents, in document order; a document that is short enough is one piece."""

    document: NDArray[np.int64]
    start: NDArray[np.int64]
    head: NDArray[np.int64]
    tail: NDArray[np.int64]
    cut: int
    "Number of documents that were too long; always reported to the user."

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of ids in each piece: (pieces,)."""
        return self.head + self.tail

    def read(self, piece: int, ids: NDArray[Any]) -> NDArray[Any]:
        """Extract a piece from the ids of its document."""
        import numpy as np

        start, head, tail = int(self.start[piece]), int(self.head[piece]), int(self.tail[piece])
        return np.concatenate((ids[start : start + head], ids[len(ids) - tail :]))


def split_long(lengths: NDArray[np.int64], limit: int, rule: LongRule) -> Pieces:
    """Truncate or split, by `rule`, the documents that are longer than `limit`."""
    import numpy as np

    if rule not in get_args(LongRule):
        raise UserError(f"long={rule!r}: unknown. Choose one of: {', '.join(get_args(LongRule))}.")
    if limit < 1:
        raise ValueError(f"limit is {limit}; it must be at least 1")
    cut = int(np.sum(lengths > limit))
    count = -(-lengths // limit) if rule == "windows" else np.ones_like(lengths)
    count = np.maximum(count, 1)  # an empty document is one empty piece
    document = np.repeat(np.arange(len(lengths)), count)
    length = lengths[document]
    head, tail, start = np.minimum(length, limit), np.zeros_like(length), np.zeros_like(length)
    if rule == "tail":
        start = length - head
    elif rule == "head+tail":
        head = np.where(length > limit, limit // 4, length)
        tail = np.where(length > limit, limit - limit // 4, 0)
    elif rule == "windows":
        window = np.arange(len(document)) - np.repeat(np.cumsum(count) - count, count)
        # The first window starts at the beginning, the last ends at the end, the others are evenly spaced between.
        start = window * (length - head) // np.maximum(count[document] - 1, 1)
    return Pieces(document, start, head, tail, cut)


def cut_documents(
    ids: Sequence[NDArray[np.int64]], max_length: int, rule: LongRule
) -> tuple[Pieces, list[NDArray[np.int64]]]:
    """Cut documents as the rule says: which pieces there are, and their ids."""
    import numpy as np

    pieces = split_long(np.array([len(each) for each in ids], np.int64), max_length, rule)
    return pieces, [pieces.read(place, ids[int(document)]) for place, document in enumerate(pieces.document)]


def check_cutting(max_length: int | None, rule: str) -> None:
    """Refuse a limit or a rule that a run's config cannot mean."""
    if max_length is not None and (type(max_length) is not int or not 1 <= max_length <= UNLIMITED):
        raise ConfigError(f"max_length={max_length!r}: must be a positive number of tokens, or None.")
    if rule not in get_args(LongRule):
        raise ConfigError(f"long={rule!r} is not known. Choose one of: {', '.join(get_args(LongRule))}.")
