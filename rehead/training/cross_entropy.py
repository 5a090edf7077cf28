"""The loss of a language model, without the table of logits that it is the loss of.

Scoring 50,001 tokens at 4,096 positions gives a table of 0.8 GB, and computing the loss and its gradient the usual way
keeps three of them. Here the table exists a few rows at a time: a chunk's logits become probabilities in place, and the
gradients are taken from them on the spot, in the forward pass, at the same three matrix products. Backward only scales
what is there by the gradient that arrives.

`torch.nn.functional.linear_cross_entropy` (2.13) does the same. With the chunk size that suits it best it takes 1.3
times as long at 50,001 words, 1.4 times for the few predictions of a masked language model, and 1.06 times at 8,192
words; with the chunk size that it chooses itself, 3.3, 15 and 1.3 times as long
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
"Logits at a time, 64 MB of them. With half as many a causal step at 50,001 words takes 5 % longer, since the gradient \
of the weight is read and written once per chunk; with more it gains nothing."

MIN_PROBABILITY = 1e-30
"A probability below this has lost digits in float32, or is 0."

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Sum the cross-entropy of `hidden @ weight.T + bias` against targets, and count the right guesses.

    hidden (N, H), weight (V, H), bias (V), targets (N) → the sum, and how often the target had the highest score; the
    count is None where gradients are wanted. Exact: the same numbers as `F.cross_entropy(…, reduction="sum")`, but for
    the order of summation. Twice differentiable it is not.
    """
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (hidden, weight, bias)):
        total: Tensor = _LinearCrossEntropy.apply(hidden, weight, bias, targets)  # type: ignore[no-untyped-call]
        return total, None
    total, hits, _ = _forward_chunks(hidden, weight, bias, targets, (False, False, False))
    return total, hits


class _LinearCrossEntropy(torch.autograd.Function):
    """Sum of losses whose gradients are ready before they are asked for."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:  # noqa: ANN401
        total, _, ctx.gradients = _forward_chunks(hidden, weight, bias, targets, ctx.needs_input_grad[:3])
        ctx.autocast = _autocast(hidden.device)
        ctx.save_for_backward(hidden, weight, bias, targets)  # no copies; read only if backward comes twice
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        # What is handed over is let go of here, so that it can become `weight.grad` as it is, without a copy.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            hidden, weight, bias, targets = ctx.saved_tensors
            with torch.autocast(hidden.device.type, ctx.autocast, enabled=ctx.autocast is not None):
                _, _, gradients = _forward_chunks(hidden, weight, bias, targets, ctx.needs_input_grad[:3])
        return *(None if each is None else each.mul_(incoming) for each in gradients), None


def _forward_chunks(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor | None, Gradients]:
    """Go over the predictions chunk by chunk: sum of losses, hits if no gradient is wanted, gradients as wanted."""
    device, types = hidden.device, (hidden.dtype, weight.dtype, weight.dtype if bias is None else bias.dtype)
    narrow = _autocast(device) or hidden.dtype  # of the products' factors
    wide = torch.float32 if narrow in (torch.bfloat16, torch.float16) else narrow  # of losses and sums
    with torch.autocast(device.type, enabled=False):
        hidden, weight = hidden.to(narrow), weight.to(narrow)
        bias = None if bias is None else bias.to(wide)
        rows = max(1, min(len(hidden), CHUNK // len(weight)))
        words = len(weight)
        logits = _scratch(rows, words + _padding(words), wide, device)
        total = torch.zeros((), dtype=wide, device=device)
        hits = None if any(wanted) else torch.zeros((), dtype=torch.int64, device=device)
        to_hidden = torch.empty_like(hidden) if wanted[0] else None
        # The first chunk's product fills it; with no chunk at all it is zero.
        to_weight = (torch.empty_like if len(hidden) else torch.zeros_like)(weight, dtype=wide) if wanted[1] else None
        to_bias = torch.zeros_like(weight[:, 0], dtype=wide) if wanted[2] else None
        for start in range(0, len(hidden), rows):
            part, right = hidden[start : start + rows], targets[start : start + rows, None]  # (R, H), (R, 1)
            padded = logits[: len(part)]
            table = _product(part, weight.t(), padded[:, :words])  # (R, V)
            if bias is not None:
                table += bias  # sooner than by addmm, which copies it into the table first
            padded[:, words:] = -torch.inf  # no probability
            if hits is not None:
                hits += (table.argmax(1, keepdim=True) == right).sum()
            torch.softmax(padded, 1, out=padded)
            total += _losses(table.gather(1, right), part, weight, bias, right).sum()
            if hits is not None:
                continue
            table.scatter_add_(1, right, table.new_full((1, 1), -1.0).expand(right.shape))
            if to_bias is not None:
                to_bias.addmv_(table.t(), table.new_ones(len(table)))  # its sum over rows, four times as fast
            slopes = table.to(narrow)
            if to_hidden is not None:
                torch.mm(slopes, weight, out=to_hidden[start : start + rows])
            if to_weight is not None:
                if start == 0:
                    _product(slopes.t(), part, to_weight)
                elif narrow == wide:
                    to_weight.addmm_(slopes.t(), part)
                else:
                    to_weight += slopes.t() @ part
    found = (to_hidden, to_weight, to_bias)
    return total, hits, _as_given(found, types)


def _losses(probabilities: Tensor, part: Tensor, weight: Tensor, bias: Tensor | None, right: Tensor) -> Tensor:
    """Take the losses from the targets' probabilities (R, 1), or, where these are too small, from the logits again."""
    losses = -probabilities.log()
    tiny = probabilities[:, 0] < MIN_PROBABILITY
    if tiny.any():
        scores = F.linear(part[tiny], weight).to(losses.dtype)
        scores = scores if bias is None else scores + bias
        losses[tiny] = scores.logsumexp(1, keepdim=True) - scores.gather(1, right[tiny])
    return losses


_kept = threading.local()


def _scratch(rows: int, columns: int, kind: torch.dtype, device: torch.device) -> Tensor:
    """Give a table to work in. A CPU's is kept for the next call: memory fresh from the system costs 5 % of a step."""
    if device.type != "cpu":
        return torch.empty(rows, columns, dtype=kind, device=device)
    store: Tensor | None = getattr(_kept, "store", None)
    if store is None or store.dtype != kind or len(store) < rows * columns:
        _kept.store = store = None  # let go first
        _kept.store = store = torch.empty(rows * columns, dtype=kind)
    return store[: rows * columns].view(rows, columns)


def _padding(words: int) -> int:
    """Say how many columns to add to the table of logits, so that every row begins where a cache line does.

    At 50,001 words the first product takes 1.7 times as long without. At a power of two, rows would crowd the same few
    places of the cache, hence at least one line more.
    """
    return 16 + -words % 16


def _product(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """Fill `out`, which may be of a wider type, with left @ right."""
    return torch.mm(left, right, out=out) if left.dtype == out.dtype else out.copy_(left @ right)


def _as_given(gradients: Gradients, types: tuple[torch.dtype, ...]) -> Gradients:
    """Give each gradient the type of what it is the gradient of."""
    hidden, weight, bias = (
        None if each is None else each.to(kind) for each, kind in zip(gradients, types, strict=True)
    )
    return hidden, weight, bias


def _autocast(device: torch.device) -> torch.dtype | None:
    """Give the type that autocast wants products in, or None if it is off."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
