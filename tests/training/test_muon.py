from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from rehead.errors import ConfigError
from rehead.training.muon import Muon, orthogonalise


def polar(matrix: Tensor) -> Tensor:
    """The nearest orthogonal matrix, exactly."""
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    return u @ v


@pytest.mark.parametrize("shape", [(8, 8), (24, 8), (8, 24), (64, 32), (1, 5)])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_near_the_polar_factor(shape: tuple[int, int], size: float) -> None:
    torch.manual_seed(0)
    # Singular values from 1 down to 0.05, whose directions are all to be kept.
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    values = torch.linspace(1, 0.05, min(shape))
    matrix = size * u @ torch.diag(values) @ v
    found = orthogonalise(matrix)
    inside = u.t() @ found @ v.t()  # diagonal where directions are kept
    lengths = inside.diagonal()
    assert (inside - torch.diag(lengths)).abs().max() < 1e-3
    assert lengths.min() > 0.65
    assert lengths.max() < 1.16
    assert (found - polar(matrix)).norm() < 0.35 * polar(matrix).norm()


def test_signs_survive() -> None:
    diagonal = torch.diag(torch.tensor([3.0, -2.0, 1.0, -0.5]))
    assert torch.equal(orthogonalise(diagonal).diagonal().sign(), diagonal.diagonal().sign())


def test_zero_stays_zero() -> None:
    assert not orthogonalise(torch.zeros(4, 6)).any()


def test_first_step_by_hand() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(12, 4))
    before, gradient = weight.detach().clone(), torch.randn(12, 4)
    weight.grad = gradient
    Muon([weight], lr=0.1, weight_decay=0.5).step()
    expected = before * (1 - 0.1 * 0.5) - 0.1 * 3**0.5 * orthogonalise(gradient)
    torch.testing.assert_close(weight.detach(), expected)


def test_momentum_by_hand() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(4, 4))
    optimizer, momentum, expected = Muon([weight], lr=0.1, momentum=0.9), torch.zeros(4, 4), torch.zeros(4, 4)
    for _ in range(3):
        weight.grad = torch.randn(4, 4)
        momentum = 0.9 * momentum + 0.1 * weight.grad
        expected = expected - 0.1 * orthogonalise(0.1 * weight.grad + 0.9 * momentum)
        optimizer.step()
    torch.testing.assert_close(weight.detach(), expected)


def test_torchs_own_moves_the_same_way() -> None:
    """torch orthogonalises in bfloat16, so it agrees to about two digits."""
    torch.manual_seed(0)
    ours, theirs = (nn.Parameter(torch.ones(12, 8)) for _ in range(2))
    sides = Muon([ours], lr=0.1, weight_decay=0.5), torch.optim.Muon([theirs], lr=0.1, weight_decay=0.5)
    for _ in range(3):
        ours.grad = torch.randn(12, 8)
        theirs.grad = ours.grad.clone()
        for each in sides:
            each.step()
    torch.testing.assert_close(ours.detach(), theirs.detach(), atol=1e-2, rtol=0)


def test_learns_and_resumes_exactly() -> None:
    torch.manual_seed(0)
    model, inputs, wanted = nn.Linear(6, 6, bias=False), torch.randn(64, 6), torch.randn(64, 6)
    optimizer = Muon(model.parameters(), lr=0.05)

    def train(model: nn.Module, optimizer: Muon, steps: int) -> float:
        for _ in range(steps):
            loss = (model(inputs) - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    first = train(model, optimizer, 1)
    train(model, optimizer, 9)
    twin = copy.deepcopy(model)
    resumed = Muon(twin.parameters(), lr=0.05)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert train(model, optimizer, 20) == train(twin, resumed, 20) < 0.9 * first
    assert torch.equal(model.weight, twin.weight)


def test_without_a_gradient_nothing_moves() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    Muon([weight], weight_decay=1.0).step()
    assert torch.equal(weight.detach(), torch.ones(2, 2))


def test_what_it_cannot_take_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(3,\)"):
        Muon([nn.Parameter(torch.zeros(3))])
