"""Explanations as people see them: nothing is said by colour alone, and no text can do more than be shown."""

from __future__ import annotations

import html
import io
import re
import sys

import pytest
from rich.console import Console

from rehead.terminal import printable
from rehead.use.explain import Explanation, Word
from rehead.use.highlight import coloured, levels, page, print_explanations, signed, summary

TEXT = "What a dull, dull film: great!"
WEIGHTS = [0.05, 0.0, 0.6, 0.0, 0.6, 0.35, 0.0, -0.45, 0.01]
PLACES = [(found.start(), found.end()) for found in re.finditer(r"\w+|[^\w\s]", TEXT)]


def explanation(text: str = TEXT, label: str = "negative") -> Explanation:
    words = [Word(begin, end, weight) for (begin, end), weight in zip(PLACES, WEIGHTS, strict=True)]
    return Explanation(text, label, 0.931, words if text == TEXT else [])


def test_words_are_strong_beside_the_strongest() -> None:
    assert levels(explanation()) == [0, 0, 3, 0, 3, 2, 0, -2, 0]
    faint = Explanation("a b", "x", 0.5, [Word(0, 1, 0.01), Word(2, 3, -0.2)])
    assert levels(faint) == [0, -2]  # a text that says little is not made to say much
    assert levels(Explanation("", "x", 0.5, [])) == []


def test_the_strongest_are_named_with_all_that_they_do() -> None:
    assert summary(explanation()) == ["negative  93.1 %", "for: dull +1.20, film +0.35", "against: great -0.45"]


def test_on_a_pipe_words_carry_signs(capsys: pytest.CaptureFixture[str]) -> None:
    print_explanations([explanation(), explanation()])
    said = capsys.readouterr().out
    assert "What a [+++dull], [+++dull] [++film]: [--great]!" in said
    assert said.count("negative  93.1 %") == 2
    assert "\x1b" not in said


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    for name in ("NO_COLOR", "COLORTERM", "TERM", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    print_explanations([explanation()])
    return stream.getvalue()


@pytest.mark.parametrize("settings", [{"TERM": "xterm-256color"}, {"TERM": "xterm"}], ids=["many", "few"])
def test_on_a_terminal_they_have_colours_and_lines(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    said = on_a_terminal(monkeypatch, **settings)
    dull, great = (re.findall(rf"\x1b\[([0-9;]+)m{word}", said) for word in ("dull", "great"))
    assert len(dull) == 2
    assert dull[0].split(";")[:2] == ["1", "4"]  # bold, underlined
    assert "21" in great[0].split(";")  # underlined twice
    assert set(dull[0].split(";")) != set(great[0].split(";"))
    assert re.sub(r"\x1b\[[0-9;]*m", "", said).startswith("negative  93.1 %\n" + TEXT)


def test_where_colours_are_switched_off_words_carry_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[+++dull]" in on_a_terminal(monkeypatch, TERM="xterm-256color", NO_COLOR="1")


def test_the_page_has_the_text_as_text() -> None:
    nasty = "<script>alert(1)</script> & \"'\x00\x1b[31m"
    made = "".join(page([explanation(), explanation(nasty, "<b>bad</b>")], title="<i>"))
    assert "<script" not in made
    assert html.escape("<script>alert(1)</script> & \"'") in made
    assert "&lt;b&gt;bad&lt;/b&gt;" in made
    assert "<title>&lt;i&gt;</title>" in made
    assert "\x00" not in made
    assert "\x1b" not in made
    assert '<mark class="for s3" title="+0.60">dull</mark>' in made
    assert '<mark class="against s2" title="-0.45">great</mark>' in made
    body = made[made.index("<article>") :]
    assert re.sub("<[^>]+>", "", body).startswith("negative  93.1 %" + TEXT)
    assert not re.search(r"(?:src|href)=|url\(|@import", made)  # nothing is fetched


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    assert printable("a\x1b[31mb\r\nc\td\u202ee") == "a\ufffd[31mb \nc d\ufffde"
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    console.print(coloured(Explanation("x\x1b]0;title\x07", "l", 0.5, [Word(0, 1, 1.0)])))
    assert "]0;title" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b]" not in console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in signed(Explanation("x\x1b[2J", "l", 0.5, []))
