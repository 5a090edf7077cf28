"""What objectives declare, and how `--objective` is parsed."""

from __future__ import annotations

import pytest

from rehead.errors import UserError
from rehead.model.objectives import OBJECTIVES, Stage, names_with, parse_objective, specs_of
from rehead.pretrain.options import PretrainOptions
from rehead.pretrain.phases import BUILDERS
from rehead.pretrain.run import _model as model_of
from tests.model.conftest import miniature


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("causal", [Stage(("causal",), 1.0)]),
        ("document,masked", [Stage(("document",), 0.5), Stage(("masked",), 0.5)]),
        ("document:0.8, masked:0.2", [Stage(("document",), 0.8), Stage(("masked",), 0.2)]),
        ("bag,document", [Stage(("bag",), 0.5), Stage(("document",), 0.5)]),
        ("masked+document", [Stage(("masked", "document"), 1.0)]),
        ("document:.5,masked+causal:.5", [Stage(("document",), 0.5), Stage(("masked", "causal"), 0.5)]),
    ],
)
def test_stages_are_parsed(text: str, stages: list[Stage]) -> None:
    assert parse_objective(text) == stages


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bert", "'bert'"),
        ("", "unknown objective ''"),
        ("causal,", "unknown objective ''"),
        ("masked+masked", "names one objective twice"),
        ("document:0.5,masked", "share to every"),
        ("document:0.5,masked:0.6", "add up to 1.1"),
        ("document:x", "the share 'x'"),
        ("document:-1,masked:2", "the share '-1'"),
        ("document:nan", "the share 'nan'"),
    ],
)
def test_what_cannot_be_parsed_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint.replace("+", r"\+")):
        parse_objective(text)


def test_every_objective_can_be_built_and_every_option_exists() -> None:
    assert BUILDERS.keys() == OBJECTIVES.keys()
    for name, spec in OBJECTIVES.items():
        assert spec.name == name
        assert all(hasattr(PretrainOptions, option) for option in spec.options)
        assert spec.needs_mask == spec.fills, "what fills in masked tokens is trained with them"
        assert spec.needs_language_model_head == (spec.generates or spec.fills)


@pytest.mark.parametrize(
    ("text", "head", "mask", "generates"),
    [
        ("document", False, False, False),
        ("bag", False, False, False),
        ("document,masked", True, True, False),
        ("document+causal", True, False, True),
        ("bag,hybrid", True, True, True),
    ],
)
def test_what_the_stages_need(text: str, head: bool, mask: bool, generates: bool) -> None:
    specs = specs_of(parse_objective(text))
    assert any(spec.needs_language_model_head for spec in specs) == head
    assert any(spec.needs_mask for spec in specs) == mask
    assert any(spec.generates for spec in specs) == generates


def test_which_objectives_teach_what() -> None:
    assert names_with("generates") == ["causal", "hybrid"]
    assert names_with("fills") == ["masked", "hybrid"]


@pytest.mark.parametrize(
    ("shape", "objective", "reads"),
    [
        ("bag", "bag", "bag"),
        ("bag", "document", "bag"),
        ("small", "bag", "bag"),  # its layers stay the identity
        ("small", "bag,causal", "layers"),
        ("small", "document", "layers"),
        ("lab", "bag", "layers"),  # positions are added to its embeddings
    ],
)
def test_pretraining_states_what_a_classifier_will_read(shape: str, objective: str, reads: str) -> None:
    assert model_of(miniature(shape), parse_objective(objective), seed=0).config.reads == reads
