from __future__ import annotations

import hashlib

import pytest
import torch

from rehead.errors import ConfigError
from rehead.model import Classifier, LanguageModel, Model, preset
from tests.model.conftest import alive, miniature


def digest(model: Model) -> str:
    """Every byte of the base, with its names."""
    parts = hashlib.sha256()
    for name, each in model.base.state_dict().items():
        parts.update(name.encode() + each.numpy().tobytes())
    return parts.hexdigest()


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_replacing_the_head_keeps_every_byte_of_the_base(preset_name: str, pooling: str) -> None:
    config = miniature(preset_name)
    model = alive(config, config.language_model())
    before, tensors = digest(model), {name: each.data_ptr() for name, each in model.base.named_parameters()}
    grown = next(model.base.parameters())
    grown.requires_grad_(False)
    generator = torch.get_rng_state()

    change = model.replace_head(Classifier(classes=3, pooling=pooling))  # type: ignore[arg-type]

    assert digest(model) == before
    assert {name: each.data_ptr() for name, each in model.base.named_parameters()} == tensors  # not even moved
    assert not grown.requires_grad
    assert not model.training
    assert model.head is not None
    assert not model.head.training
    assert model(torch.zeros(2, 4, dtype=torch.long)).shape == (2, 3)
    assert change.kept == sum(each.numel() for each in model.base.parameters())
    assert not torch.equal(generator, torch.get_rng_state())  # a fresh head, not a copied one


def test_it_says_what_went_and_what_came() -> None:
    model = Model(preset("lab", ntokens=100), LanguageModel(tied=False))
    change = model.replace_head(Classifier(classes=2, pooling="last"))
    assert change.dropped == {"head.weight": (100, 200), "head.bias": (100,)}
    assert change.added == {"head.linear.weight": (2, 200), "head.linear.bias": (2,)}
    assert str(change) == (
        "dropped language-model head (20,100 parameters: head.weight 100×200, head.bias 100); "
        "new classifier head (402 parameters: head.linear.weight 2×200, head.linear.bias 2); "
        "base kept as it was: 988,000 parameters"
    )


def test_a_tied_head_leaves_the_table_behind() -> None:
    model = Model(miniature("small"), LanguageModel(tied=True))
    change = model.replace_head(Classifier(classes=2))
    assert list(change.dropped) == ["head.norm.weight"]
    assert model.base.embedding.weight.shape == (50, 16)


def test_a_bare_base_gets_its_first_head_and_back() -> None:
    model = Model(miniature("bag"))
    change = model.replace_head(Classifier(classes=2))
    assert change.dropped == {}
    assert str(change).startswith("dropped no head (0 parameters); new classifier head (34 parameters:")
    model.replace_head(LanguageModel(tied=True))
    assert model(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 3, 50)


def test_what_is_no_head_is_refused_and_changes_nothing() -> None:
    model = Model(miniature("lab"), LanguageModel(tied=False))
    head = model.head
    with pytest.raises(ConfigError, match="head=None is no head"):
        model.replace_head(None)  # type: ignore[arg-type]
    assert model.head is head
    assert model.head_config == LanguageModel(tied=False)


def test_a_head_reads_the_way_it_was_described() -> None:
    model = alive(miniature("lab"), Classifier(classes=2, pooling="mean", causal=True))
    ids = torch.randint(50, (1, 8))
    with torch.no_grad():
        assert torch.equal(model(ids), model(ids, causal=True))
        assert not torch.allclose(model(ids), model(ids, causal=False))
    model.replace_head(Classifier(classes=2, pooling="mean", causal=False))
    with torch.no_grad():
        assert torch.equal(model(ids), model(ids, causal=False))


def test_the_new_head_goes_where_the_base_is() -> None:
    model = Model(miniature("lab"), LanguageModel(tied=False)).to(torch.float64)
    model.replace_head(Classifier(classes=2))
    assert model.head is not None
    assert all(each.dtype == torch.float64 for each in model.head.parameters())
