"""What `rehead pretrain --from` takes, beside what it shares with pretraining. Nothing heavy is imported here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rehead.errors import UserError

if TYPE_CHECKING:
    from rehead.pretrain.options import PretrainOptions

ADAPTING = ("masked", "causal", "contrastive")
# What decides the shape of a base of our own, or needs one.
OWN = (
    "preset", "tokenizer", "vocab", "lowercase", "nhid", "nlayers", "nhead", "next_sentence",
    "causal_rows", "embeddings", "optimizer", "compile", "shard",
)  # fmt: skip


def check_adapting(options: PretrainOptions) -> None:
    """Refuse what does not go with --from."""
    if options.objective is not None and options.objective not in ADAPTING:
        raise UserError(
            f"--objective {options.objective}: with --from choose one of {', '.join(ADAPTING)}, or leave it out."
        )
    for field in dataclasses.fields(options):
        if field.name in OWN and getattr(options, field.name) != field.default:
            raise UserError(
                f"--{field.name.replace('_', '-')} is for bases of rehead's own. Drop it, or --from {options.base}."
            )
    if options.mask_probability != type(options).mask_probability and options.objective in ("causal", "contrastive"):
        raise UserError(f"--mask-probability goes with --objective masked, not with {options.objective}.")
