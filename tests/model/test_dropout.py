from __future__ import annotations

import pytest
import torch

from rehead.model.dropout import STEPS, Dropout, drop


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 0.99])
def test_the_right_share_is_dropped_and_the_rest_scaled(p: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(401, 999)
    dropped = drop(x, p)
    share = (dropped == 0).double().mean().item()
    assert share == pytest.approx(p, abs=5 * (p * (1 - p) / x.numel()) ** 0.5)
    kept = dropped[dropped != 0]
    exact = 1 - round(p * STEPS) / STEPS
    assert (kept == torch.tensor(1 / exact)).all()


def test_the_four_values_of_a_draw_are_independent() -> None:
    torch.manual_seed(0)
    lanes = (drop(torch.ones(100_000, 4), 0.3) == 0).double()
    assert (lanes.mean(0) - 0.3).abs().max() < 0.01  # the top bit of a draw counts as much as any other
    together = torch.corrcoef(lanes.t()) - torch.eye(4)
    assert together.abs().max() < 0.02


def test_drawn_from_torchs_generator() -> None:
    x = torch.randn(3, 7)
    torch.manual_seed(1)
    first, second = drop(x, 0.5), drop(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(drop(x, 0.5), first)
    assert not torch.equal(first, second)


def test_gradients_pass_where_values_pass() -> None:
    torch.manual_seed(0)
    x = torch.ones(50, 50, requires_grad=True)
    dropped = drop(x, 0.4)
    dropped.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, dropped.detach())


@pytest.mark.parametrize("shape", [(0, 4), (), (1,), (5,), (2, 3, 0)])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_any_shape_and_type(shape: tuple[int, ...], kind: torch.dtype) -> None:
    dropped = drop(torch.ones(shape, dtype=kind), 0.5)
    assert (dropped.shape, dropped.dtype) == (torch.Size(shape), kind)
    assert ((dropped == 0) | (dropped == 2)).all()


def test_off_outside_training() -> None:
    x = torch.randn(4, 4)
    assert Dropout(0.9).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert (Dropout(0.9).train()(torch.ones(999)) == 0).any()
