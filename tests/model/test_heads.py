from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rehead.errors import ConfigError
from rehead.model import LanguageModel, Model
from rehead.model.config import Pooling
from rehead.model.heads import ClassifierHead, LanguageModelHead, pool, unit_vectors
from tests.model.conftest import alive, classifier_of, miniature

POOLINGS: list[Pooling] = ["last", "mean"]


def by_hand(pooling: str, document: Tensor) -> Tensor:
    """Pool one unpadded document (T, H)."""
    return document[-1] if pooling == "last" else document.mean(0)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_pooling_by_hand(pooling: Pooling, side: str) -> None:
    torch.manual_seed(0)
    hidden, keep = torch.randn(3, 7, 16), torch.zeros(3, 7, dtype=torch.bool)
    for row, length in enumerate((7, 4, 1)):
        keep[row, slice(0, length) if side == "right" else slice(7 - length, 7)] = True
    pooled = pool(hidden, keep, pooling)
    for row in range(3):
        assert torch.allclose(pooled[row], by_hand(pooling, hidden[row, keep[row]]), atol=1e-5)
    assert torch.allclose(pool(hidden, None, pooling), pool(hidden, torch.ones(3, 7, dtype=torch.bool), pooling))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_document_without_tokens_pools_to_zeros(pooling: Pooling) -> None:
    hidden = torch.randn(2, 5, 16, requires_grad=True)
    keep = torch.tensor([[True] * 5, [False] * 5])
    pooled = pool(hidden, keep, pooling)
    assert torch.equal(pooled[1], torch.zeros_like(pooled[1]))
    pooled.sum().backward()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()
    assert not hidden.grad[1].any()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_batch_without_any_column_pools_to_zeros(pooling: Pooling) -> None:
    pooled = pool(torch.randn(2, 0, 16), None, pooling)
    assert pooled.shape == (2, 16)
    assert not pooled.any()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["lab", "small", "base"])
def test_padding_does_not_reach_the_logits(name: str, pooling: Pooling, causal: bool) -> None:
    config = miniature(name)
    model = alive(config, classifier_of(config, pooling=pooling, causal=causal))
    document = torch.randint(50, (1, 5))
    padded = torch.cat((document, torch.randint(50, (1, 4))), 1)
    with torch.no_grad():
        alone, beside = model(document), model(padded, torch.tensor([[True] * 5 + [False] * 4]))
    assert torch.allclose(alone, beside, atol=1e-5)


def test_dropout_of_the_head_is_on_in_training() -> None:
    config = miniature("lab")
    head = ClassifierHead(config, classifier_of(config, dropout=0.9))
    vectors = torch.randn(2, 16)
    assert not torch.equal(head(vectors), head(vectors))
    head.eval()
    assert torch.equal(head(vectors), head(vectors))


def test_a_head_on_directions_by_hand() -> None:
    torch.manual_seed(0)
    config = miniature("bag")
    head = ClassifierHead(config, classifier_of(config, unit=True, tokens=True))
    part, vectors = head.of("bag"), torch.randn(3, 16)
    assert part.shift is not None
    part.shift.normal_()
    apart = (vectors - part.shift).numpy()
    expected = apart / (apart**2).sum(1, keepdims=True) ** 0.5
    torch.testing.assert_close(unit_vectors(vectors, part.shift), torch.from_numpy(expected))
    with torch.no_grad():
        torch.testing.assert_close(head(vectors), torch.from_numpy(expected) @ part.weight.T + head.bias)
    assert head.of("tokens").weight.shape == (50 + 64, 2), "a row for each feature, so that few are read"
    assert head.of("tokens").shift is None
    assert part.scale is None


def test_a_unit_head_reads_a_vector_at_the_mean_as_zeros() -> None:
    shift = torch.randn(4)
    assert not unit_vectors(shift[None], shift).any()


def test_probabilities_of_one_label_and_of_many() -> None:
    logits = torch.tensor([[0.0, 1.0, -2.0]])
    config = miniature("lab")
    one = ClassifierHead(config, classifier_of(config, 3)).probabilities(logits)
    many = ClassifierHead(config, classifier_of(config, 3, multilabel=True)).probabilities(logits)
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
    some = model.token_logits(hidden[masked])
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
    torch.testing.assert_close(logits, model.token_logits(hidden))
    torch.testing.assert_close(model.token_logit_parts(hidden)[0], normed)
    assert (weight is table) == tied
