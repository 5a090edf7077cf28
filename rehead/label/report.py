"""The report page of a project: how many labels, from whom and how, and how good the quick head became with them.

One file without scripts. Names that users gave are escaped.
"""

from __future__ import annotations

from collections import Counter
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rehead.label.project import Project

WIDTH, HEIGHT, LEFT, BOTTOM = 560, 240, 46, 30


def report_page(project: Project, estimate: dict[str, Any]) -> str:
    """Write the page."""
    labels = project.labels
    with project.lock:
        given = [each for _, each in labels.labelled()]
        counts = [labels.counts[number] for number in range(len(labels.classes))]
        conflicts, agreement = labels.conflicts(), labels.agreement()
        skipped = sum(state.skipped for state in labels.texts.values())
    how, by = Counter(each.how for each in given), Counter(each.by or "(file)" for each in given)
    shares = estimate.get("shares", [])
    classes = [
        (name, f"{counts[number]:,}", f"{100 * shares[number]:.1f} %" if number < len(shares) else "–")
        for number, name in enumerate(labels.classes)
    ]
    facts = [
        ("texts", f"{project.count:,}"),
        ("labels", f"{len(given):,}"),
        ("left out by people", f"{skipped:,}"),
        ("people disagree", f"{len(conflicts):,}"),
        *_accuracy(estimate),
    ]
    if agreement["of"]:
        facts.append(("suggestions people agreed with", f"{agreement['agreed']:,} of {agreement['of']:,}"))
    parts = [
        _table(("", ""), facts),
        "<h2>Learning curve</h2>" + curve_svg(estimate.get("curve", [])),
        "<p>Accuracy of the quick head on the texts that were drawn at random, each predicted without its own label, "
        "with 95 % intervals. The classifier that was trained at the end reads more; what it reached "
        "in cross-validation is on its card.</p>",
        "<h2>Classes</h2>" + _table(("class", "labels", "share of all texts, predicted"), classes),
        "<h2>How the labelled texts were chosen</h2>" + _table(("way", "labels"), _counted(how)),
        "<h2>Who labelled</h2>" + _table(("person", "labels"), _counted(by)),
    ]
    template = (resources.files("rehead.label") / "report.html").read_text(encoding="utf-8")
    title = escape(project.path.absolute().name)
    return template.replace("{{title}}", title).replace("{{body}}", "\n".join(parts))


def _counted(counter: Counter[str]) -> list[tuple[str, str]]:
    return [(name, f"{count:,}") for name, count in counter.most_common()]


def _accuracy(estimate: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    for name, said in (("accuracy", "accuracy, out-of-fold on random texts"), ("macro_f1", "macro-F1 on the same")):
        if each := estimate.get(name):
            low, high = 100 * each["low"], 100 * each["high"]
            found.append((said, f"{100 * each['value']:.1f} % (95 %: {low:.1f} to {high:.1f})"))
    found.append(("random texts", f"{estimate.get('random', 0):,}"))
    return found


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    titles = "".join(f"<th>{escape(each)}</th>" for each in head) if any(head) else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{titles}</tr></thead>' if titles else ''}<tbody>{body}</tbody></table>"


def curve_svg(curve: list[dict[str, float]]) -> str:
    """Draw the learning curve with its band."""
    if len(curve) < 2:
        return "<p>There were too few random texts to draw one.</p>"
    most = max(each["labels"] for each in curve)
    low = min(0.5, *(each["low"] for each in curve))

    def x(each: dict[str, float]) -> float:
        return LEFT + (WIDTH - LEFT - 8) * each["labels"] / most

    def y(value: float) -> float:
        return 8 + (HEIGHT - BOTTOM - 8) * (1 - value) / (1 - low)

    band = [(x(each), y(each["high"])) for each in curve] + [(x(each), y(each["low"])) for each in reversed(curve)]
    line = [(x(each), y(each["value"])) for each in curve]
    grid = ""
    for step in range(5):
        value = low + (1 - low) * step / 4
        grid += f'<path class="grid" d="M{LEFT} {y(value):.1f}H{WIDTH - 8}"/>'
        grid += f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{100 * value:.0f} %</text>'
    ticks = "".join(
        f'<text x="{x(each):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{each["labels"]:.0f}</text>'
        for each in (curve[0], curve[len(curve) // 2], curve[-1])
    )
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in line)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Accuracy by number of labels">{grid}{ticks}'
        f'<polygon class="band" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in band)}"/>'
        f'<polyline class="line" points="{points}"/></svg>'
    )
