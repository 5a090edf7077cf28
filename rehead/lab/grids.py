"""Matrices as pictures: SVG cells in the page's colours, which follow light and dark mode and print sharply."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

CELL = 14.0  # of the picture's own units
LETTER = 0.62  # width of a character, as a share of the size of the type


def grid(
    strengths: Sequence[Sequence[float]],
    *,
    colour: str,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    texts: Sequence[Sequence[str]] | None = None,
    negative: str | None = None,
    cell: float = CELL,
    label: str,
) -> str:
    """Draw a matrix of strengths from −1 to 1: the fuller the colour, the larger; below zero in `negative`.

    `rows` and `columns` name the edges, `texts` stand in the cells, `label` describes the picture for screen readers.
    """
    size = 0.62 * cell
    left = max((len(each) for each in rows), default=0) * LETTER * size + (6 if rows else 0)
    top = max((len(each) for each in columns), default=0) * LETTER * size + (6 if columns else 0)
    wide, high = len(strengths[0]) * cell, len(strengths) * cell
    parts = []
    for y, line in enumerate(strengths):
        for x, strength in enumerate(line):
            if abs(strength) < 0.01:
                continue
            fill = negative if strength < 0 and negative else colour
            parts.append(
                f'<rect x="{left + x * cell:.1f}" y="{top + y * cell:.1f}" width="{cell:g}" height="{cell:g}" '
                f'fill="var(--{fill})" fill-opacity="{min(1.0, abs(strength)):.2f}"/>'
            )
            if texts is None:
                continue
    for y, words in enumerate(texts or ()):
        for x, word in enumerate(words):
            parts.append(
                f'<text x="{left + (x + 0.5) * cell:.1f}" y="{top + (y + 0.5) * cell:.1f}" text-anchor="middle" '
                f'dominant-baseline="central" font-size="{0.9 * size:.1f}" fill="var(--ink)">{escape(word)}</text>'
            )
    for y, word in enumerate(rows):
        parts.append(
            f'<text x="{left - 4:.1f}" y="{top + (y + 0.5) * cell:.1f}" text-anchor="end" dominant-baseline="central" '
            f'font-size="{size:.1f}" fill="var(--ink)">{escape(word)}</text>'
        )
    for x, word in enumerate(columns):
        place = left + (x + 0.5) * cell
        parts.append(
            f'<text transform="translate({place:.1f} {top - 4:.1f}) rotate(-90)" dominant-baseline="central" '
            f'font-size="{size:.1f}" fill="var(--ink)">{escape(word)}</text>'
        )
    frame = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="none" stroke="var(--line)"/>'
    )
    return (
        f'<svg viewBox="0 0 {left + wide + 2:.0f} {top + high + 2:.0f}" role="img" aria-label="{escape(label)}" '
        f'font-family="var(--font)">{frame}{"".join(parts)}</svg>'
    )
