from __future__ import annotations

import hashlib

import pytest
import torch

from rehead.errors import ConfigError
from rehead.model import LanguageModel, Model, preset
from tests.model.conftest import alive, classifier_of, miniature


def digest(model: Model) -> str:
    """Every byte of the base, with its names."""
    parts = hashlib.sha256()
    for name, each in model.base.state_dict().items():
        parts.update(name.encode() + each.numpy().tobytes())
    return parts.hexdigest()


def test_replacing_the_head_keeps_every_byte_of_the_base(preset_name: str) -> None:
    config = miniature(preset_name)
    model = alive(config, config.language_model())
    before, tensors = digest(model), {name: each.data_ptr() for name, each in model.base.named_parameters()}
    grown = next(model.base.parameters())
    grown.requires_grad_(False)
    generator = torch.get_rng_state()

    change = model.replace_head(config.classifier(3))

    assert digest(model) == before
    assert {name: each.data_ptr() for name, each in model.base.named_parameters()} == tensors  # not even moved
    assert not grown.requires_grad
    assert not model.training
    assert model.head is not None
    assert not model.head.training
    assert model.head(torch.zeros(2, config.nhid)).shape == (2, 3)
    assert change.kept == sum(each.numel() for each in model.base.parameters())
    assert not torch.equal(generator, torch.get_rng_state())  # a fresh head, not a copied one


def test_it_says_what_went_and_what_came() -> None:
    model = Model(preset("lab", ntokens=100), LanguageModel(tied=False))
    change = model.replace_head(model.config.classifier(2))
    assert change.dropped == {"head.weight": (100, 200), "head.bias": (100,)}
    assert change.added == {"head.bias": (2,), "head.views.layers.weight": (2, 200)}
    assert str(change) == (
        "dropped language-model head (20,100 parameters: head.weight 100×200, head.bias 100); "
        "new classifier head (402 parameters: head.bias 2, head.views.layers.weight 2×200); "
        "base kept as it was: 988,000 parameters"
    )


def test_a_tied_head_leaves_the_table_behind() -> None:
    model = Model(miniature("small"), LanguageModel(tied=True))
    change = model.replace_head(model.config.classifier(2))
    assert list(change.dropped) == ["head.norm.weight"]
    assert model.base.embedding.weight.shape == (50, 16)


def test_a_bare_base_gets_its_first_head_and_back() -> None:
    model = Model(miniature("bag"))
    change = model.replace_head(model.config.classifier(2))
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
    model = alive(miniature("lab"), classifier_of(miniature("lab"), pooling="mean", causal=True))
    ids = torch.randint(50, (1, 8))
    with torch.no_grad():
        assert torch.equal(model(ids), model(ids, causal=True))
        assert not torch.allclose(model(ids), model(ids, causal=False))
    assert model.reads_causally
    model.replace_head(classifier_of(model.config, pooling="mean", causal=False))
    assert not model.reads_causally
    with torch.no_grad():
        assert torch.equal(model(ids), model(ids, causal=False))


@pytest.mark.parametrize("tokens", [True, False])
def test_a_classifier_that_reads_more_than_hidden_states_is_not_called(tokens: bool) -> None:
    config = miniature("small")
    head = classifier_of(config, tokens=True) if tokens else classifier_of(config, view="bag")
    with pytest.raises(ConfigError, match=r"tokens|bag"):
        Model(config, head)(torch.zeros(1, 3, dtype=torch.long))


@pytest.mark.parametrize("reads", ["bag", "layers"])
def test_whether_layers_are_read_is_stated(reads: str) -> None:
    """Neither the layers' weights, which are the identity here, nor their number decide."""
    config = miniature("small", reads=reads)
    assert Model(config).reads_layers == (reads == "layers")
    assert Model(config, config.classifier(2)).reads_layers == (reads == "layers")
    other = "bag" if reads == "layers" else "layers"
    assert Model(config, classifier_of(config, view=other)).reads_layers == (other == "layers")


def test_the_new_head_goes_where_the_base_is() -> None:
    model = Model(miniature("lab"), LanguageModel(tied=False)).to(torch.float64)
    model.replace_head(model.config.classifier(2))
    assert model.head is not None
    assert all(each.dtype == torch.float64 for each in model.head.parameters())
