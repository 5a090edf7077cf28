"""Queries, keys and values taken apart and turned, and attention spelt out, against plain torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rehead.model.attention import attention_weights, split_heads
from rehead.model.positions import Turns, rotary_turns

TURNS = {
    "none": None,
    "one row's": rotary_turns(torch.arange(5)[None], 4),
    "each row's own": rotary_turns(torch.tensor([[0, 1, 2, 3, 4], [0, 1, 0, 1, 2]]), 4),
}


def plainly(qkv: Tensor, turns: Turns | None) -> tuple[Tensor, ...]:
    """Do what `split_heads` does, with two heads."""
    heads = [each.unflatten(-1, (2, -1)).transpose(1, 2) for each in qkv.chunk(3, dim=-1)]
    if turns is None:
        return tuple(heads)
    cosine, sine = (each.to(qkv.dtype) for each in turns)

    def turn(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cosine + torch.cat((-second, first), dim=-1) * sine

    return turn(heads[0]), turn(heads[1]), heads[2]


@pytest.mark.parametrize("turns", TURNS.values(), ids=TURNS.keys())
def test_heads_are_split_and_turned(turns: Turns | None) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)
    for ours, theirs in zip(split_heads(qkv, 2, turns), plainly(qkv, turns), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(lambda given: split_heads(given, 2, turns), qkv)


@pytest.mark.parametrize("turns", TURNS.values(), ids=TURNS.keys())
def test_gradients_through_attention(turns: Turns | None) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(2, 5, 24, requires_grad=True)
    slopes = torch.randn(2, 2, 5, 4)
    ours, theirs = (
        torch.autograd.grad(F.scaled_dot_product_attention(*heads, is_causal=True), qkv, slopes)[0]
        for heads in (split_heads(qkv, 2, turns), plainly(qkv, turns))
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("causal", [True, False])
def test_spelt_out_attention_is_the_fused_one(causal: bool) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)
    q, k, v = split_heads(qkv, 2, None)
    ours, theirs = attention_weights(q, k, None, causal) @ v, F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(ours, theirs)
    slopes = torch.randn_like(ours)
    for mine, other in zip(
        torch.autograd.grad(ours, qkv, slopes, retain_graph=True), torch.autograd.grad(theirs, qkv, slopes), strict=True
    ):
        torch.testing.assert_close(mine, other)
