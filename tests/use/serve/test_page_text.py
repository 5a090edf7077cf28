"""A text on the page: its label, its words, and what is said when the server refuses."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from rehead.use.explain import explain
from rehead.use.highlight import levels, side
from rehead.use.labeller import Labeller
from tests.browser import Browser
from tests.use.serve.page import Page
from tests.use.serve.running import classifier, running, wait_until

MISCHIEF = "<img src=x onerror=alert(1)> good </script><b>film</b>"


def test_the_label_is_that_of_the_classifier(page: Page) -> None:
    labeller = Labeller.of(classifier())
    for text in ("a good film", "a bad book 🎬"):
        page.type(text)
        given = labeller.probabilities([text])
        (label,) = labeller.labels(given)[0] or ()
        assert page.text("verdict") == label
        assert page.text("verdict-note").endswith(f" {100 * given.max():.1f} %")
        shown = page.run("return [...document.querySelectorAll('#bars .bar')].map((each) => each.textContent)")
        order = sorted(zip(labeller.names, given[0].tolist(), strict=True), key=lambda each: -each[1])
        assert shown == [f"{name}{100 * share:.1f} %" for name, share in order]
        assert page.text("said").startswith(label)


def test_several_labels_are_all_shown(window: Browser) -> None:
    run = classifier(multilabel=True)
    with running(run) as server:
        page = Page(window, server)
        for text in ("a good film", "a bad book"):
            page.type(text)
            labeller = Labeller.of(run)
            labels = labeller.labels(labeller.probabilities([text]))[0] or ()
            assert page.text("verdict") == (", ".join(labels) or "no label")
            assert page.text("verdict-note") == f"{len(labels)} of 3 labels"


def test_words_are_marked_where_they_stand(page: Page) -> None:
    text = "bon 🎬 café"
    page.type(text)
    marked = page.marked()
    assert len(marked) == 3
    found = page.server.post("/explain", {"text": text})[1]["words"]
    weights = {text[each["begin"] : each["end"]]: each["weight"] for each in found}
    for word, kind in marked:
        assert kind.startswith("for" if weights[word] > 0 else "against")
    assert page.text("behind").startswith(text), "what is behind is what is typed, or marks stand beside their words"
    assert page.shown("legend")
    listed = page.run("return [...document.querySelectorAll('#words span')].map((each) => each.textContent)")
    assert listed == sorted(weights, key=lambda word: -abs(weights[word]))


def test_the_words_marked_are_those_that_predict_marks(page: Page) -> None:
    for text in ("le café était bon, a film and a book: bad, bad", "bon 🎬 café", "a bad film", "a bad book"):
        page.type(text)
        (explanation,) = explain(Labeller.of(classifier()), [text])
        strengths = zip(explanation.words, levels(explanation), strict=True)
        marked = [[text[word.begin : word.end], f"{side(level)} s{abs(level)}"] for word, level in strengths if level]
        assert page.marked() == marked != []


def test_what_is_behind_lies_exactly_under_what_is_typed(page: Page) -> None:
    page.type("a good film " * 60 + "\n\nand a bad one")
    same = page.run(
        """const behind = document.getElementById('behind'), text = document.getElementById('text');
        const look = (each) => { const s = getComputedStyle(each); return [each.clientWidth, s.fontSize, s.lineHeight,
          s.fontFamily, s.paddingTop, s.paddingLeft, s.whiteSpace, s.letterSpacing, s.overflowWrap].join(); };
        return [look(behind) === look(text), text.scrollHeight <= behind.clientHeight + 1];"""
    )
    assert same == [True, True]


def test_another_label_can_be_explained(page: Page) -> None:
    page.type("a good film")
    first = page.text("legend-label")
    page.run("[...document.querySelectorAll('#bars button')].at(-1).click();")
    page.settled()
    other = page.run("return document.querySelector('#bars button[aria-pressed=true]').dataset.name")
    assert page.text("legend-label") == other != first


def test_an_old_answer_never_replaces_a_new_one(page: Page) -> None:
    """The first request is held up until after the second was answered."""
    worker, go = page.server.service.label_worker, threading.Event()
    real, seen = worker.compute, []

    def held(jobs: Any) -> Any:
        seen.extend(job.payload[0][0] for job in jobs)
        if "slow" in seen[-1]:
            go.wait(10)
        return real(jobs)

    worker.compute = held
    try:
        page.put("slow")
        wait_until(lambda: "slow" in seen)
        page.put("a film")
        time.sleep(0.3)
        go.set()
        page.settled()
    finally:
        go.set()
        worker.compute = real
    given = Labeller.of(classifier()).probabilities(["a film"])
    assert page.text("verdict-note").endswith(f" {100 * given.max():.1f} %")


def test_typing_asks_once_it_pauses(page: Page) -> None:
    before = page.server.service.metrics.texts._value.get()  # type: ignore[attr-defined]
    for end in range(1, 12):
        page.put("a good film"[:end])
    page.settled()
    assert page.server.service.metrics.texts._value.get() - before <= 4  # type: ignore[attr-defined]


def test_texts_are_only_ever_text(page: Page) -> None:
    page.type(MISCHIEF)
    assert page.run("return document.querySelectorAll('main img, main b:not(#legend-label)').length") == 0
    assert MISCHIEF in page.text("behind")
    names = page.run("return [...document.querySelectorAll('#bars .name')].map((each) => each.textContent)")
    assert "good <b>" in names
    assert page.window.complaints() == []


def test_nothing_typed_is_nothing_said(page: Page) -> None:
    page.type("a film")
    page.type("   ")
    assert page.text("verdict") == "–"
    assert page.text("verdict-note") == "Enter a text."
    assert page.run("return document.querySelectorAll('#bars li, #behind span').length") == 0


def test_what_only_the_server_takes_for_blank_gets_no_label(page: Page) -> None:
    page.type("\x85\x1c")  # white space to Python, not to JavaScript
    page.wait("document.getElementById('verdict-note').textContent === 'Enter a text.'")
    page.drop_file("films.csv", "text\na good film\n\x1c\n")
    page.run("document.getElementById('start').click();")
    page.wait("!document.getElementById('download').hidden")
    assert page.text("file-said") == "Done: 2 rows."


def test_what_the_server_refuses_is_said(page: Page) -> None:
    page.type("x" * 1001)
    page.wait("!document.getElementById('problem').hidden")
    assert page.text("problem").startswith("Text: ")
    assert "1,000 characters" in page.text("problem")
    assert page.text("verdict") == "–"
    page.window.complaints()  # the browser notes the status
    page.type("fine")
    assert not page.shown("problem")
    assert page.text("verdict") != "–"


@pytest.mark.parametrize("kind", ["bag", "lab"])
def test_a_label_stands_though_nothing_can_be_said_of_its_words(kind: str, window: Browser) -> None:
    """The slow worker is held up until its time is over."""
    with running(classifier(kind), seconds=1) as server:
        page = Page(window, server)
        page.type("a bad film")
        worker, go = server.service.slow_worker, threading.Event()
        real = worker.compute
        worker.compute = lambda jobs: go.wait(20) and real(jobs)  # type: ignore[assignment,return-value]
        try:
            page.put("a bad book")
            page.wait("document.getElementById('unmarked').textContent")
            if kind == "lab":
                page.wait("document.getElementById('square-figure').hidden")
        finally:
            go.set()
            worker.compute = real
        assert "words" in page.text("unmarked")
        assert " 1 s" in page.text("unmarked")
        if kind == "lab":
            assert "Attention" in page.text("attention-note")
            assert " 1 s" in page.text("attention-note")
        given = Labeller.of(classifier(kind)).probabilities(["a bad book"])
        assert page.text("verdict-note").endswith(f" {100 * given.max():.1f} %")
        assert page.run("return document.querySelectorAll('#bars li').length") == 3
        assert not any(page.shown(each) for each in ("problem", "legend", "carried"))
        assert page.marked() == []
        page.type("a bad film")
        assert page.text("unmarked") == ""
        assert bool(page.marked()) == (kind == "bag")
        assert page.shown("square-figure") == (kind == "lab")


def test_that_a_text_is_too_long_to_be_marked_is_said(window: Browser) -> None:
    with running(classifier(), explain_characters=20) as server:
        page = Page(window, server)
        page.type("a good film " * 3)
        assert "20 characters" in page.text("unmarked")
        assert page.text("verdict") != "–"
        assert page.marked() == []


def test_half_a_character_is_mended(page: Page) -> None:
    page.type("a \ud83c film")
    assert page.text("verdict") != "–"
