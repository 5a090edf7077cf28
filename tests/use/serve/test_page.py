"""The page at `/`, in a real browser: what is typed, chosen and dropped there, and how it stands."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rehead.use.labeller import Labeller
from tests.browser import Browser, browser
from tests.use.serve.running import SECRET, Running, classifier, running, wait_until

WIDE, PHONE = 1200, 360
MISCHIEF = "<img src=x onerror=alert(1)> good </script><b>film</b>"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as each:
        yield each


class Page:
    """The page of a server, as its reader sees it."""

    def __init__(self, window: Browser, server: Running) -> None:
        self.window, self.server = window, server
        window.requests()
        window.complaints()
        window.resize(WIDE)
        window.open(f"http://127.0.0.1:{server.port}/")
        self.wait(
            "document.getElementById('name').textContent !== '…' || !document.getElementById('token-card').hidden"
        )

    def run(self, script: str) -> Any:
        return self.window.run(script)

    def wait(self, what: str) -> None:
        wait_until(lambda: self.run(f"return Boolean({what})"), 20)

    def text(self, name: str) -> str:
        return str(self.run(f"return document.getElementById({name!r}).textContent"))

    def shown(self, name: str) -> bool:
        return bool(self.run(f"return document.getElementById({name!r}).checkVisibility()"))

    def type(self, text: str) -> None:
        """Put a text in as if it had been pasted, and wait until all answers to it are there."""
        script = f"const t = document.getElementById('text'); t.value = {json.dumps(text)};"
        self.run(script + "t.dispatchEvent(new Event('input'));")
        self.settled()

    def settled(self) -> None:
        self.wait("!document.getElementById('verdict').classList.contains('stale')")
        wait_until(lambda: self.server.service.idle)
        time.sleep(0.3)

    def key(self, key: str, code: str = "") -> None:
        """Press a key."""
        for kind in ("rawKeyDown", "keyUp"):
            values = {"type": kind, "key": key, "code": code or key, "windowsVirtualKeyCode": KEYS[key]}
            self.window.tell("Input.dispatchKeyEvent", values)

    def drop_file(self, name: str, content: str) -> None:
        """Drop a file on the page."""
        self.run(
            f"const held = new DataTransfer(); held.items.add(new File([{json.dumps(content)}], {name!r}));"
            "document.getElementById('drop').dispatchEvent("
            "new DragEvent('drop', {dataTransfer: held, bubbles: true, cancelable: true}));"
        )
        self.wait("!document.getElementById('file-form').hidden || !document.getElementById('file-problem').hidden")


KEYS = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, " ": 32}


@pytest.fixture
def page(window: Browser, server: Running) -> Page:
    return Page(window, server)


def test_the_label_is_that_of_the_classifier(page: Page) -> None:
    labeller = Labeller.of(classifier())
    for text in ("a good film", "a bad book 🎬"):
        page.type(text)
        given = labeller.probabilities([text])
        (label,) = labeller.labels(given)[0] or ()
        assert page.text("verdict") == label
        assert page.text("verdict-note") == f"with a probability of {100 * given.max():.1f} %"
        shown = page.run("return [...document.querySelectorAll('#bars .bar')].map((each) => each.textContent)")
        order = sorted(zip(labeller.names, given[0].tolist(), strict=True), key=lambda each: -each[1])
        assert shown == [f"{name}{100 * share:.1f} %" for name, share in order]
        assert page.text("said").startswith(label)


def test_words_are_marked_where_they_stand(page: Page) -> None:
    text = "🎬 a good film, not a bad one 🎬 good"
    page.type(text)
    marked = page.run(
        "return [...document.querySelectorAll('#behind span')].map((each) => [each.textContent, each.className])"
    )
    assert marked
    found = page.server.post("/explain", {"text": text})[1]["words"]
    weights = {text[each["begin"] : each["end"]]: each["weight"] for each in found}
    for word, kind in marked:
        assert kind.startswith("for" if weights[word] > 0 else "against")
    assert page.text("behind").startswith(text), "what is behind is what is typed, or marks stand beside their words"
    assert page.shown("legend")
    heaviest = max(weights, key=lambda word: abs(weights[word]) * text.split().count(word))
    listed = page.run("return [...document.querySelectorAll('#words span')].map((each) => each.textContent)")
    assert heaviest in listed[:2]


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
    lane, go = page.server.service.labels_lane, threading.Event()
    real, seen = lane.compute, []

    def held(jobs: Any) -> Any:
        seen.extend(job.what[0][0] for job in jobs)
        if "slow" in seen[-1]:
            go.wait(10)
        return real(jobs)

    lane.compute = held
    try:
        page.run("const t = document.getElementById('text'); t.value = 'slow'; t.dispatchEvent(new Event('input'));")
        wait_until(lambda: "slow" in seen)
        page.run("const t = document.getElementById('text'); t.value = 'a film'; t.dispatchEvent(new Event('input'));")
        time.sleep(0.3)
        go.set()
        page.settled()
    finally:
        go.set()
        lane.compute = real
    given = Labeller.of(classifier()).probabilities(["a film"])
    assert page.text("verdict-note") == f"with a probability of {100 * given.max():.1f} %"


def test_typing_asks_once_it_pauses(page: Page) -> None:
    before = page.server.service.metrics.texts._value.get()  # type: ignore[attr-defined]
    for end in range(1, 12):
        page.run(
            f"const t = document.getElementById('text'); t.value = {'a good film'[:end]!r};"
            "t.dispatchEvent(new Event('input'));"
        )
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
    assert page.run("return document.querySelectorAll('#bars li, #behind span').length") == 0


def test_what_the_server_refuses_is_said(page: Page) -> None:
    page.type("x" * 1001)
    page.wait("!document.getElementById('problem').hidden")
    assert page.text("problem") == "Text: longer than 1,000 characters, which are the most that is taken."
    page.window.complaints()  # the browser notes the status
    page.type("fine")
    assert not page.shown("problem")
    assert page.text("verdict") != "–"


def test_half_a_character_is_mended(page: Page) -> None:
    page.run(
        "const t = document.getElementById('text'); t.value = 'a \\ud83c film'; t.dispatchEvent(new Event('input'));"
    )
    page.settled()
    assert page.text("verdict") != "–"


def test_nothing_is_fetched_from_elsewhere_and_nothing_is_complained_of(page: Page) -> None:
    page.type("a good film")
    own = f"http://127.0.0.1:{page.server.port}/"
    asked = page.window.requests()
    assert {own, own + "about", own + "classify", own + "explain"} <= set(asked)
    assert all(each.startswith((own, "data:", "blob:")) for each in asked)
    assert page.window.complaints() == []


def test_the_policy_lets_nothing_else_run(page: Page) -> None:
    page.run(
        "window.ran = 0; const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        "document.body.append(s); const d = document.createElement('div'); d.setAttribute('style', 'color: red');"
        "d.id = 'styled'; document.body.append(d);"
    )
    assert page.run("return window.ran") == 0
    assert page.run("return getComputedStyle(document.getElementById('styled')).color") != "rgb(255, 0, 0)"
    assert page.window.complaints() != []


@pytest.mark.parametrize("width", [PHONE, 768, WIDE])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_and_can_be_read(width: int, dark: bool, window: Browser, layered: Running) -> None:
    page = Page(window, layered)
    window.resize(width, 760, dark=dark, phone=width == PHONE)
    page.type("a good film, " * 20 + "w" * 300)
    assert page.run("return document.documentElement.scrollWidth") <= width
    pale = page.run(
        """const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((c) => c / 255)
            .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
          return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const ground = (each) => { for (; each; each = each.parentElement) {
          const c = getComputedStyle(each).backgroundColor;
          if (!c.startsWith('rgba(') && !c.startsWith('color')) return c; } return 'rgb(255, 255, 255)'; };
        const pale = [];
        for (const each of document.querySelectorAll('main *, header *, footer *')) {
          if (!each.checkVisibility() || each.classList.contains('behind') || each.closest('.behind, .tok')) continue;
          if (![...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
          const [a, b] = [light(getComputedStyle(each).color), light(ground(each))].sort((x, y) => y - x);
          if ((a + 0.05) / (b + 0.05) < 4.5) pale.push(each.outerHTML.slice(0, 80));
        }
        return pale;"""
    )
    assert pale == []


def test_every_control_has_a_name_and_is_large_enough_for_a_thumb(window: Browser, layered: Running) -> None:
    page = Page(window, layered)
    window.resize(PHONE, 760, phone=True)
    page.type("a good film")
    controls = page.run(
        """return [...document.querySelectorAll('button, input, select, textarea, a')]
          .filter((each) => each.checkVisibility() && !each.matches('.tok, .skip, footer a')).map((each) => {
            const named = each.textContent.trim() || [...(each.labels || [])].map((l) => l.textContent.trim()).join('');
            const box = (each.type === 'file' ? each.labels[0] : each).getBoundingClientRect();
            return [each.outerHTML.slice(0, 60), Boolean(named), Math.round(box.height)]; });"""
    )
    assert len(controls) > 5
    for what, named, height in controls:
        assert named, what
        assert height >= 24, (what, height)


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


def test_what_is_not_there_is_not_shown(page: Page) -> None:
    assert [each for each in ("try", "file", "attention", "writer") if page.shown(each)] == ["try", "file"]


def test_the_writer_writes(window: Browser, writing: Running) -> None:
    page = Page(window, writing)
    assert [each for each in ("try", "file", "attention", "writer") if page.shown(each)] == ["writer"]
    page.run(
        "document.getElementById('prompt').value = 'a <b>good'; document.getElementById('tokens-wanted').value = '9';"
        "document.getElementById('seed').value = '3'; document.getElementById('write').click();"
    )
    page.wait("!document.getElementById('written').hidden")
    mine = writing.post("/generate", {"prompt": "a <b>good", "tokens": 9, "seed": 3})[1]
    assert page.text("written") == "a <b>good" + mine["text"]
    assert page.run("return document.getElementById('seed').value") == "4"


def test_a_token_is_asked_for_and_used(window: Browser) -> None:
    with running(classifier(), SECRET) as server:
        page = Page(window, server)
        page.wait("!document.getElementById('token-card').hidden")
        assert not page.shown("try")
        page.run(
            "document.getElementById('token').value = 'wrong'; document.querySelector('#token-form button').click();"
        )
        time.sleep(0.3)
        assert page.shown("token-card")
        page.run(
            f"document.getElementById('token').value = '{SECRET}';document.querySelector('#token-form button').click();"
        )
        page.wait("!document.getElementById('try').hidden")
        page.type("a good film")
        assert page.text("verdict") != "–"
        assert not page.shown("token-card")
        page.run("sessionStorage.clear();")


def test_several_labels_are_all_shown(window: Browser) -> None:
    run = classifier(multilabel=True)
    with running(run) as server:
        page = Page(window, server)
        for text in ("a good film", "a bad book"):
            page.type(text)
            labeller = Labeller.of(run)
            labels = labeller.labels(labeller.probabilities([text]))[0] or ()
            assert page.text("verdict") == (", ".join(labels) or "none of the labels")
            assert page.text("verdict-note") == f"{len(labels)} of 3 labels"


ROWS = [
    ["id", "text", "label"],
    ["1", 'a "good" film, really', "x"],
    ["2", "two\nlines", "y"],
    ["3", "", "z"],
    ["4", "x" * 1001, "w"],
    ["5", "🎬 café <b>", ""],
]


def written(rows: list[list[str]], **how: Any) -> str:
    out = io.StringIO()
    csv.writer(out, **how).writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize("how", [{}, {"lineterminator": "\n"}, {"delimiter": ";"}, {"delimiter": "\t"}])
def test_a_file_comes_back_labelled(how: dict[str, Any], page: Page) -> None:
    page.drop_file("films.csv", "\ufeff" + written(ROWS, **how))
    assert page.run("return document.getElementById('has-header').checked")
    assert page.run("return document.getElementById('column').selectedOptions[0].textContent") == "text"
    page.run("document.getElementById('start').click();")
    page.wait("!document.getElementById('download').hidden")
    assert page.run("return document.getElementById('download').download") == "films-labelled.csv"
    assert page.text("file-said") == "Done: 5 rows; 2 empty or too long, left without a label."
    found = list(csv.reader(io.StringIO(downloaded(page)), delimiter=how.get("delimiter", ",")))
    labeller = Labeller.of(classifier())
    assert found[0] == [*ROWS[0], "predicted_label", *(f"p_{name}" for name in labeller.names)]
    for mine, row in zip(found[1:], ROWS[1:], strict=True):
        assert mine[:3] == row
        if row[0] in "34":
            assert mine[3:] == [""] * 4
            continue
        given = labeller.probabilities([row[1]])
        assert mine[3] == (labeller.labels(given)[0] or [""])[0]
        assert [float(each) for each in mine[4:]] == pytest.approx(given[0].tolist(), abs=2e-6)


def downloaded(page: Page) -> str:
    """Read what the link would download."""
    page.run(
        """window.got = null; const link = document.getElementById('download');
        const reader = new FileReader(); reader.onload = () => { window.got = reader.result; };
        reader.readAsText(link.blob);"""
    )
    page.wait("window.got !== null")
    return str(page.run("return window.got"))


def test_a_file_without_names_of_columns(page: Page) -> None:
    page.drop_file("plain.csv", "a good film,3\na bad film,4\n")
    assert not page.run("return document.getElementById('has-header').checked")
    page.run("document.getElementById('start').click();")
    page.wait("!document.getElementById('download').hidden")
    found = list(csv.reader(io.StringIO(downloaded(page))))
    assert [row[:2] for row in found] == [["a good film", "3"], ["a bad film", "4"]]
    assert all(len(row) == 6 for row in found)


def test_a_long_file_is_sent_in_pieces_and_keeps_its_order(page: Page) -> None:
    rows = [["text"], *[[f"film {number} " + "good " * (number % 90)] for number in range(150)]]
    page.drop_file("long.csv", written(rows))
    page.run("document.getElementById('start').click();")
    page.wait("!document.getElementById('download').hidden")
    found = list(csv.reader(io.StringIO(downloaded(page))))
    assert [row[0] for row in found] == [row[0] for row in rows]
    labeller = Labeller.of(classifier())
    labels = [(each or [""])[0] for each in labeller.labels(labeller.probabilities([row[0] for row in rows[1:]]))]
    assert [row[1] for row in found[1:]] == labels


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('text\n"never closed\nand on', "Row 2: a quote is opened and not closed."),
        ("", "There is no row in this file, or its first one is too long."),
    ],
)
def test_what_is_wrong_with_a_file_is_said(content: str, said: str, page: Page) -> None:
    page.drop_file("bad.csv", content)
    page.run("if (!document.getElementById('file-form').hidden) document.getElementById('start').click();")
    page.wait("!document.getElementById('file-problem').hidden")
    assert page.text("file-problem") == said


def test_a_full_queue_is_waited_for(page: Page) -> None:
    """The server refuses, and is asked again."""
    lane = page.server.service.labels_lane
    room = lane.room
    lane.room = 0
    page.drop_file("films.csv", "text\na good film\n")
    page.run("document.getElementById('start').click();")
    wait_until(lambda: 'why="full"' in page.server.get("/metrics")[1])
    lane.room = room
    page.wait("!document.getElementById('download').hidden")
    assert "Done: 1 rows" in page.text("file-said")


def test_a_file_can_be_stopped(page: Page) -> None:
    lane, go = page.server.service.labels_lane, threading.Event()
    real = lane.compute
    lane.compute = lambda jobs: go.wait(10) and real(jobs)  # type: ignore[assignment,return-value]
    try:
        page.drop_file("films.csv", "text\n" + "a good film\n" * 50)
        page.run("document.getElementById('start').click();")
        wait_until(lambda: not lane.empty)
        page.run("document.getElementById('stop').click();")
        page.wait("document.getElementById('file-said').textContent.startsWith('Stopped')")
        assert not page.shown("download")
    finally:
        go.set()
        lane.compute = real
    assert not page.run("return document.getElementById('start').disabled")


CUTS = [
    ("a,b\nc,d\n", [["a", "b"], ["c", "d"]]),
    ("a,b\r\nc,d", [["a", "b"], ["c", "d"]]),
    ("a\rb\r\nc\n", [["a"], ["b"], ["c"]]),
    ('"a,\n""b""",c\n', [['a,\n"b"', "c"]]),
    ('"",\n,""\n', [["", ""], ["", ""]]),
    ("a,", [["a", ""]]),
    ("a,b\n\n\nc,d\n", [["a", "b"], ["c", "d"]]),
    ('"a" b,c\n', [["a b", "c"]]),
    ('a"b,c\n', [['a"b', "c"]]),
]


@pytest.mark.parametrize(("text", "rows"), CUTS)
def test_rows_are_cut_alike_wherever_the_pieces_end(text: str, rows: list[list[str]], page: Page) -> None:
    found = page.run(
        f"""const text = {json.dumps(text)}, all = [];
        for (let cut = 0; cut <= text.length; cut++) for (let other = cut; other <= text.length; other++) {{
          const rows = new window.rehead.Rows(","), got = [];
          got.push(...rows.read(text.slice(0, cut)), ...rows.read(text.slice(cut, other)));
          got.push(...rows.read(text.slice(other)), ...rows.read("", true));
          all.push(got);
        }}
        return all;"""
    )
    assert all(each == rows for each in found)


def test_the_page_is_one_document(server: Running) -> None:
    status, html, headers = server.ask("GET", "/")
    assert status == 200
    assert "'unsafe-inline'" not in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert not re.findall(r"""(?:src|href)=["'](?!#|/docs|data:,)""", html)
    assert not re.findall(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|outerHTML", html)
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'\$\("([^"]+)"\)', html)) <= set(ids)
