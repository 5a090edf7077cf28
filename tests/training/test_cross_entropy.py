from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rehead.training import cross_entropy
from rehead.training.cross_entropy import linear_cross_entropy

SIZES = [(7, 11, torch.float64), (20, 31, torch.float32), (3, 5, torch.float32), (9, 40, torch.float64)]

Inputs = tuple[Tensor, Tensor, Tensor | None, Tensor]


def inputs(rows: int, width: int = 5, words: int = 11, bias: bool = True, kind: torch.dtype = torch.float64) -> Inputs:
    generator = torch.Generator().manual_seed(rows)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=kind).requires_grad_()

    targets = torch.randint(words, (rows,), generator=generator)
    return draw(rows, width), draw(words, width), draw(words) if bias else None, targets


def reference(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias), targets, reduction="sum")


@pytest.fixture(params=[11, 33, 10_000], ids=["a row at a time", "three rows at a time", "all at once"])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK", request.param)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_are_the_numerical_ones(bias: bool) -> None:
    hidden, weight, offset, targets = inputs(7, bias=bias)
    wanted = (hidden, weight) if offset is None else (hidden, weight, offset)

    def loss(*given: Tensor) -> Tensor:
        return linear_cross_entropy(given[0], given[1], given[2] if bias else None, targets)[0]

    assert torch.autograd.gradcheck(loss, wanted)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("rows", [0, 1, 6, 7])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_equals_cross_entropy(rows: int, bias: bool, kind: torch.dtype) -> None:
    hidden, weight, offset, targets = inputs(rows, bias=bias, kind=kind)
    wanted = [each for each in (hidden, weight, offset) if each is not None]
    ours, hits = linear_cross_entropy(hidden, weight, offset, targets)
    theirs = reference(hidden, weight, offset, targets)
    torch.testing.assert_close(ours, theirs)
    assert hits is None
    for mine, other in zip(
        torch.autograd.grad(ours * 0.3, wanted), torch.autograd.grad(theirs * 0.3, wanted), strict=True
    ):
        torch.testing.assert_close(mine, other)


@pytest.mark.usefixtures("chunk")
def test_without_gradients_it_counts_hits() -> None:
    hidden, weight, bias, targets = inputs(20)
    guesses = F.linear(hidden, weight, bias).argmax(1)
    targets[:8] = guesses[:8]
    with torch.no_grad():
        total, hits = linear_cross_entropy(hidden, weight, bias, targets)
    torch.testing.assert_close(total, reference(hidden, weight, bias, targets).detach())
    assert hits is not None
    assert hits.item() == (guesses == targets).sum().item() >= 8
    assert not total.requires_grad


def test_tied_weights_get_both_gradients() -> None:
    _, weight, _, targets = inputs(6)
    ids = torch.tensor([3, 1, 3, 0, 7, 2])
    (ours,) = torch.autograd.grad(linear_cross_entropy(weight[ids], weight, None, targets)[0], weight)
    (theirs,) = torch.autograd.grad(reference(weight[ids], weight, None, targets), weight)
    torch.testing.assert_close(ours, theirs)


def test_frozen_weights_cost_and_get_nothing() -> None:
    hidden, weight, bias, targets = inputs(6)
    assert bias is not None
    weight, bias = weight.detach(), bias.detach()
    linear_cross_entropy(hidden, weight, bias, targets)[0].backward()
    (theirs,) = torch.autograd.grad(reference(hidden, weight, bias, targets), hidden)
    torch.testing.assert_close(hidden.grad, theirs)
    assert weight.grad is None
    assert bias.grad is None


def test_backward_twice_adds_up() -> None:
    hidden, weight, bias, targets = inputs(6)
    total, _ = linear_cross_entropy(hidden, weight, bias, targets)
    total.backward(torch.tensor(2.0, dtype=total.dtype), retain_graph=True)
    total.backward()
    (theirs,) = torch.autograd.grad(reference(hidden, weight, bias, targets), weight)
    torch.testing.assert_close(weight.grad, 3 * theirs)


def test_hidden_of_any_stride() -> None:
    hidden, weight, bias, targets = inputs(6)
    turned = hidden.detach().t().contiguous().t().requires_grad_()
    ours = torch.autograd.grad(linear_cross_entropy(turned, weight, bias, targets)[0], turned)
    theirs = torch.autograd.grad(reference(hidden, weight, bias, targets), hidden)
    torch.testing.assert_close(ours, theirs)


def test_improbable_targets_stay_finite() -> None:
    # exp(-1000) is 0: the loss must not be its logarithm.
    hidden, weight = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[0.0], [1000.0], [-1000.0]])
    total, _ = linear_cross_entropy(hidden, weight, None, torch.tensor([2]))
    assert total.item() == 2000.0
    (slope,) = torch.autograd.grad(total, hidden)
    assert slope.item() == 2000.0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_passes_through(value: float) -> None:
    hidden, weight, bias, targets = inputs(6)
    with torch.no_grad():
        hidden[2, 1] = value
        total, _ = linear_cross_entropy(hidden, weight, bias, targets)
    assert not total.isfinite()
    total, _ = linear_cross_entropy(hidden, weight, bias, targets)
    (slope,) = torch.autograd.grad(total, weight)
    assert not total.isfinite()
    assert not slope.isfinite().all()


def test_targets_outside_the_vocabulary_are_refused() -> None:
    hidden, weight, bias, targets = inputs(6)
    targets[3] = 11
    with pytest.raises((RuntimeError, IndexError)):
        linear_cross_entropy(hidden, weight, bias, targets)


@pytest.mark.usefixtures("chunk")
def test_autocast_narrows_the_products_only() -> None:
    hidden, weight, bias, targets = inputs(7, kind=torch.float32)
    assert bias is not None
    wanted = (hidden, weight, bias)
    with torch.autocast("cpu", torch.bfloat16):
        ours, _ = linear_cross_entropy(hidden, weight, bias, targets)
    exact = reference(hidden, weight, bias, targets)
    assert ours.dtype == torch.float32
    assert 0 < abs(ours.item() - exact.item()) < 0.02 * exact.item()  # narrower, and near
    for mine, other in zip(torch.autograd.grad(ours, wanted), torch.autograd.grad(exact, wanted), strict=True):
        assert mine.dtype == torch.float32
        assert (mine - other).norm() < 0.02 * other.norm()


def test_a_narrow_model_gets_narrow_gradients() -> None:
    given = [each.detach().bfloat16().requires_grad_() for each in inputs(7, kind=torch.float32)[:2]]
    hidden, weight = given
    targets = inputs(7)[3]
    total, _ = linear_cross_entropy(hidden, weight, None, targets)
    exact = reference(hidden.detach().float(), weight.detach().float(), None, targets)
    assert abs(total.item() - exact.item()) < 0.02 * exact.item()
    assert [each.dtype for each in torch.autograd.grad(total, given)] == [torch.bfloat16] * 2


def test_the_whole_table_is_never_kept() -> None:
    rows, width, words = 600, 4, 3000
    hidden = torch.randn(rows, width, requires_grad=True)
    weight = torch.randn(words, width, requires_grad=True)
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor):
                largest = max(largest, out.numel())
            return out

    with pytest.MonkeyPatch.context() as patch, Watch():
        patch.setattr(cross_entropy, "CHUNK", 50 * words)
        linear_cross_entropy(hidden, weight, None, torch.randint(words, (rows,)))[0].backward()
    assert 0 < largest <= 50 * (words + 32)  # rows are padded


def test_calls_do_not_disturb_each_other() -> None:
    """The table of logits is used again, by larger and smaller calls and other types; gradients do not live in it."""
    calls = [inputs(rows, words=words, kind=kind) for rows, words, kind in SIZES]
    losses = [linear_cross_entropy(*call)[0] for call in calls]
    for call, ours in zip(calls, losses, strict=True):
        theirs = reference(*call)
        torch.testing.assert_close(ours, theirs)
        wanted = call[:2]
        for mine, other in zip(torch.autograd.grad(ours, wanted), torch.autograd.grad(theirs, wanted), strict=True):
            torch.testing.assert_close(mine, other)
