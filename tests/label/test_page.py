"""The page in headless Chromium: with keys alone, on a phone, twice at once, and through all that goes wrong."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, browser
from tests.label.page import LabelPage
from tests.label.running import Labelling, command, labelling, made_up, meant_well, write_texts
from tests.use.serve.running import SECRET, wait_until

TEXTS = made_up(150)


@pytest.fixture
def server(tmp_path: Path, tiny_base: str) -> Iterator[Labelling]:
    with labelling(tmp_path, TEXTS, base=[tiny_base]) as each:
        yield each


def label(page: LabelPage, count: int) -> list[str]:
    """Label the texts on the screen rightly, by keys."""
    found = []
    for _ in range(count):
        text = page.text("text")
        found.append(text)
        page.press("1" if meant_well(text) else "2")
    page.saved()
    return found


def labelled(server: Labelling) -> int:
    return sum(state.label is not None for state in server.project.labels.texts.values())


def test_thirty_texts_by_keyboard(window: Browser, server: Labelling) -> None:
    page = LabelPage(window, server.port)
    texts = label(page, 30)
    wait_until(lambda: len(server.project.journal.events) >= 32)
    given = dict(server.project.labels.labelled())
    assert len(given) == len(set(texts))
    for text, each in given.items():
        assert each.labels == ((0,) if meant_well(server.project.store[text].text) else (1,))
    page.wait("document.getElementById('guess-line').checkVisibility()")
    page.wait("document.querySelectorAll('#text .for, #text .against').length")
    assert page.run("return document.activeElement.id") == "text", "a screen reader reads the next text"
    assert page.text("said").endswith("Next text.")
    page.wait("document.getElementById('what').textContent.includes(' labelled')")
    assert window.complaints() == []
    asked = [address for address in window.requests() if address.startswith(("http", "ws"))]  # not data: and chrome:
    assert [address for address in asked if not address.startswith(f"http://127.0.0.1:{server.port}/")] == []


def test_enter_agrees_with_the_guess(window: Browser, server: Labelling) -> None:
    page = LabelPage(window, server.port)
    label(page, 14)
    page.wait("document.getElementById('guess-line').checkVisibility()")
    guess = page.text("guess")
    before = labelled(server)
    page.press("Enter")
    page.saved()
    assert labelled(server) >= before
    last = server.project.journal.events[-1]
    assert server.project.labels.names(last["labels"]) == [guess]
    assert last["guess"] == last["labels"]
    page.key("h")
    page.wait("!document.getElementById('guess-line').checkVisibility()")


def test_undo_back_skip_and_note(window: Browser, server: Labelling) -> None:
    page = LabelPage(window, server.port)
    first, second = label(page, 2)
    here = page.text("text")
    page.key("z")
    page.wait("document.getElementById('said').textContent === 'Undone'")
    assert page.text("text") == second
    assert labelled(server) == 1
    page.press("1")
    page.saved()
    assert page.text("text") == here
    page.key("b")
    page.wait("!document.getElementById('given-line').hidden")
    page.key("b")
    page.wait(f"document.getElementById('text').textContent === {first!r}")
    page.press("2")
    page.saved()
    assert page.text("text") == here, "after looking back, one goes on where one was"
    page.key("n")
    page.keys("odd one")
    page.key("Enter")
    page.saved()
    page.press("x")
    page.saved()
    store = server.project.store
    states = {store[text].text: state for text, state in server.project.labels.texts.items()}
    assert states[first].label is not None
    assert states[first].label.labels == (1,)
    assert (states[here].skipped, states[here].note) == (True, "odd one")


def test_a_class_is_added_with_keys(window: Browser, server: Labelling) -> None:
    page = LabelPage(window, server.port)
    page.key("+")
    page.keys("so so")
    page.key("Enter")
    page.wait("document.querySelectorAll('.choice').length === 3")
    page.press("3")
    page.saved()
    assert server.project.labels.names(server.project.labels.labelled()[0][1].labels) == ["so so"]


def test_seventy_seven_classes_are_filtered(window: Browser, tmp_path: Path, tiny_base: str) -> None:
    things = ("card", "cash", "money", "transfer", "top-up", "account", "pin")
    ways = "arrival blocked broken cancelled declined delayed expired fee limit lost pending"
    names = tuple(f"{thing} {way}" for thing in things for way in ways.split(" "))
    assert len(names) == 77
    with labelling(tmp_path, TEXTS, base=[tiny_base], labels=names) as server:
        page = LabelPage(window, server.port)
        page.wait("document.querySelectorAll('.choice').length === 77")
        before = page.text("text")
        page.key("/")
        page.keys("tran fee")
        page.wait("document.querySelectorAll('.choice').length === 1")
        page.key("Enter")
        page.wait(f"document.getElementById('text').textContent !== {before!r}")
        page.saved()
        [(_, given)] = server.project.labels.labelled()
        assert server.project.labels.names(given.labels) == ["transfer fee"]
        assert page.run("return document.activeElement.id") == "filter", "the next one is found by typing, too"
        page.keys("card")
        page.key("ArrowDown")
        page.key("Enter")
        page.saved()
        wait_until(lambda: labelled(server) == 2)
        assert server.project.labels.names(server.project.labels.labelled()[1][1].labels) == ["card blocked"]
        page.key("Escape")
        assert page.run("return document.activeElement.id") == "text"


@pytest.mark.parametrize("tab", ["label", "classes", "review", "finish"])
def test_it_fits_on_a_phone(window: Browser, server: Labelling, tab: str) -> None:
    server.call("/label", text=0, labels=[0], how="random")
    page = LabelPage(window, server.port, width=360, phone=True)
    page.click(f"tab-{tab}")
    page.wait(f"document.getElementById('view-{tab}').checkVisibility()")
    assert page.overflow() <= 0
    if tab == "label":
        small = page.run(
            "return [...document.querySelectorAll('button')].filter((e) => e.checkVisibility()"
            " && e.getBoundingClientRect().height < 30).map((e) => e.id)"
        )
        assert small == [], "fingers need room"
        page.run("document.querySelector('.choice').click()")
        page.saved()
        wait_until(lambda: labelled(server) == 2)


def test_a_reload_in_the_middle_goes_on_with_the_same_text(window: Browser, server: Labelling) -> None:
    page = LabelPage(window, server.port)
    label(page, 5)
    here = page.text("text")
    page.open()
    page.wait("document.getElementById('text').textContent !== ''")
    assert page.text("text") == here
    assert labelled(server) == 5
    label(page, 3)
    assert labelled(server) == 8


def test_two_pages_at_once(window: Browser, server: Labelling, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with browser(tmp_path / "second") as other:
        pages = [LabelPage(each, server.port) for each in (window, other)]
        met: list[list[str]] = [[], []]
        for _ in range(8):
            for place, page in enumerate(pages):
                met[place] += label(page, 1)
        asked = [event["text"] for event in server.project.journal.events if event.get("how") not in (None, "doubted")]
        assert len(asked) == len(set(asked)), "no text was asked twice"
        assert not set(met[0]) & set(met[1])
        people = {event["by"] for event in server.project.journal.events if event["kind"] == "label"}
        assert len(people) == 2
        pages[0].wait("document.getElementById('what').textContent.includes('by 2 people')")


def test_what_is_not_saved_is_said_and_sent_again(window: Browser, server: Labelling) -> None:
    page = LabelPage(window, server.port)
    label(page, 2)
    page.run("window.plain = window.fetch; window.fetch = () => Promise.reject(new Error('gone'));")
    page.press("1")
    page.wait("document.getElementById('banner-said').textContent.includes('not saved yet')")
    assert labelled(server) == 2
    page.run("window.fetch = window.plain;")
    wait_until(lambda: labelled(server) == 3)
    page.wait("document.getElementById('banner').hidden")


def test_killed_and_started_again(window: Browser, tmp_path: Path, tiny_base: str) -> None:
    """The page stays open: what it could not save it sends to the next server, and goes on."""
    write_texts(tmp_path, TEXTS)
    words = ["texts.txt", "--labels", "good,bad", "--out", "project", "--from", tiny_base]
    with command(tmp_path, *words) as (process, port):
        page = LabelPage(window, port)
        label(page, 6)
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        page.press("1")  # nobody takes it
        page.wait("document.getElementById('banner-said').textContent.includes('not saved yet')")
    with command(tmp_path, *words, port=port):
        page.wait("document.getElementById('what').textContent.includes('7 labelled')", 30)
        label(page, 2)
        page.wait("document.getElementById('what').textContent.includes('9 labelled')")


def test_markup_is_shown_as_text(window: Browser, tmp_path: Path, tiny_base: str) -> None:
    evil = ["<img src=x onerror=alert(1)><b>bold</b>", "</script><script>document.title='x'</script>", *TEXTS[:10]]
    with labelling(tmp_path, evil, base=[tiny_base], labels=('"><i>a</i>', "b'")) as server:
        page = LabelPage(window, server.port)
        for text in range(2):
            server.call("/label", "elsewhere", "ben", text=text, labels=[text], how="review")
        page.click("tab-review")
        page.wait("document.querySelectorAll('#rows li').length === 2")
        shown = page.run("return [...document.querySelectorAll('#rows .snippet')].map((e) => e.textContent)")
        assert sorted(shown) == sorted(evil[:2])
        assert page.run("return document.querySelectorAll('main img, main b i, main script').length") == 0
        assert page.run("return document.querySelector('.choice .name').textContent") == '"><i>a</i>'
        assert window.complaints() == []


def test_the_token_is_asked_for(window: Browser, tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base], token=SECRET) as server:
        page = LabelPage(window, server.port, ready=False)
        page.run("sessionStorage.removeItem('rehead-token')")
        page.open()
        page.wait("document.getElementById('token-card').checkVisibility()")
        page.set("token", SECRET)
        page.run("document.getElementById('token-form').requestSubmit()")
        page.wait("document.getElementById('text').textContent !== ''")
        page.run("sessionStorage.removeItem('rehead-token')")


def test_several_labels_by_keys(window: Browser, tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base], multilabel=True, labels=("good", "film")) as server:
        page = LabelPage(window, server.port)
        page.keys("12")
        page.wait("document.querySelectorAll('.choice[aria-pressed=true]').length === 2")
        page.press("Enter")
        page.press("Enter")
        page.saved()
        assert [each.labels for _, each in server.project.labels.labelled()] == [(0, 1), ()]


def test_review_and_bulk(window: Browser, server: Labelling) -> None:
    page = LabelPage(window, server.port)
    label(page, 40)
    wrong = next(text for text, each in server.project.labels.labelled() if each.labels == (0,))
    server.call("/label", by=server.project.labels.labelled()[0][1].by, text=wrong, labels=[1], how="review")
    snippet = server.project.store[wrong].text
    wait_until(lambda: server.labels.learner.settled)
    page.click("tab-review")
    page.wait("document.querySelectorAll('#rows li').length")
    row = f"[...document.querySelectorAll('#rows li')].find((e) => e.textContent.includes({snippet!r}))"
    said = page.run(f"return {row}.querySelector('.doubt').textContent")
    assert said.startswith("the classifier says good ("), "not only that it contradicts"
    doubts = page.run(
        "return [...document.querySelectorAll('#rows li')].map((e) => Boolean(e.querySelector('.doubt')))"
    )
    assert doubts == sorted(doubts, reverse=True), "those that are contradicted come first"
    page.run(f"const s = {row}.querySelector('select'); s.value = '0'; s.dispatchEvent(new Event('change'));")
    wait_until(lambda: server.project.labels.texts[wrong].label.labels == (0,))  # type: ignore[union-attr]
    wait_until(lambda: server.labels.learner.settled)
    before = labelled(server)
    page.set("offer-count", "15")
    page.run("document.getElementById('offer-form').requestSubmit()")
    page.wait("document.querySelectorAll('#offer-rows li').length")
    page.run("document.querySelector('#offer-rows input').click()")
    page.click("accept")
    wait_until(lambda: labelled(server) > before)
    page.wait("document.querySelector('#rows .meta').textContent.includes('accepted in bulk')")


def test_finish_and_predict(window: Browser, tmp_path: Path, tiny_base: str) -> None:
    from rehead.cli import main

    with labelling(tmp_path, TEXTS, base=[tiny_base]) as server:
        page = LabelPage(window, server.port)
        label(page, 40)
        wait_until(lambda: server.labels.preparing.finished, 30)
        page.click("tab-finish")
        page.click("finish")
        page.wait("document.getElementById('finish-state').checkVisibility()")
        page.wait("document.getElementById('finished').checkVisibility()", 240)
        assert "rehead predict" in page.text("result-predict")
        project = server.project.path
    report = (project / "report.html").read_text(encoding="utf-8")
    assert "Learning curve" in report
    assert (project / "classifier" / "README.md").exists(), "its card"
    (tmp_path / "rest.txt").write_text("\n".join(made_up(20, seed=9)), encoding="utf-8")
    out = tmp_path / "labelled.jsonl"
    assert main(["predict", str(project / "classifier"), str(tmp_path / "rest.txt"), "--out", str(out), "--quiet"]) == 0
    assert len(out.read_text(encoding="utf-8").splitlines()) == 20


def test_whoever_has_named_no_class_is_shown_groups_of_texts(window: Browser, tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base], labels=None) as server:
        page = LabelPage(window, server.port, ready=False)
        page.wait("document.querySelectorAll('#clusters .group').length", 60)
        wait_until(lambda: server.labels.preparing.finished)
        page.wait("!document.getElementById('preparing-bar').checkVisibility()")
        assert page.text("preparing-said") == "", "that there is nothing to learn yet is no failure"
        page.run("window.prompt = () => 'film'; document.querySelector('#clusters .group button').click()")
        page.wait("document.querySelectorAll('#class-list li').length === 1")
        labels = server.project.labels  # the page shows the class before the server has it
        wait_until(lambda: labels.classes == ["film"] and bool(labels.seeds.get(0)))  # with the words of the group


@pytest.mark.parametrize("height", [720, 800, 1080])
def test_many_classes_never_cover_the_text(window: Browser, tmp_path: Path, tiny_base: str, height: int) -> None:
    names = tuple(f"a class of the number {number}" for number in range(77))
    long = [f"{text} " * 40 for text in TEXTS[:60]]
    with labelling(tmp_path, long, base=[tiny_base], labels=names, multilabel=True) as server:
        for number in range(12):
            server.call("/label", text=number, labels=[number % 3], how="review")
        wait_until(lambda: server.labels.learner.settled and server.labels.preparing.finished)
        page = LabelPage(window, server.port)
        window.resize(1280, height)
        page.wait("document.getElementById('guess-line').checkVisibility()")
        place = page.run(
            "const box = (id) => document.getElementById(id).getBoundingClientRect();"
            "return [box('text').height, box('text').bottom, box('guess-line').bottom, box('choices').top,"
            " document.querySelector('.choices-card').getBoundingClientRect().top, box('choices').height]"
        )
        text, end, guess, choices, card, listed = place
        assert text > 50, "two lines, in a window as low as this"
        assert listed > 100
        assert end <= guess <= card <= choices


def test_a_screen_reader_hears_text_guess_and_classes(window: Browser, tmp_path: Path, tiny_base: str) -> None:
    names = tuple(f"class {number}" for number in range(12))
    with labelling(tmp_path, TEXTS, base=[tiny_base], labels=names) as server:
        for number in range(12):
            server.call("/label", text=number, labels=[number % 2], how="review")
        wait_until(lambda: server.labels.learner.settled)
        page = LabelPage(window, server.port)
        page.wait("document.getElementById('guess-line').checkVisibility()")
        heard = page.heard()
        assert heard["article"] == [page.text("text")], "what gets the focus is named by the text itself"
        assert page.run("return document.getElementById('text').getAttribute('aria-description')").startswith("Guess: ")
        assert set(names) <= set(heard["button"]), "without the key, which is said as a shortcut"
        assert "" not in heard["button"] + heard["combobox"] + heard["textbox"] + heard["checkbox"] + heard["tab"]
        page.key("/")
        page.keys("class 1")
        page.wait("document.getElementById('said').textContent === 'class 1, 1 of 3'")
        page.key("ArrowDown")
        page.wait("document.getElementById('said').textContent === 'class 10, 2 of 3'")


def test_the_guess_of_several_labels_is_where_one_begins(window: Browser, tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base], labels=("good", "bad"), multilabel=True) as server:
        for number in range(30):
            server.call("/label", text=number, labels=[int(not meant_well(TEXTS[number]))], how="review")
        wait_until(lambda: server.labels.learner.settled)
        page = LabelPage(window, server.port)
        page.wait("document.getElementById('guess-line').checkVisibility()")
        guess = page.text("guess")
        before = labelled(server)
        page.key("y")
        chosen = (
            "[...document.querySelectorAll('.choice[aria-pressed=true] .name')].map((e) => e.textContent).join(', ')"
        )
        assert page.run(f"return {chosen} || 'none of them'") == guess
        assert labelled(server) == before, "nothing is saved before Enter"
        page.key("Enter")
        page.saved()
        assert server.project.labels.names(server.project.journal.events[-1]["labels"]) == [
            each for each in guess.split(", ") if each != "none of them"
        ]


def test_keys_of_buttons_keep_the_focus(window: Browser, tmp_path: Path, tiny_base: str) -> None:
    with labelling(tmp_path, TEXTS, base=[tiny_base], labels=("good", "bad"), multilabel=True) as server:
        page = LabelPage(window, server.port)
        page.run("document.getElementById('choice-1').focus()")
        page.key(" ")
        page.wait("document.querySelector('#choice-1[aria-pressed=true]')")
        assert page.run("return document.activeElement.id") == "choice-1"
