"""Attention on the page: which token attends to which."""

from __future__ import annotations

import pytest

from tests.browser import Browser
from tests.use.serve.page import Page
from tests.use.serve.running import Running


def test_attention_shown_is_that_of_the_layer_and_head(window: Browser, layered: Running) -> None:
    page = Page(window, layered)
    page.type("a good film")
    for layer, head in ((1, 1), (2, 2)):
        page.run(
            f"document.getElementById('layer').value = '{layer}'; const h = document.getElementById('head');"
            f"h.value = '{head}'; h.dispatchEvent(new Event('change'));"
        )
        page.settled()
        found = layered.post("/attention", {"text": "a good film", "layer": layer, "head": head})[1]
        page.run("document.getElementById('tokens').children[2].click();")
        highest = max(found["weights"][2])
        assert f"({100 * highest:.1f} %)" in page.text("attention-said")


def test_arrow_keys_move_among_tokens(window: Browser, layered: Running) -> None:
    page = Page(window, layered)
    page.type("a good film")
    page.run("document.querySelector('.tok[tabindex=\"0\"]').focus();")
    page.key("Home")
    before = page.text("attention-said")
    page.key("ArrowRight")
    place = page.run("return [...document.getElementById('tokens').children].indexOf(document.activeElement)")
    assert place == 1
    assert page.text("attention-said") != before


def parts(character: str, count: int) -> list[tuple[str, str]]:
    """A character in so many tokens, as they are shown, each with its title."""
    return [("·" if number else character, f"part {number + 1} of “{character.strip()}”") for number in range(count)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("é 🐙 film", [("é", ""), *parts(" 🐙", 3), (" film", "")]),
        ("ã É", [*parts("ã", 2), (" ", ""), *parts("É", 2)]),
        ("🐙" * 30, parts("🐙", 3) * 21 + [("·", "part of a character")]),
    ],
)
def test_parts_of_a_character_are_shown_as_that_character(
    text: str, shown: list[tuple[str, str]], window: Browser, layered: Running
) -> None:
    page = Page(window, layered)
    page.type(text)
    found = page.run("return [...document.getElementById('tokens').children].map((e) => [e.textContent, e.title])")
    assert found == [list(each) for each in shown]
    assert page.text("attention-said").startswith(shown[-1][1] or f"“{shown[-1][0].strip()}”")
