from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rehead.errors import ConfigError
from rehead.model import Classifier, LanguageModel, Model
from rehead.model.heads import ClassifierHead, LanguageModelHead
from tests.model.conftest import alive, miniature

POOLINGS = ["last", "mean"]


def by_hand(pooling: str, document: Tensor) -> Tensor:
    """Pool one unpadded document (T, H)."""
    return document[-1] if pooling == "last" else document.mean(0)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_pooling_by_hand(pooling: str, side: str) -> None:
    torch.manual_seed(0)
    head = ClassifierHead(miniature("lab"), Classifier(classes=2, pooling=pooling))  # type: ignore[arg-type]
    hidden, keep = torch.randn(3, 7, 16), torch.zeros(3, 7, dtype=torch.bool)
    for row, length in enumerate((7, 4, 1)):
        keep[row, slice(0, length) if side == "right" else slice(7 - length, 7)] = True
    with torch.no_grad():
        pooled = head.pool(hidden, keep)
        for row in range(3):
            assert torch.allclose(pooled[row], by_hand(pooling, hidden[row, keep[row]]), atol=1e-5)
        assert torch.allclose(head.pool(hidden), head.pool(hidden, torch.ones(3, 7, dtype=torch.bool)))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_document_without_tokens_pools_to_zeros(pooling: str) -> None:
    head = ClassifierHead(miniature("lab"), Classifier(classes=2, pooling=pooling))  # type: ignore[arg-type]
    hidden = torch.randn(2, 5, 16, requires_grad=True)
    keep = torch.tensor([[True] * 5, [False] * 5])
    pooled = head.pool(hidden, keep)
    assert torch.equal(pooled[1], torch.zeros_like(pooled[1]))
    pooled.sum().backward()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()
    assert not hidden.grad[1].any()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_batch_without_any_column_pools_to_zeros(pooling: str) -> None:
    head = ClassifierHead(miniature("lab"), Classifier(classes=2, pooling=pooling))  # type: ignore[arg-type]
    assert not head.pool(torch.randn(2, 0, 16)).any()
    assert head(torch.randn(2, 0, 16), None, torch.empty(0)).shape == (2, 2)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("causal", [True, False])
def test_padding_does_not_reach_the_logits(preset_name: str, pooling: str, causal: bool) -> None:
    model = alive(miniature(preset_name), Classifier(classes=2, pooling=pooling, causal=causal))  # type: ignore[arg-type]
    document = torch.randint(50, (1, 5))
    padded = torch.cat((document, torch.randint(50, (1, 4))), 1)
    with torch.no_grad():
        alone, beside = model(document), model(padded, torch.tensor([[True] * 5 + [False] * 4]))
    assert torch.allclose(alone, beside, atol=1e-5)


def test_dropout_of_the_head_is_on_in_training() -> None:
    head = ClassifierHead(miniature("lab"), Classifier(classes=2, pooling="mean", dropout=0.9))
    hidden = torch.randn(2, 3, 16)
    assert not torch.equal(head(hidden, None, torch.empty(0)), head(hidden, None, torch.empty(0)))
    head.eval()
    assert torch.equal(head(hidden, None, torch.empty(0)), head(hidden, None, torch.empty(0)))


def test_probabilities_of_one_label_and_of_many() -> None:
    logits = torch.tensor([[0.0, 1.0, -2.0]])
    one = ClassifierHead(miniature("lab"), Classifier(classes=3)).probabilities(logits)
    many = ClassifierHead(miniature("lab"), Classifier(classes=3, multilabel=True)).probabilities(logits)
    assert one.sum().item() == pytest.approx(1)
    assert many.tolist()[0] == pytest.approx([0.5, 0.7310586, 0.1192029])


@pytest.mark.parametrize("tied", [True, False])
def test_language_model_head_by_hand(preset_name: str, tied: bool) -> None:
    config = miniature(preset_name)
    model = alive(config, LanguageModel(tied=tied))
    ids = torch.randint(50, (2, 6))
    with torch.no_grad():
        hidden = model.base(ids, causal=True)
        if config.norm == "pre":
            scale = model.get_parameter("head.norm.weight")
            hidden = (hidden - hidden.mean(-1, keepdim=True)) / (
                hidden.var(-1, unbiased=False, keepdim=True) + 1e-5
            ).sqrt()
            hidden = hidden * scale
        table = model.base.embedding.weight if tied else model.get_parameter("head.weight")
        expected = hidden @ table.T + (model.get_parameter("head.bias") if config.bias else 0)
        assert torch.allclose(model(ids), expected, atol=1e-5)


def test_a_tied_head_learns_through_the_embedding() -> None:
    model = alive(miniature("small"), LanguageModel(tied=True))
    assert not any(name == "head.weight" for name, _ in model.named_parameters())
    ids = torch.tensor([[1, 2, 3]])
    model(ids)[0, 0, 40].backward()
    gradient = model.base.embedding.weight.grad
    assert gradient is not None
    assert gradient[40].any()  # not read, only predicted


def test_the_head_takes_masked_positions_alone() -> None:
    model = alive(miniature("small"), LanguageModel(tied=True))
    ids = torch.randint(50, (2, 6))
    hidden = model.base(ids, causal=False)
    masked = torch.tensor([[True, False] * 3, [False, True] * 3])
    assert model.head is not None
    some = model.head(hidden[masked], None, model.base.embedding.weight)
    assert torch.allclose(some, model(ids, causal=False)[masked], atol=1e-5)


def test_a_bare_base_says_so() -> None:
    with pytest.raises(ConfigError, match="replace_head"):
        Model(miniature("lab"))(torch.zeros(1, 1, dtype=torch.long))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", ["lab", "small"])
def test_logits_are_made_of_their_parts(name: str, tied: bool) -> None:
    torch.manual_seed(0)
    model = Model(miniature(name), LanguageModel(tied=tied))
    assert isinstance(model.head, LanguageModelHead)
    hidden, table = torch.randn(3, 7, 16), model.base.embedding.weight
    normed, weight, bias = model.head.parts(hidden, table)
    logits = normed @ weight.t() if bias is None else normed @ weight.t() + bias
    torch.testing.assert_close(logits, model.head(hidden, None, table))
    assert (weight is table) == tied
