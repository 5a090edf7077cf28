from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rehead.model.attention import attention_weights
from rehead.model.masks import padding_mask, square_mask

INF = float("-inf")


def test_square_mask_by_hand() -> None:
    assert square_mask(3).tolist() == [[0, INF, INF], [0, 0, INF], [0, 0, 0]]
    assert square_mask(1).tolist() == [[0]]
    assert square_mask(0).shape == (0, 0)


def test_square_mask_is_torchs() -> None:
    assert torch.equal(square_mask(17), nn.Transformer.generate_square_subsequent_mask(17))


def test_padding_mask_by_hand() -> None:
    keep = torch.tensor([[True, True, False], [False, True, True]])
    assert padding_mask(keep).tolist() == [[[[0, 0, INF]]], [[[INF, 0, 0]]]]


def test_masks_combine_to_what_all_allow() -> None:
    keep = torch.tensor([[True, True, False]])
    both = square_mask(3) + padding_mask(keep)
    assert both.tolist() == [[[[0, INF, INF], [0, 0, INF], [0, 0, INF]]]]


def one_row_with_nothing() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 5, 8, requires_grad=True) for _ in range(3))
    mask = square_mask(5).repeat(2, 1, 1, 1)
    mask[0, 0, 2] = INF
    return q, k, v, mask


@pytest.mark.parametrize("fast", [True, False])
def test_a_fully_masked_row_is_zero_and_has_a_gradient(fast: bool) -> None:
    q, k, v, mask = one_row_with_nothing()
    read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask) if fast else attention_weights(q, k, mask) @ v
    assert torch.equal(read[0, :, 2], torch.zeros(2, 8))
    assert read[0, :, 3].abs().min() > 0
    read.square().sum().backward()
    for each in (q, k, v):
        assert each.grad is not None
        assert each.grad.isfinite().all()
    assert q.grad is not None
    assert torch.equal(q.grad[0, :, 2], torch.zeros(2, 8))


def test_weights_add_up_to_one_or_to_nothing() -> None:
    q, k, _, mask = one_row_with_nothing()
    sums = attention_weights(q, k, mask).sum(-1)
    expected = torch.ones(2, 2, 5)
    expected[0, :, 2] = 0
    assert torch.allclose(sums, expected, atol=1e-6)
