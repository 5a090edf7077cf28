from __future__ import annotations

import pytest

from rehead.errors import UserError
from rehead.pretrain.recipe import Stage, has_language_model, read_recipe


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
def test_recipes(text: str, stages: list[Stage]) -> None:
    assert read_recipe(text) == stages


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bert", "'bert' is not known"),
        ("", "'' is not known"),
        ("causal,", "'' is not known"),
        ("masked+masked", "names one objective twice"),
        ("document:0.5,masked", "to every objective, or to none"),
        ("document:0.5,masked:0.6", "add up to 1.1"),
        ("document:x", "the share 'x'"),
        ("document:-1,masked:2", "the share '-1'"),
        ("document:nan", "the share 'nan'"),
    ],
)
def test_what_is_no_recipe(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint.replace("+", r"\+")):
        read_recipe(text)


def test_who_needs_a_language_model() -> None:
    assert not has_language_model(read_recipe("document"))
    assert has_language_model(read_recipe("document,masked"))
    assert has_language_model(read_recipe("document+causal"))
