"""What to do with a document that is longer than the model reads: the rule of `--long`, as a pure function.

    head         its beginning
    tail         its end
    head+tail    a quarter from the beginning, three quarters from the end
    windows      all of it, as several pieces of the same length, which overlap as little as they can

A piece is (document, start, head, tail): `head` ids from `start` on, then the last `tail` ids of the document. So the
pieces of a corpus are four arrays, made from the lengths alone; nobody reads ids before a batch needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from rehead.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LongRule = Literal["head", "tail", "head+tail", "windows"]


class Pieces(NamedTuple):
    """Pieces of documents, in the order of the documents; one piece each for those that are short enough."""

    document: NDArray[np.int64]
    start: NDArray[np.int64]
    head: NDArray[np.int64]
    tail: NDArray[np.int64]
    cut: int
    "How many documents were too long. This is always said to the user."

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids in each piece: (pieces,)."""
        return self.head + self.tail

    def read(self, piece: int, ids: NDArray[Any]) -> NDArray[Any]:
        """Take a piece out of the ids of its document."""
        import numpy as np

        start, head, tail = int(self.start[piece]), int(self.head[piece]), int(self.tail[piece])
        return np.concatenate((ids[start : start + head], ids[len(ids) - tail :]))


def split_long(lengths: NDArray[np.int64], limit: int, rule: LongRule) -> Pieces:
    """Cut the documents that are longer than `limit`, as the rule says."""
    import numpy as np

    if rule not in get_args(LongRule):
        raise UserError(f"long={rule!r} is not known. Choose one of: {', '.join(get_args(LongRule))}.")
    if limit < 1:
        raise ValueError(f"a limit of {limit} leaves nothing")
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
        # The first begins at the beginning, the last ends at the end, the others are spread evenly between.
        start = window * (length - head) // np.maximum(count[document] - 1, 1)
    return Pieces(document, start, head, tail, cut)
