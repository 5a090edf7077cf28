"""What an objective is built from: the model, the text as tokens, the options, and what was built before it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rehead.errors import UserError
from rehead.model.model import Model
from rehead.model.objectives import ObjectiveSpec
from rehead.pretrain.options import PretrainOptions
from rehead.text.store import TokenStore
from rehead.text.store_subset import StoreSubset, hold_out
from rehead.text.tokenizer import Tokenizer
from rehead.training.objective import Objective

HELD_OUT_SHARE, HELD_OUT_TOKENS = 0.02, 65_536


@dataclass
class Prepared:
    """The text, ready for training: tokenized and split."""

    tokenizer: Tokenizer
    train: StoreSubset
    valid: StoreSubset
    fingerprint: str
    "Digest of the text; empty in all processes but the first."

    def describe(self) -> dict[str, int | str]:
        """Describe the text for the details of a run."""
        return {
            "fingerprint": self.fingerprint,
            "documents": len(self.train) + len(self.valid),
            "tokens": int(self.train.offsets[-1] + self.valid.offsets[-1]),
            "held_out_documents": len(self.valid),
        }


def split_tokens(store: TokenStore, tokenizer: Tokenizer, fingerprint: str, seed: int, least: int) -> Prepared:
    """Hold out a part of the text; less than `least` tokens are refused."""
    train, valid = hold_out(store, HELD_OUT_SHARE, HELD_OUT_TOKENS, seed)
    if (tokens := int(train.offsets[-1])) < least:
        raise UserError(f"The text has {tokens:,} tokens to learn from: at least {least} are needed. Give more text.")
    return Prepared(tokenizer, train, valid, fingerprint)


@dataclass(frozen=True)
class BuildContext:
    """What a builder (`rehead.pretrain.phases.BUILDERS`) makes an objective from."""

    spec: ObjectiveSpec
    options: PretrainOptions
    model: Model
    prepared: Prepared
    batch: int
    "Tokens per step, over all processes."
    stage: int
    "Index of the stage the objective belongs to."
    built: list[Objective] = field(default_factory=list)
    "The run's objectives built before this one, in order."

    @property
    def sizes(self) -> dict[str, int]:
        """Give the arguments every objective takes: `time`, `batch` and `seed`."""
        return {"time": self.options.length, "batch": self.batch, "seed": self.options.seed}
