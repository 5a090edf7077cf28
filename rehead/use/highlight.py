"""Explanations to look at: coloured on a terminal, marked with signs on a pipe, and as a page that stands alone.

Colour never says anything alone: what speaks for the label is blue and underlined, what speaks against it orange and
underlined twice (with dashes, on the page), and on a pipe, or where colours are switched off, words carry a sign.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rehead.use.explain import Explanation

if TYPE_CHECKING:
    from rich.text import Text

LEVELS = 3  # of strength
SCALE = 0.3  # log-odds that are worth full strength, at least; less would make much of very little
FAINT = 0.75  # of a level: what is weaker is left unmarked
NAMED = 5  # words that are named for the label, and against it

# Weak to strong, dark on light, so that they can be read on any terminal; and what one of few colours can show.
COLOURS = {
    "for": ("black on #d6e8f7", "black on #9cc9ee", "bold black on #5aa9e6"),
    "against": ("black on #fbe6cf", "black on #f7c48b", "bold black on #f29e38"),
}
FEW_COLOURS = {
    "for": ("underline", "black on cyan", "bold black on cyan"),
    "against": ("underline2", "black on yellow", "bold black on yellow"),
}
LINES = {"for": "underline", "against": "underline2"}


def levels(explanation: Explanation) -> list[int]:
    """Give every word a strength from -3 (against the label) over 0 to 3 (for it), measured by the strongest one."""
    scale = max([SCALE, *(abs(each.weight) for each in explanation.words)])
    shares = [LEVELS * each.weight / scale for each in explanation.words]
    return [0 if abs(share) < FAINT else _away_from_zero(share) for share in shares]


def side(level: int) -> str:
    """Say which side a word is on."""
    return "for" if level > 0 else "against"


def summary(explanation: Explanation) -> list[str]:
    """Say in lines of their own: the label with its probability, and the strongest words for it and against it."""
    given = f"{printable(explanation.given)}, explained: " if explanation.given is not None else ""
    lines = [f"{given}{printable(explanation.label)}  {100 * explanation.probability:.1f} %"]
    together: dict[str, dict[str, float]] = {"for": {}, "against": {}}
    for each, level in zip(explanation.words, levels(explanation), strict=True):
        if level:
            word = explanation.text[each.begin : each.end].casefold()
            together[side(level)][word] = together[side(level)].get(word, 0.0) + each.weight
    for name, words in together.items():
        strongest = sorted(words.items(), key=lambda item: -abs(item[1]))[:NAMED]
        if strongest:
            lines.append(f"{name}: " + ", ".join(f"{printable(word)} {weight:+.2f}" for word, weight in strongest))
    return lines


def coloured(explanation: Explanation, *, many: bool = True) -> Text:
    """Show the text with its words in colours, for a terminal that knows `many` of them, or few."""
    from rich.text import Text

    shown = Text(printable(explanation.text))
    for each, level in zip(explanation.words, levels(explanation), strict=True):
        if level:
            colour = (COLOURS if many else FEW_COLOURS)[side(level)][abs(level) - 1]
            shown.stylize(f"{colour} {LINES[side(level)]}", each.begin, each.end)
    return shown


def signed(explanation: Explanation) -> str:
    """Show the text with its words in brackets, + for the label and - against it, up to three by strength."""
    parts, at = [], 0
    for each, level in zip(explanation.words, levels(explanation), strict=True):
        if level:
            sign = ("+" if level > 0 else "-") * abs(level)
            parts += [explanation.text[at : each.begin], f"[{sign}{explanation.text[each.begin : each.end]}]"]
            at = each.end
    return printable("".join([*parts, explanation.text[at:]]))


def print_explanations(explanations: Iterable[Explanation]) -> None:
    """Print explanations on standard output: in colours if that is a terminal that may have them, else with signs."""
    from rehead.terminal import results_console

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


def page(explanations: Iterable[Explanation], title: str = "Which words decided") -> Iterator[str]:
    """Make a page that stands alone, piece by piece, so that any number of texts can be written."""
    begin, end = (Path(__file__).parent / "explanations.html").read_text(encoding="utf-8").split("<!-- texts -->")
    yield begin.replace("<!-- title -->", html.escape(printable(title)))
    for each in explanations:
        yield _article(each)
    yield end


def _article(explanation: Explanation) -> str:
    parts, at = [], 0
    for each, level in zip(explanation.words, levels(explanation), strict=True):
        if level:
            kind = f"{side(level)} s{abs(level)}"
            word = _escaped(explanation.text[each.begin : each.end])
            parts += [
                _escaped(explanation.text[at : each.begin]),
                f'<mark class="{kind}" title="{each.weight:+.2f}">{word}</mark>',
            ]
            at = each.end
    text = "".join([*parts, _escaped(explanation.text[at:])])
    first, *rest = summary(explanation)
    notes = "".join(f"<p>{html.escape(line)}</p>" for line in rest)
    return f'<article><h2>{html.escape(first)}</h2><p class="text" dir="auto">{text}</p>{notes}</article>\n'


def printable(text: str) -> str:
    """Replace what a terminal would obey instead of showing; the text keeps its length, and its line breaks."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else " " if each.isspace() else "\ufffd" for each in text)


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def _away_from_zero(share: float) -> int:
    size = min(LEVELS, max(1, round(abs(share))))
    return size if share > 0 else -size
