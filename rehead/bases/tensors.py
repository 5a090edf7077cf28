"""Tensors of a safetensors file that is not ours: float32, finite, or one line that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rehead.errors import UserError


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Read all tensors; floating-point ones as float32."""
    try:
        with safe_open(file, framework="pt") as tensors:
            # Copies: what is mapped from the file would change with it.
            found = {name: tensors.get_tensor(name).clone() for name in tensors.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        raise UserError(f"{file}: not a whole safetensors file ({error}). Copy it again.") from None
    for name, each in found.items():
        if not each.isfinite().all():
            raise UserError(f"{file}: {name} holds NaN or infinity.")
    return {name: each.to(torch.float32) if each.is_floating_point() else each for name, each in found.items()}
