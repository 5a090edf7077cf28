"""Which tokens of a row are hidden, and by what: BERT's 80 / 10 / 10.

Chance is a function of the seed and of where a token stands (its row's place in the endless sequence of rows, its
position in the row): the same on every rank and after every crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rehead.errors import UserError
from rehead.text.order import number
from rehead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHOOSE, REPLACE, WORD = 5, 6, 7  # what a random choice is for, as part of its key
MASKED, RANDOM = 0.8, 0.1  # of the chosen ones; the rest stays as it is
EVALUATED = 0.15  # the share in validation, whatever the share in training, so that figures can be compared


class Hidden(NamedTuple):
    """Rows in which some tokens are hidden."""

    ids: NDArray[np.int64]
    "What the model reads. (B, T)"
    chosen: NDArray[np.bool_]
    "Which positions it has to guess. (B, T)"


@dataclass(frozen=True)
class Masking:
    """How tokens are hidden."""

    mask: int
    "The id of [MASK]."
    never: tuple[int, ...]
    "Ids that are neither hidden nor put in a word's place: the marks, and numbers without a token."
    vocab: int
    share: float
    "Of the positions, in training."

    @classmethod
    def of(cls, tokenizer: Tokenizer, share: float) -> Masking:
        """Hide this share of a tokenizer's tokens."""
        if tokenizer.mask is None:
            raise UserError(f"{tokenizer.name} has no [MASK] token, which masked language modelling needs.")
        if not 0 < share < 1:
            raise UserError(f"--mask-probability {share:g}: must lie between 0 and 1.")
        return cls(tokenizer.mask, tuple(tokenizer.marks()), tokenizer.vocab_size, share)

    def hide(self, ids: NDArray[np.int64], at: NDArray[np.int64], seed: int, share: float | None = None) -> Hidden:
        """Hide tokens of some rows: ids (B, T), the rows' places (B,)."""
        key = (at[:, None], np.arange(ids.shape[1])[None])  # → (B, T)
        share = self.share if share is None else share
        chosen = (_chance(seed, CHOOSE, *key) < share) & ~np.isin(ids, self.never)
        how = _chance(seed, REPLACE, *key)
        words = (number(seed, WORD, *key) % np.uint64(self.vocab)).astype(np.int64)
        words = np.where(np.isin(words, self.never), ids, words)
        instead = np.where(how < MASKED, self.mask, np.where(how < MASKED + RANDOM, words, ids))
        return Hidden(np.where(chosen, instead, ids), chosen)


def _chance(*key: int | NDArray[np.int64]) -> NDArray[np.float64]:
    """Give numbers from 0 to 1 that depend on the key alone."""
    chance: NDArray[np.float64] = (number(*key) >> np.uint64(11)) * 2.0**-53
    return chance
