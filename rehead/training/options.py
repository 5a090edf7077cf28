"""The options that every training run takes. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rehead.errors import UserError
from rehead.options import flag
from rehead.training.budget import Schedule


@dataclass(kw_only=True)
class TrainingOptions:
    """How a run is trained; budgets and data are the commands' own."""

    accumulate: int = flag(1, metavar="N")
    "Cut every step's batch into N pieces, one after the other: less memory, the same result."

    lr: float = 1.0
    "Multiply every learning rate by this."

    optimizer: Literal["adamw", "muon"] = "adamw"
    "What moves the matrices of the layers."

    warmup: float = 0.02
    "Share of the run in which the learning rate rises."

    decay: float = 0.5
    "Share of the run, at its end, in which the learning rate falls to zero."

    weight_decay: float = 0.1
    "Pull of the layers' matrices towards zero."

    clip: float = 1.0
    "Longest gradient; 0: as long as they are."

    seed: int = 0
    "Start of all chance: the same seed gives the same run."

    validations: int = 10
    "How often the held-out part is looked at."

    checkpoint_minutes: float = 2.0
    "Save a checkpoint this often."

    checkpoint_steps: int | None = flag(None, metavar="N")
    "Save a checkpoint every N steps, too."

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    "Where to compute."

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    "What matrices are multiplied in; auto: bfloat16 where the hardware multiplies it."

    compile: bool = False
    "Compile the model with torch.compile: needs a C++ compiler on a CPU."

    shard: bool = False
    "Under torchrun: spread the model over the processes (FSDP2), when it does not fit into one."


# What may change when a run is resumed: none of it changes what is computed beyond rounding.
FREE_TO_CHANGE = frozenset(
    ("quiet", "debug", "resume", "overwrite", "checkpoint_minutes", "checkpoint_steps", "device", "compile", "shard")
)


def check_training(options: TrainingOptions) -> None:
    """Refuse values that make no sense, by the name of the flag."""
    least = {"accumulate": 1, "validations": 0, "clip": 0, "weight_decay": 0}
    for name, low in least.items():
        if not getattr(options, name) >= low:
            raise UserError(f"--{name.replace('_', '-')} {getattr(options, name):g}: must be {low} or more.")
    Schedule(options.warmup, options.decay)  # refuses shares that do not fit
    if not 0 < options.lr < float("inf"):
        raise UserError(f"--lr {options.lr:g}: must be above 0. 1 is the usual rate, 0.5 half of it.")
    if not options.checkpoint_minutes >= 0:
        raise UserError(f"--checkpoint-minutes {options.checkpoint_minutes:g}: must be 0 or more.")
    if options.checkpoint_steps is not None and options.checkpoint_steps < 1:
        raise UserError(f"--checkpoint-steps {options.checkpoint_steps}: must be 1 or more.")
    if not -(2**63) <= options.seed < 2**63:
        raise UserError(f"--seed {options.seed}: must fit into 64 bits.")
