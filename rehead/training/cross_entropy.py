"""Fused linear layer and cross-entropy, in chunks: the loss of a language model without the full logits.

The logits of 50,001 tokens at 4,096 positions take 0.8 GB, and computing the loss and its gradient the usual way keeps
three such tensors. Here only a chunk of rows exists at a time: its logits become probabilities in place, and the
gradients are computed from them in the forward pass already, with the same three matrix products. The backward pass
only scales them by the incoming gradient.

`torch.nn.functional.linear_cross_entropy` (2.13) does the same. With its best chunk size it takes 1.3 times as long for
a vocabulary of 50,001, 1.4 times for the few predictions of a masked language model, and 1.06 times for a vocabulary of
8,192; with its default chunk size, 3.3, 15 and 1.3 times as long
(`python bench/pretrain.py --only linear --threads 1`).

Shapes: N predictions, H hidden width, V vocabulary, R rows of one chunk.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 1 << 24
"Logits per chunk, 64 MB. With half as many, a causal step with a vocabulary of 50,001 takes 5 % longer, since the \
gradient of the weight is read and written once per chunk; larger chunks are not faster."

MIN_PROBABILITY = 1e-30
"Below this, a probability has lost precision in float32, or is 0: compute the loss from the logits instead."

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Sum the cross-entropy of `hidden @ weight.T + bias` against targets, and count the correct predictions.

    hidden (N, H), weight (V, H), bias (V), targets (N) → the sum, and the number of correct predictions, which is None
    where gradients are needed. Exact: equal to `F.cross_entropy(…, reduction="sum")` up to the order of summation.
    Not twice differentiable.
    """
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (hidden, weight, bias)):
        total: Tensor = _LinearCrossEntropy.apply(hidden, weight, bias, targets)  # type: ignore[no-untyped-call]
        return total, None
    total, correct, _ = _forward_chunks(hidden, weight, bias, targets, (False, False, False))
    return total, correct


class _LinearCrossEntropy(torch.autograd.Function):
    """Sum of losses that computes its gradients in the forward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:  # noqa: ANN401
        total, _, ctx.gradients = _forward_chunks(hidden, weight, bias, targets, ctx.needs_input_grad[:3])
        ctx.autocast = _autocast(hidden.device)
        ctx.save_for_backward(hidden, weight, bias, targets)  # not copied; used only by a second backward
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        # Drop the reference, so that autograd can take the tensor as `weight.grad` without a copy.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            hidden, weight, bias, targets = ctx.saved_tensors
            with torch.autocast(hidden.device.type, ctx.autocast, enabled=ctx.autocast is not None):
                _, _, gradients = _forward_chunks(hidden, weight, bias, targets, ctx.needs_input_grad[:3])
        return *(None if each is None else each.mul_(incoming) for each in gradients), None


def _forward_chunks(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor | None, Gradients]:
    """Sum the losses chunk by chunk, with the gradients that are wanted, or else the number of correct predictions."""
    device, types = hidden.device, (hidden.dtype, weight.dtype, weight.dtype if bias is None else bias.dtype)
    narrow = _autocast(device) or hidden.dtype  # dtype of the matrix products
    wide = torch.float32 if narrow in (torch.bfloat16, torch.float16) else narrow  # dtype of losses and sums
    with torch.autocast(device.type, enabled=False):
        hidden, weight = hidden.to(narrow), weight.to(narrow)
        bias = None if bias is None else bias.to(wide)
        rows = max(1, min(len(hidden), CHUNK // len(weight)))
        vocab = len(weight)
        logits = _logits_buffer(rows, vocab + _padding(vocab), wide, device)
        total = torch.zeros((), dtype=wide, device=device)
        correct = None if any(wanted) else torch.zeros((), dtype=torch.int64, device=device)
        to_hidden = torch.empty_like(hidden) if wanted[0] else None
        # The first chunk's product fills it; without any chunk it is zero.
        to_weight = (torch.empty_like if len(hidden) else torch.zeros_like)(weight, dtype=wide) if wanted[1] else None
        to_bias = torch.zeros_like(weight[:, 0], dtype=wide) if wanted[2] else None
        for start in range(0, len(hidden), rows):
            part, right = hidden[start : start + rows], targets[start : start + rows, None]  # (R, H), (R, 1)
            padded = logits[: len(part)]
            table = _product(part, weight.t(), padded[:, :vocab])  # (R, V)
            if bias is not None:
                table += bias  # faster than addmm, which copies the bias into the output first
            padded[:, vocab:] = -torch.inf  # zero probability
            if correct is not None:
                correct += (table.argmax(1, keepdim=True) == right).sum()
            torch.softmax(padded, 1, out=padded)
            total += _losses(table.gather(1, right), part, weight, bias, right).sum()
            if correct is not None:
                continue
            table.scatter_add_(1, right, table.new_full((1, 1), -1.0).expand(right.shape))
            if to_bias is not None:
                to_bias.addmv_(table.t(), table.new_ones(len(table)))  # the sum over rows, four times as fast as `sum`
            gradient = table.to(narrow)
            if to_hidden is not None:
                torch.mm(gradient, weight, out=to_hidden[start : start + rows])
            if to_weight is not None:
                if start == 0:
                    _product(gradient.t(), part, to_weight)
                elif narrow == wide:
                    to_weight.addmm_(gradient.t(), part)
                else:
                    to_weight += gradient.t() @ part
    found = (to_hidden, to_weight, to_bias)
    return total, correct, _cast_like_inputs(found, types)


def _losses(probabilities: Tensor, part: Tensor, weight: Tensor, bias: Tensor | None, right: Tensor) -> Tensor:
    """Compute the losses from the targets' probabilities (R, 1), or, where these are too small, from the logits."""
    losses = -probabilities.log()
    tiny = probabilities[:, 0] < MIN_PROBABILITY
    if tiny.any():
        scores = F.linear(part[tiny], weight).to(losses.dtype)
        scores = scores if bias is None else scores + bias
        losses[tiny] = scores.logsumexp(1, keepdim=True) - scores.gather(1, right[tiny])
    return losses


_reused = threading.local()


def _logits_buffer(rows: int, columns: int, kind: torch.dtype, device: torch.device) -> Tensor:
    """Allocate a buffer for logits. On the CPU it is reused: fresh memory from the system costs 5 % of a step."""
    if device.type != "cpu":
        return torch.empty(rows, columns, dtype=kind, device=device)
    store: Tensor | None = getattr(_reused, "store", None)
    if store is None or store.dtype != kind or len(store) < rows * columns:
        _reused.store = store = None  # free it before allocating the next
        _reused.store = store = torch.empty(rows * columns, dtype=kind)
    return store[: rows * columns].view(rows, columns)


def _padding(vocab: int) -> int:
    """Number of columns to add to the logits, so that every row is aligned to a cache line.

    With a vocabulary of 50,001, the first product takes 1.7 times as long without. A power of two would cause cache
    conflicts between rows, hence at least one line more.
    """
    return 16 + -vocab % 16


def _product(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """Compute left @ right into `out`, which may have a wider dtype."""
    return torch.mm(left, right, out=out) if left.dtype == out.dtype else out.copy_(left @ right)


def _cast_like_inputs(gradients: Gradients, types: tuple[torch.dtype, ...]) -> Gradients:
    """Cast each gradient to the dtype of its input."""
    hidden, weight, bias = (
        None if each is None else each.to(kind) for each, kind in zip(gradients, types, strict=True)
    )
    return hidden, weight, bias


def _autocast(device: torch.device) -> torch.dtype | None:
    """The dtype that autocast uses for matrix products, or None if it is off."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
