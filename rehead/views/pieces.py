"""Cutting long documents into what a view reads at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import numpy as np

from rehead.errors import ConfigError
from rehead.text.long_documents import LongRule, Pieces, split_long

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

UNLIMITED = 2**40  # tokens: longer than any document


def check_pieces(max_length: int | None, long: str) -> None:
    """Refuse what a run's config cannot mean."""
    if max_length is not None and (type(max_length) is not int or not 1 <= max_length <= UNLIMITED):
        raise ConfigError(f"max_length={max_length!r}: must be a positive number of tokens, or None.")
    if long not in get_args(LongRule):
        raise ConfigError(f"long={long!r} is not known. Choose one of: {', '.join(get_args(LongRule))}.")


def cut(ids: Sequence[Ints], max_length: int, long: LongRule) -> tuple[Pieces, list[Ints]]:
    """Cut documents as the rule says: which pieces there are, and their ids."""
    pieces = split_long(np.array([len(each) for each in ids], np.int64), max_length, long)
    return pieces, [pieces.read(place, ids[int(document)]) for place, document in enumerate(pieces.document)]
