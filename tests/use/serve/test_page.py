"""The page at `/` as a whole: what is there, how it stands on screens, what it loads, and who may see it."""

from __future__ import annotations

import re
import time

import pytest

from tests.browser import Browser
from tests.use.serve.page import PHONE, WIDE, Page
from tests.use.serve.running import SECRET, Running, classifier, running


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


def test_what_is_not_there_is_not_shown(page: Page) -> None:
    assert [each for each in ("try", "file", "attention", "writer") if page.shown(each)] == ["try", "file"]


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
