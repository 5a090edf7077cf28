"""Which tokens of a row are masked, and what replaces them: BERT's 80 / 10 / 10.

Random choices are a function of the seed and of a token's place (its row's number in the endless sequence of rows, its
position in the row): the same on every rank and after every crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rehead.errors import UserError
from rehead.text.order import random_bits
from rehead.text.random_streams import Stream
from rehead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

MASKED, RANDOM = 0.8, 0.1  # of the chosen ones: replaced by [MASK], by a random token; the rest stay as they are
EVALUATED = 0.15  # the share in validation, whatever the share in training, so that figures can be compared


class MaskedRows(NamedTuple):
    """Rows in which some tokens are masked."""

    ids: NDArray[np.int64]
    "What the model reads. (B, T)"
    chosen: NDArray[np.bool_]
    "Which positions it has to predict. (B, T)"


@dataclass(frozen=True)
class Masking:
    """How tokens are masked."""

    mask: int
    "The id of [MASK]."
    never: tuple[int, ...]
    "Ids that are neither masked nor used as random replacements: special tokens, and ids without a token."
    vocab: int
    share: float
    "Share of the positions that are masked in training."

    @classmethod
    def of(cls, tokenizer: Tokenizer, share: float) -> Masking:
        """Mask this share of the tokens, with a tokenizer's [MASK]."""
        if tokenizer.mask is None:
            raise UserError(f"{tokenizer.name} has no [MASK] token, which masked language modelling needs.")
        if not 0 < share < 1:
            raise UserError(f"--mask-probability {share:g}: must lie between 0 and 1.")
        return cls(tokenizer.mask, tuple(tokenizer.special_ids()), tokenizer.vocab_size, share)

    def apply(self, ids: NDArray[np.int64], at: NDArray[np.int64], seed: int, share: float | None = None) -> MaskedRows:
        """Mask tokens of some rows: ids (B, T), the rows' numbers (B,)."""
        key = (at[:, None], np.arange(ids.shape[1])[None])  # → (B, T)
        share = self.share if share is None else share
        chosen = (_chance(seed, Stream.MASKED_PLACE, *key) < share) & ~np.isin(ids, self.never)
        how = _chance(seed, Stream.MASKED_HOW, *key)
        words = (random_bits(seed, Stream.MASKED_TOKEN, *key) % np.uint64(self.vocab)).astype(np.int64)
        words = np.where(np.isin(words, self.never), ids, words)
        instead = np.where(how < MASKED, self.mask, np.where(how < MASKED + RANDOM, words, ids))
        return MaskedRows(np.where(chosen, instead, ids), chosen)


def _chance(*key: int | NDArray[np.int64]) -> NDArray[np.float64]:
    """Draw numbers from 0 to 1 that depend on the key alone."""
    chance: NDArray[np.float64] = (random_bits(*key) >> np.uint64(11)) * 2.0**-53
    return chance
