from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rehead.errors import ConfigError
from rehead.model.config import (
    PRESETS,
    Classifier,
    LanguageModel,
    ModelConfig,
    ViewConfig,
    from_dict,
    head_from_dict,
    preset,
    presets,
    to_dict,
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nhid": 201}, ["nhid=201", "nhead=2", "200", "202"]),
        ({"nhid": 200, "nhead": 3}, ["nhid=198 or 204"]),
        ({"nhid": 201, "nhead": 2, "positions": "rotary"}, ["nhid=200 or 204"]),
        ({"ntokens": 2**40}, ["0 to 2,147,483,648"]),
        ({"nhid": 7, "nhead": 7}, ["nhid=7", "sinusoidal", "even"]),
        ({"nhid": 6, "nhead": 2, "positions": "rotary"}, ["nhid=6", "nhead=2", "rotary", "even"]),
        ({"nhead": 0}, ["nhead=0", "1", "65,536"]),
        ({"nhid": -200}, ["nhid=-200"]),
        ({"nlayers": -1}, ["nlayers=-1", "0", "1,024"]),
        ({"ntokens": 0}, ["ntokens=0"]),
        ({"nhid": 200.0}, ["nhid=200.0", "whole number"]),
        ({"nlayers": True}, ["nlayers=True", "whole number"]),
        ({"bias": 1}, ["bias=1", "true or false"]),
        ({"dropout": 1.5}, ["dropout=1.5", "0.99"]),
        ({"dropout": "0.1"}, ["dropout='0.1'", "number"]),
        ({"dropout": float("nan")}, ["dropout=nan"]),
        ({"positions": "spiral"}, ["positions='spiral'", "sinusoidal, learned, rotary, none"]),
        ({"positions": ["rotary"]}, ["positions=['rotary']", "rotary"]),
        ({"feedforward": "tanh"}, ["feedforward='tanh'", "relu, gelu, swiglu"]),
        ({"norm": "both"}, ["norm='both'", "post, pre"]),
        ({"pooling": "sum"}, ["pooling='sum'", "last, mean"]),
        ({"ngrams": 2}, ["ngrams=2", "nbuckets=0"]),
        ({"nbuckets": 100}, ["ngrams=1", "nbuckets=100"]),
        ({"ffmult": 0.001}, ["ffmult=0.001"]),
        ({"nhidden": 200}, ["nhidden", "nhid"]),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        preset("lab", **changes)
    assert all(each in str(caught.value) for each in said), str(caught.value)
    assert "\n" not in str(caught.value)


def test_config_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nhid=201"):
        ModelConfig(ntokens=100, nhid=201)


def test_unknown_preset() -> None:
    with pytest.raises(ConfigError, match=r"'huge' is not known.*lab, small, base, bag"):
        preset("huge")


BAG = ViewConfig(name="bag", columns=8)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Classifier(classes=1, views=(BAG,)), "classes=1"),
        (lambda: Classifier(classes=0, views=(BAG,), multilabel=True), "classes=0"),
        (lambda: Classifier(classes=2, views=()), "views=[]"),
        (lambda: Classifier(classes=2, views=(BAG, BAG)), "['bag', 'bag']"),
        (lambda: Classifier(classes=2, views="bag"), "views='bag'"),  # type: ignore[arg-type]
        (lambda: ViewConfig(name="../bag", columns=8), "'../bag'"),
        (lambda: ViewConfig(name="bag", columns=0), "columns=0"),
        (lambda: ViewConfig(name="bag", columns=8, options=[]), "options=[]"),  # type: ignore[arg-type]
        (lambda: head_from_dict({"kind": "classifier", "classes": 2, "views": [{"name": "bag"}]}), "'columns'"),
        (lambda: head_from_dict({"kind": "classifier", "classes": 2, "views": [3]}), "3"),
        (lambda: head_from_dict({"kind": "regressor"}), "'regressor'"),
        (lambda: head_from_dict(3), "3"),
        (lambda: head_from_dict({"kind": "classifier"}), "lacks the field 'classes'"),
        (lambda: from_dict(ModelConfig, [1]), "Expected an object"),
    ],
)
def test_wrong_heads_are_named(make: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert said in str(caught.value)


def test_one_label_is_enough_for_multilabel() -> None:
    assert Classifier(classes=1, views=(BAG,), multilabel=True).classes == 1


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_survives_json(name: str) -> None:
    config = preset(name)
    assert from_dict(ModelConfig, to_dict(config)) == config
    for head in (config.language_model(), config.classifier(3)):
        assert head_from_dict(to_dict(head)) == head


def test_numpys_whole_numbers_are_whole_numbers() -> None:
    config = preset("lab", nhid=np.int64(100), ntokens=np.int32(50))
    assert config == preset("lab", nhid=100, ntokens=50)
    assert type(config.nhid) is int


def test_one_dial_scales_the_widths() -> None:
    assert preset("lab", nhid=100).nff == 100
    assert preset("small", nhid=512).nff == 1280


def test_the_lab_is_the_lab() -> None:
    lab = presets()["lab"]
    assert (lab.nhid, lab.nlayers, lab.nhead, lab.nff) == (200, 4, 2, 200)
    assert (lab.positions, lab.feedforward, lab.norm, lab.dropout) == ("sinusoidal", "relu", "post", 0.2)
    assert lab.bias
    assert lab.scale_embedding
    assert lab.language_model() == LanguageModel(tied=False)
    assert lab.classifier(2) == Classifier(
        classes=2, views=(ViewConfig(name="layers", columns=200, options={"pooling": "last", "causal": True}),)
    )
    assert lab.classifier(2).neural == lab.classifier(2).view("layers")
    assert lab.classifier(2).view("bag") is None


@pytest.mark.parametrize(
    ("name", "changes", "views", "reads"),
    [
        ("bag", {}, ("bag",), "bag"),
        ("bag", {"positions": "learned"}, ("layers",), "layers"),  # positions are added: order matters
        ("small", {}, ("bag", "layers"), "layers"),
        ("small", {"reads": "bag"}, ("bag", "layers"), "bag"),
        ("small", {"nlayers": 0}, ("bag",), "bag"),
        ("lab", {}, ("layers",), "layers"),
    ],
)
def test_a_shape_states_what_is_read(name: str, changes: dict[str, Any], views: tuple[str, ...], reads: str) -> None:
    config = preset(name, **changes)
    assert (config.views, config.reads) == (views, reads)
    assert [view.name for view in config.classifier(2).views] == [reads]


@pytest.mark.parametrize(
    ("name", "reads", "available"), [("bag", "layers", "bag"), ("lab", "bag", "layers"), ("small", "words", "layers")]
)
def test_a_view_that_the_shape_does_not_have_is_refused(name: str, reads: str, available: str) -> None:
    with pytest.raises(ConfigError, match=rf"reads='{reads}'.*{available}"):
        preset(name, reads=reads)


@pytest.mark.parametrize(
    ("name", "changes", "part"),
    [
        ("bag", {}, "n-gram vectors, no layers"),
        ("small", {"reads": "bag"}, "n-gram vectors, no layers"),
        ("base", {"reads": "bag"}, "token vectors, no layers"),
        ("small", {}, "a Transformer of 4 layers"),
        ("lab", {"nlayers": 1}, "a Transformer of 1 layer"),
    ],
)
def test_which_part_of_a_model_learns(name: str, changes: dict[str, Any], part: str) -> None:
    assert preset(name, **changes).learning_part == part
