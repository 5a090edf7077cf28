"""Muon: gradient descent on the matrices of the layers, with every direction of an update made equally long.

The momentum of a matrix is replaced by its nearest (semi-)orthogonal matrix, U Vᵀ of the singular value decomposition
U S Vᵀ, by five Newton–Schulz steps: matrix products only. The steps (coefficients by Keller Jordan,
https://kellerjordan.github.io/posts/muon) trade exactness for speed: singular values end between 0.68 and 1.14 rather
than at 1.

`torch.optim.Muon` does the same in bfloat16, whatever the CPU. On one thread a step of the matrices of `small` takes it
0.11 s where the CPU multiplies bfloat16 (AVX512_BF16), against 0.20 s here, in float32; but 3.8 s against 0.20 s where
the CPU has AVX2 alone, as many laptops do (`python bench/pretrain.py --only muon --threads 1`; set
`ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2` for the second pair). Hence this one.

For two-dimensional weights between hidden states. Embeddings, heads, biases and norms belong to AdamW.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rehead.errors import ConfigError

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised; decoupled weight decay. `lr` is the length of a step in every direction.

    An update of a matrix (rows, columns) is scaled by √max(1, rows / columns), so that one learning rate serves all
    widths.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.dim() != 2:
                    raise ConfigError(f"Muon takes matrices only, and was given a tensor of {tuple(matrix.shape)}.")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._move(matrix, matrix.grad, group)
        return loss

    def _move(self, matrix: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
        ahead = gradient.lerp(momentum, group["momentum"])  # Nesterov: where the momentum is going
        matrix.mul_(1 - group["lr"] * group["weight_decay"])
        rows, columns = matrix.shape
        matrix.add_(orthogonalise(ahead), alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonalise(matrix: Tensor, steps: int = STEPS) -> Tensor:
    """Bring all singular values of a matrix (rows, columns) near 1, and keep its directions. Zero stays zero."""
    a, b, c = COEFFICIENTS
    x = matrix if matrix.dtype == torch.float64 else matrix.float()
    tall = len(x) > x.shape[1]
    x = x.t() if tall else x  # the smaller side first: its square is what the products are made of
    x = x / x.norm().clamp_min(torch.finfo(x.dtype).tiny)  # no singular value above 1
    for _ in range(steps):
        square = x @ x.t()
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)  # a x + (b s + c s²) x
    return (x.t() if tall else x).to(matrix.dtype)
