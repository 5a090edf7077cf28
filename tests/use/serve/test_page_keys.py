"""All that the page can do, with nothing but keys."""

from __future__ import annotations

from tests.browser import Browser
from tests.use.serve.page import Page
from tests.use.serve.running import Running


def test_all_of_it_works_with_a_keyboard(window: Browser, layered: Running) -> None:
    page = Page(window, layered)
    page.type("a good film")
    page.run("document.activeElement.blur(); window.scrollTo(0, 0);")
    met: list[str] = []
    for _ in range(16):
        page.key("Tab")
        met.append(page.run("const e = document.activeElement; return e.id || e.dataset.name || e.className"))
        ring = page.run(
            """const e = document.activeElement, seen = e.closest('.editor, .drop') || e;
            return getComputedStyle(seen).outlineStyle !== 'none' || e === document.body;"""
        )
        assert ring, f"no ring around {met[-1]}"
    assert {"text", "clear", "layer", "head", "tok", "csv"} <= set(met), met
    assert sum(each == "tok" for each in met) == 1, "one stop for all tokens; arrow keys move among them"
