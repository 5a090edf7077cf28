"""What an objective is built from: the model, the text as tokens, the options, and what was built before it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rehead.model.model import Model
from rehead.model.objectives import ObjectiveSpec
from rehead.pretrain.options import PretrainOptions
from rehead.text.store_subset import StoreSubset
from rehead.text.tokenizer import Tokenizer
from rehead.training.objective import Objective


@dataclass
class Prepared:
    """The text, ready for training: tokenized and split."""

    tokenizer: Tokenizer
    train: StoreSubset
    valid: StoreSubset
    fingerprint: str
    "Digest of the text; empty in all processes but the first."


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
