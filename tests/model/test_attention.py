"""Queries, keys and values taken apart and turned, and attention spelt out, against plain torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rehead.model.attention import attention_weights, split_heads
from rehead.model.positions import CosSin, rotary_cos_sin

TURNS = {
    "none": None,
    "one row's": rotary_cos_sin(torch.arange(5)[None], 4),
    "each row's own": rotary_cos_sin(torch.tensor([[0, 1, 2, 3, 4], [0, 1, 0, 1, 2]]), 4),
}


def plainly(qkv: Tensor, cos_sin: CosSin | None) -> tuple[Tensor, ...]:
    """Do what `split_heads` does, with two heads."""
    heads = [each.unflatten(-1, (2, -1)).transpose(1, 2) for each in qkv.chunk(3, dim=-1)]
    if cos_sin is None:
        return tuple(heads)
    cosine, sine = (each.to(qkv.dtype) for each in cos_sin)

    def turn(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cosine + torch.cat((-second, first), dim=-1) * sine

    return turn(heads[0]), turn(heads[1]), heads[2]


@pytest.mark.parametrize("cos_sin", TURNS.values(), ids=TURNS.keys())
def test_heads_are_split_and_turned(cos_sin: CosSin | None) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)
    for ours, theirs in zip(split_heads(qkv, 2, cos_sin), plainly(qkv, cos_sin), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(lambda given: split_heads(given, 2, cos_sin), qkv)


@pytest.mark.parametrize("cos_sin", TURNS.values(), ids=TURNS.keys())
def test_gradients_through_attention(cos_sin: CosSin | None) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(2, 5, 24, requires_grad=True)
    slopes = torch.randn(2, 2, 5, 4)
    ours, theirs = (
        torch.autograd.grad(F.scaled_dot_product_attention(*heads, is_causal=True), qkv, slopes)[0]
        for heads in (split_heads(qkv, 2, cos_sin), plainly(qkv, cos_sin))
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
