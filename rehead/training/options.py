"""The options of every training run. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rehead.errors import UserError
from rehead.options import flag
from rehead.training.budget import Schedule


@dataclass(kw_only=True)
class TrainingOptions:
    """How a run is trained; its budget and data are options of the command."""

    GROUP = "training"

    accumulate: int = flag(1, metavar="N")
    "Gradient accumulation: split each batch into N micro-batches, which saves memory and gives the same result."

    lr: float | None = flag(None, metavar="RATE")
    """Peak learning rate of the weights that AdamW trains (layers and head), such as 2e-5; at most 0.1. The rates of
    Muon and of the n-gram vectors (Adagrad) keep their ratio to it (default: 1e-3 in pretraining, 3e-4 in fine-tuning
    layers, both times the square root of 256 / hidden size; 1e-3 for a classifier head without layers)."""

    lr_scale: float = flag(1.0, metavar="FACTOR")
    "Multiply all default learning rates by this; cannot be combined with --lr."

    optimizer: Literal["adamw", "muon"] = "adamw"
    "Optimizer of the weight matrices of the layers, adamw or muon; all other weights have their own."

    warmup_ratio: float = flag(0.02, metavar="RATIO")
    "Fraction of the run in which the learning rate warms up linearly."

    decay_ratio: float = flag(0.5, metavar="RATIO")
    "Fraction of the run, at its end, in which the learning rate decays linearly to zero."

    weight_decay: float = flag(0.1, metavar="RATE")
    "Weight decay of the weight matrices of the layers."

    clip: float = flag(1.0, metavar="NORM")
    "Clip the gradient norm to this value; 0 disables clipping."

    seed: int = flag(0, metavar="N")
    "Random seed."

    validations: int = flag(10, metavar="N")
    "Evaluate on held-out data this many times, evenly spread over the run."

    checkpoint_minutes: float = flag(2.0, metavar="MINUTES", group="writes")
    "Save a checkpoint every so many minutes; 0 disables it."

    checkpoint_steps: int | None = flag(None, metavar="N", group="writes")
    "Also save a checkpoint every N steps (default: by time only)."

    device: Literal["auto", "cpu", "cuda", "mps"] = flag("auto", group="hardware")
    "Device to train on: cpu, cuda or mps; auto takes a GPU if there is one."

    precision: Literal["auto", "float32", "bfloat16"] = flag("auto", group="hardware")
    "Precision of matrix products, float32 or bfloat16; auto is bfloat16 where the hardware supports it."

    compile: bool = flag(False, group="hardware")
    "Compile the model with torch.compile; on a CPU this needs a C++ compiler."

    shard: bool = flag(False, group="hardware")
    "Pretraining under torchrun: shard the model over the processes (FSDP2), for a model too large for one."


LARGEST_LR = 0.1  # of AdamW: no higher rate trains anything here

# Options that may change when a run is resumed: none of them changes results beyond rounding.
FREE_TO_CHANGE = frozenset(
    ("quiet", "debug", "resume", "overwrite", "checkpoint_minutes", "checkpoint_steps", "device", "compile", "shard")
)


def check_training(options: TrainingOptions) -> None:
    """Refuse values out of range."""
    check_rates(options.lr, options.lr_scale)
    least = {"accumulate": 1, "validations": 0, "clip": 0, "weight_decay": 0}
    for name, low in least.items():
        if not getattr(options, name) >= low:
            raise UserError(f"--{name.replace('_', '-')} {getattr(options, name):g}: must be {low} or more.")
    Schedule(options.warmup_ratio, options.decay_ratio)  # refuses ratios that do not fit
    if not options.checkpoint_minutes >= 0:
        raise UserError(f"--checkpoint-minutes {options.checkpoint_minutes:g}: must be 0 or more.")
    if options.checkpoint_steps is not None and options.checkpoint_steps < 1:
        raise UserError(f"--checkpoint-steps {options.checkpoint_steps}: must be 1 or more.")
    if not -(2**63) <= options.seed < 2**63:
        raise UserError(f"--seed {options.seed}: must fit into 64 bits.")


def check_rates(lr: float | None, lr_scale: float) -> None:
    """Refuse learning rates out of range; a large --lr was probably meant as a multiple."""
    if lr is not None and not 0 < lr <= LARGEST_LR:
        raise UserError(
            f"--lr {lr:g}: must be above 0 and at most {LARGEST_LR:g}. "
            "To multiply the default learning rates by a factor, give --lr-scale."
        )
    if not 0 < lr_scale < float("inf"):
        raise UserError(f"--lr-scale {lr_scale:g}: must be above 0.")
    if lr is not None and lr_scale != 1:
        raise UserError(f"--lr {lr:g} and --lr-scale {lr_scale:g} both set the learning rate. Give one.")
