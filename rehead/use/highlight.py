"""Explanations as highlighted text: in colour on a terminal, with signs on a pipe, and as a self-contained HTML page.

Colour is never the only cue: words for the label are blue and underlined, words against it orange and double-underlined
(dashed on the page); on a pipe, or without colours, they carry a sign.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rehead.terminal import printable, results_console
from rehead.use.explain import Explanation

if TYPE_CHECKING:
    from rich.text import Text

LEVELS = 3  # of strength
MIN_SCALE = 0.3  # the smallest weight (log-odds) shown at full strength, so that noise is not highlighted
MIN_LEVEL = 0.75  # words below this are not marked
TOP_WORDS = 5  # listed for the label, and against it

# Weak to strong, dark on light, to be readable on any terminal; and the same with 16 colours.
COLOURS = {
    "for": ("black on #d6e8f7", "black on #9cc9ee", "bold black on #5aa9e6"),
    "against": ("black on #fbe6cf", "black on #f7c48b", "bold black on #f29e38"),
}
COLOURS_16 = {
    "for": ("underline", "black on cyan", "bold black on cyan"),
    "against": ("underline2", "black on yellow", "bold black on yellow"),
}
LINES = {"for": "underline", "against": "underline2"}


def levels(explanation: Explanation) -> list[int]:
    """Scale the words' weights by the strongest one: -3 (against the label) to 3 (for it), 0 if too weak to mark."""
    scale = max([MIN_SCALE, *(abs(each.weight) for each in explanation.words)])
    shares = [LEVELS * each.weight / scale for each in explanation.words]
    return [0 if abs(share) < MIN_LEVEL else _rounded_level(share) for share in shares]


def side(level: int) -> str:
    """Name the side of a word: for the label, or against it."""
    return "for" if level > 0 else "against"


def summary(explanation: Explanation) -> list[str]:
    """Summarise in lines: the label with its probability, then the strongest words for it and against it."""
    given = f"{printable(explanation.given)}, explained: " if explanation.given is not None else ""
    lines = [f"{given}{printable(explanation.label)}  {100 * explanation.probability:.1f} %"]
    totals: dict[str, dict[str, float]] = {"for": {}, "against": {}}
    for each, level in zip(explanation.words, levels(explanation), strict=True):
        if level:
            word = explanation.text[each.begin : each.end].casefold()
            totals[side(level)][word] = totals[side(level)].get(word, 0.0) + each.weight
    for name, words in totals.items():
        strongest = sorted(words.items(), key=lambda item: -abs(item[1]))[:TOP_WORDS]
        if strongest:
            lines.append(f"{name}: " + ", ".join(f"{printable(word)} {weight:+.2f}" for word, weight in strongest))
    return lines


def coloured(explanation: Explanation, *, many: bool = True) -> Text:
    """Highlight the text in colour; `many` for a terminal with 256 colours or more, else 16."""
    from rich.text import Text

    shown = Text(printable(explanation.text))
    for each, level in zip(explanation.words, levels(explanation), strict=True):
        if level:
            colour = (COLOURS if many else COLOURS_16)[side(level)][abs(level) - 1]
            shown.stylize(f"{colour} {LINES[side(level)]}", each.begin, each.end)
    return shown


def signed(explanation: Explanation) -> str:
    """Mark words in brackets: one to three + for the label, - against it, by strength."""
    parts = []
    for text, level, _ in _segments(explanation):
        sign = ("+" if level > 0 else "-") * abs(level)
        parts.append(f"[{sign}{text}]" if level else text)
    return printable("".join(parts))


def print_explanations(explanations: Iterable[Explanation]) -> None:
    """Print explanations: in colour on a terminal that allows it, else with signs."""
    console = results_console(100)
    for number, each in enumerate(explanations):
        if number:
            console.print()
        first, *rest = summary(each)
        console.print(first, style="bold")
        if console.is_terminal and not console.no_color:
            console.print(coloured(each, many=console.color_system in ("256", "truecolor")))
        else:
            console.print(signed(each), soft_wrap=True)
        for line in rest:
            console.print(line, soft_wrap=True)


def page(explanations: Iterable[Explanation], title: str = "Explanations") -> Iterator[str]:
    """Render a self-contained HTML page, as chunks, so that any number of texts fits into memory."""
    begin, end = (Path(__file__).parent / "explanations.html").read_text(encoding="utf-8").split("<!-- texts -->")
    yield begin.replace("<!-- title -->", html.escape(printable(title)))
    for each in explanations:
        yield _article(each)
    yield end


def _article(explanation: Explanation) -> str:
    parts = []
    for text, level, weight in _segments(explanation):
        shown = html.escape(printable(text))
        kind = f"{side(level)} s{abs(level)}"
        parts.append(f'<mark class="{kind}" title="{weight:+.2f}">{shown}</mark>' if level else shown)
    first, *rest = summary(explanation)
    notes = "".join(f"<p>{html.escape(line)}</p>" for line in rest)
    return f'<article><h2>{html.escape(first)}</h2><p class="text" dir="auto">{"".join(parts)}</p>{notes}</article>\n'


def _segments(explanation: Explanation) -> Iterator[tuple[str, int, float]]:
    """Split the text into marked words, with level and weight, and what stands between them, with zeros."""
    at = 0
    for each, level in zip(explanation.words, levels(explanation), strict=True):
        if level:
            yield explanation.text[at : each.begin], 0, 0.0
            yield explanation.text[each.begin : each.end], level, each.weight
            at = each.end
    yield explanation.text[at:], 0, 0.0


def _rounded_level(share: float) -> int:
    size = min(LEVELS, max(1, round(abs(share))))
    return size if share > 0 else -size
