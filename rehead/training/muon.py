"""The Muon optimizer, in float32: momentum with orthogonalised updates, for the weight matrices of the layers.

The momentum of a matrix is replaced by the nearest (semi-)orthogonal matrix, U Vᵀ of its singular value decomposition
U S Vᵀ, approximated by five Newton–Schulz iterations, which need only matrix products. The coefficients (by Keller
Jordan, https://kellerjordan.github.io/posts/muon) trade accuracy for speed: singular values end up between 0.68 and
1.14 instead of at 1.

`torch.optim.Muon` always computes in bfloat16. With one thread, a step of the matrices of `small` takes it 0.11 s on
a CPU that multiplies bfloat16 (AVX512_BF16), against 0.20 s here; but 3.8 s against 0.20 s on a CPU with AVX2 only, as
in many laptops (`python bench/pretrain.py --only muon --threads 1`; set
`ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2` for the second pair). Hence this implementation.

Use it for two-dimensional weights between hidden states, and AdamW for embeddings, heads, biases and norms.
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
    """Orthogonalised Nesterov momentum with decoupled weight decay.

    The update of a matrix (rows, columns) is scaled by √max(1, rows / columns), so that one learning rate suits all
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
                    raise ConfigError(f"Muon needs matrices, but got a tensor of shape {tuple(matrix.shape)}.")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._update(matrix, matrix.grad, group)
        return loss

    def _update(self, matrix: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
        ahead = gradient.lerp(momentum, group["momentum"])  # Nesterov momentum
        matrix.mul_(1 - group["lr"] * group["weight_decay"])
        rows, columns = matrix.shape
        matrix.add_(orthogonalise(ahead), alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonalise(matrix: Tensor, steps: int = STEPS) -> Tensor:
    """Bring all singular values of a matrix (rows, columns) near 1, keeping the singular vectors. Zero stays zero."""
    a, b, c = COEFFICIENTS
    x = matrix if matrix.dtype == torch.float64 else matrix.float()
    tall = len(x) > x.shape[1]
    x = x.t() if tall else x  # make x @ x.t() the smaller of the two products
    x = x / x.norm().clamp_min(torch.finfo(x.dtype).tiny)  # all singular values at most 1
    for _ in range(steps):
        square = x @ x.t()
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)  # a x + (b s + c s²) x
    return (x.t() if tall else x).to(matrix.dtype)
