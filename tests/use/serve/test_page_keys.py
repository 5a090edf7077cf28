"""All that the page can do, with nothing but keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rehead.use.labeller import Labeller
from tests.browser import Browser
from tests.use.serve.page import Page
from tests.use.serve.running import SECRET, Running, classifier, running, wait_until


def test_every_control_is_met_and_has_a_ring(window: Browser, layered: Running) -> None:
    page = Page(window, layered)
    page.type("a good film")
    page.run("document.activeElement.blur(); window.scrollTo(0, 0);")
    met: list[str] = []
    for _ in range(16):
        page.key("Tab")
        met.append(page.focus())
        ring = page.run(
            """const e = document.activeElement, seen = e.closest('.editor, .drop') || e;
            return getComputedStyle(seen).outlineStyle !== 'none' || e === document.body;"""
        )
        assert ring, f"no ring around {met[-1]}"
    assert {"text", "clear", "layer", "head", "tok", "csv"} <= set(met), met
    assert sum(each == "tok" for each in met) == 1, "one stop for all tokens; arrow keys move among them"


def test_a_text_is_written_and_its_label_read(page: Page) -> None:
    assert page.focus() == "text", "one can begin at once"
    page.keys("a bad film")
    page.settled()
    given = Labeller.of(classifier()).probabilities(["a bad film"])
    assert page.text("said").endswith(f" {100 * given.max():.1f} %")
    first = page.text("legend-label")
    other = next(name for name in ("bad", "fair", "good <b>") if name != first)
    page.tab_to(other)
    page.key("Enter")
    page.settled()
    assert page.text("legend-label") == other


def test_a_layer_and_a_head_are_chosen(window: Browser, layered: Running) -> None:
    page = Page(window, layered)
    page.keys("a good film")
    page.settled()
    page.tab_to("layer")
    page.key("ArrowUp")
    page.tab_to("head")
    page.key("ArrowDown")
    page.key("ArrowDown")
    page.settled()
    page.tab_to("tok")
    page.key("Home")
    page.key("ArrowRight")
    found = layered.post("/attention", {"text": "a good film", "layer": 1, "head": 2})[1]
    highest = max(found["weights"][1])
    assert page.text("attention-said").startswith("“good” ")
    assert f"({100 * highest:.1f} %)" in page.text("attention-said")


def choose(page: Page, file: Path) -> None:
    """Choose a file, in the dialog that the keys open; then the button that begins has the focus."""
    page.window.tell("Page.setInterceptFileChooserDialog", {"enabled": True})
    try:
        page.tab_to("csv")
        page.key("Enter")
        opened: list[dict[str, Any]] = []
        wait_until(lambda: opened.extend(page.window.events("Page.fileChooserOpened")) or opened)
        chosen = {"files": [str(file)], "backendNodeId": opened[0]["backendNodeId"]}
        page.window.tell("DOM.setFileInputFiles", chosen)
    finally:
        page.window.tell("Page.setInterceptFileChooserDialog", {"enabled": False})
    page.wait("document.activeElement.id === 'start'")


def test_a_file_that_was_mended_is_chosen_again(page: Page, tmp_path: Path) -> None:
    given = tmp_path / "films.csv"
    given.write_text("id,text\n1,a good film, really\n", encoding="utf-8")
    choose(page, given)
    page.key("Enter")
    page.wait("!document.getElementById('file-problem').hidden && !document.getElementById('start').disabled")
    given.write_text('id,text\n1,"a good film, really"\n', encoding="utf-8")
    choose(page, given)
    page.key("Enter")
    page.wait("document.activeElement.id === 'download'")
    assert not page.shown("file-problem")


def test_a_file_is_labelled_and_downloaded(page: Page, tmp_path: Path) -> None:
    given, folder = tmp_path / "films.csv", tmp_path / "downloads"
    given.write_text("id,text\n1,a good film\n2,a bad film\n", encoding="utf-8")
    page.window.tell("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    choose(page, given)
    page.key("Enter")
    page.wait("document.activeElement.id === 'download'")
    page.key("Enter")
    wait_until((folder / "films-labelled.csv").exists)
    rows = (folder / "films-labelled.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[:2] for row in rows] == [["id", "text"], ["1", "a good film"], ["2", "a bad film"]]
    assert all(row.split(",")[2] for row in rows)


def test_a_text_is_gone_on_with(window: Browser, writing: Running) -> None:
    page = Page(window, writing)
    page.tab_to("prompt")
    page.keys("a good")
    page.tab_to("tokens-wanted")
    page.keys("9")
    page.tab_to("seed")
    page.keys("3")
    page.key("Enter")
    page.wait("!document.getElementById('written').hidden")
    mine = writing.post("/generate", {"prompt": "a good", "tokens": 9, "seed": 3})[1]
    assert page.text("written") == "a good" + mine["text"]


def test_a_token_is_given(window: Browser) -> None:
    with running(classifier(), SECRET) as server:
        page = Page(window, server)
        page.wait("document.activeElement.id === 'token'")
        page.keys(SECRET)
        page.key("Enter")
        page.wait("document.activeElement.id === 'text'")
        page.keys("a film")
        page.settled()
        assert page.text("verdict") != "–"
        page.run("sessionStorage.clear();")
