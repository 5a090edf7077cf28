"""Tensors of a safetensors file that is not ours: float32, finite, or one line that says what is wrong."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rehead.disk import machine_memory
from rehead.errors import UserError


def count_values(file: Path) -> int:
    """Count the numbers that a file holds, by its header."""
    try:
        with safe_open(file, framework="pt") as tensors:
            return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    except SafetensorError as error:
        raise UserError(f"{file}: not a whole safetensors file ({error}). Copy it again.") from None


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Read all tensors; floating-point ones as float32."""
    if (memory := machine_memory()) is not None and 4 * (values := count_values(file)) > memory:
        raise UserError(f"{file}: {values:,} numbers, which do not fit into the memory of this machine.")
    try:
        with safe_open(file, framework="pt") as tensors:
            # Copies: what is mapped from the file would change with it.
            found = {name: tensors.get_tensor(name).clone() for name in tensors.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        raise UserError(f"{file}: not a whole safetensors file ({error}). Copy it again.") from None
    for name, each in found.items():
        if each.is_complex():
            raise UserError(f"{file}: {name} holds complex numbers.")
        if each.is_floating_point():
            found[name] = each.to(torch.float32)
            if not found[name].isfinite().all():
                raise UserError(f"{file}: {name} holds NaN or infinity.")
    return found
