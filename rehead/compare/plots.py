"""The pictures of a report, as SVG that stands inside the page and follows its colours, light or dark.

Matplotlib draws in colours that stand for names (`#00c0d1` for the second colour, say); in the SVG each becomes a CSS
variable, which the page sets. Words stay words, in the page's own font. Pictures are as wide as a phone held upright,
so that nothing in them becomes too small to read there.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.compare.kinds import Kind
from rehead.compare.results import Confusion, Curve, Reliability, Results
from rehead.figures import new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 4.9, 3.5  # inches
MARKERS: dict[Kind, str] = {
    "scratch": "s", "pretrained": "o", "frozen": "D", "recipe": "*", "tfidf": "^", "nbsvm": "v",
}  # fmt: skip
# Colours that nobody sees: the page says what they are.
STANDS_FOR = {
    "ink": "#00c0d0", "faint": "#00c0d1", "ground": "#00c0d2",
    "scratch": "#00c0e0", "pretrained": "#00c0e1", "frozen": "#00c0e2", "recipe": "#00c0e3", "tfidf": "#00c0e4",
    "nbsvm": "#00c0e5",
}  # fmt: skip
DASHES = ("-", "--", ":", "-.")  # several runs of one kind


def pictures(results: Results) -> dict[str, str]:
    """Draw all pictures of a report: name → SVG."""
    found: dict[str, Figure] = {}
    with style():
        import matplotlib as mpl

        inked: Any = dict.fromkeys(INKED, STANDS_FOR["ink"])
        with mpl.rc_context({**inked, "text.parse_math": False}):  # a $ in a label's name is a $
            if curves := [each for each in results.curves if each.labels == results.counts[-1]]:
                found["curves"] = draw_curves(results, curves)
            if len(results.counts) > 1:
                found["labels"] = draw_label_curve(results)
            for number, confusion in enumerate(results.confusions):
                found[f"confusion-{number}"] = draw_confusion(confusion, list(results.data.classes))
            if results.reliabilities:
                found["reliability"] = draw_reliability(results, results.reliabilities)
            return {name: inline(figure, name) for name, figure in found.items()}


INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")


def draw_curves(results: Results, curves: Sequence[Curve]) -> Figure:
    """Draw validation accuracy by epoch: mean over the seeds, and a band from the lowest to the highest."""
    figure, axes = _begin()
    dashes = _dashes(results)
    for curve in curves:
        method = results.method(curve.method)
        colour = STANDS_FOR[method.kind]
        epochs, low, mean, high = band(curve)
        axes.fill_between(epochs, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(epochs, mean, color=colour, linewidth=2, linestyle=dashes[method.key], marker="o", markersize=3.5,
                  label=method.title)  # fmt: skip
    for reach in results.reaches:
        if reach.labels == results.counts[-1] and results.method(reach.method).kind == "scratch":
            axes.axhline(100 * reach.target, color=STANDS_FOR["ink"], linewidth=1, linestyle=":",
                         label="scratch at its best")  # fmt: skip
            break
    axes.set_xlabel("epochs (0: before the first step)")
    axes.set_ylabel("validation accuracy, %")
    axes.set_xlim(left=0)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return figure


def band(curve: Curve) -> tuple[list[float], list[float], list[float], list[float]]:
    """Give epochs, and the lowest, mean and highest accuracy in per cent. A seed that stopped early keeps its last."""
    epochs = sorted({round(moment.epoch, 6) for seed in curve.seeds for moment in seed})
    rows = []
    for seed in curve.seeds:
        known = {round(moment.epoch, 6): 100 * moment.accuracy for moment in seed}
        last = next(iter(known.values()))
        rows.append([last := known.get(epoch, last) for epoch in epochs])
    table = np.array(rows)  # (seeds, epochs)
    return epochs, table.min(0).tolist(), table.mean(0).tolist(), table.max(0).tolist()


def draw_label_curve(results: Results) -> Figure:
    """Draw test accuracy by number of labels, with the 95 % interval over the test documents as a band."""
    figure, axes = _begin(HEIGHT + 0.5)
    dashes = _dashes(results)
    for method in results.methods:
        scores = [score for labels in results.counts if (score := results.score(method.key, labels))]
        x = [score.labels for score in scores]
        colour = STANDS_FOR[method.kind]
        intervals = [score.accuracy.over_documents for score in scores]
        if all(intervals):
            low = [100 * each.low for each in intervals if each]
            high = [100 * each.high for each in intervals if each]
            axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
        size = 9 if method.kind == "recipe" else 5
        axes.plot(x, [100 * score.accuracy.mean for score in scores], color=colour, linewidth=2, markersize=size,
                  linestyle=dashes[method.key], marker=MARKERS[method.kind], label=method.title)  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(results.counts, [f"{count:,}" for count in results.counts])
    axes.minorticks_off()
    axes.set_xlabel("labels to learn from")
    axes.set_ylabel("test accuracy, %")
    figure.legend(frameon=False, fontsize=8.5, loc="outside lower center", ncols=2)
    return figure


def draw_confusion(confusion: Confusion, names: Sequence[str]) -> Figure:
    """Draw who was taken for whom: every row is a class, shaded by the share of it that got each label."""
    matrix = np.array(confusion.matrix)  # (K, K)
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1e-9)
    size = len(names)
    figure = new_figure(WIDTH, max(HEIGHT, 1.6 + 0.3 * size))
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    for row in range(size):
        for column in range(size):
            share = float(shares[row, column])
            colour = STANDS_FOR["recipe" if row == column else "pretrained"]
            axes.fill_between(
                [column - 0.48, column + 0.48],
                row - 0.48,
                row + 0.48,
                color=colour,
                alpha=0.08 + 0.55 * share,
                linewidth=0,
            )
            if size <= 12:
                axes.text(column, row, f"{matrix[row, column]:,.0f}\n{100 * share:.0f} %", ha="center", va="center",
                          fontsize=9 if size <= 6 else 6)  # fmt: skip
    short = [name if len(name) <= 14 else name[:13] + "…" for name in names]
    axes.set_xticks(range(size), short, rotation=0 if size <= 3 else 45, ha="center" if size <= 3 else "right")
    axes.set_yticks(range(size), short)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    axes.set_xlabel("label that was given")
    axes.set_ylabel("true class")
    axes.tick_params(length=0)
    for side_name in ("top", "right", "left", "bottom"):
        axes.spines[side_name].set_visible(False)
    return figure


def draw_reliability(results: Results, reliabilities: Sequence[Reliability]) -> Figure:
    """Draw how often answers are right, by how sure they are; on the diagonal a method can be taken at its word."""
    figure, axes = _begin()
    lowest = min((each.confidence for one in reliabilities for each in one.bins), default=0.5)
    start = 100 * min(0.5, np.floor(10 * lowest) / 10)
    axes.plot([start, 100], [start, 100], color=STANDS_FOR["faint"], linewidth=1, linestyle=":")
    for reliability in reliabilities:
        method = results.method(reliability.method)
        axes.plot(
            [100 * each.confidence for each in reliability.bins], [100 * each.right for each in reliability.bins],
            color=STANDS_FOR[method.kind], marker=MARKERS[method.kind], markersize=5, linewidth=1.6, label=method.title,
        )  # fmt: skip
    axes.set_xlabel("probability that it gave, %")
    axes.set_ylabel("how often it was right, %")
    axes.set_xlim(start - 1, 101)
    axes.legend(frameon=False, fontsize=9)
    return figure


def inline(figure: Figure, name: str) -> str:
    """Write a figure as SVG to stand in a page: its colours are the page's, its ids nobody else's."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for what, colour in STANDS_FOR.items():
        text = text.replace(colour, f"var(--{what})")
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font: ([^;\"]*?)'DejaVu Sans'[^;\"]*", r"font: \1inherit-family", text)
    text = text.replace("inherit-family", "var(--font)")
    # The page says how wide it is; the view box keeps its shape.
    return re.sub(
        r'<svg ([^>]*?)height="[^"]*"', r"<svg \1", re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\1", text, count=1), count=1
    )


def _begin(height: float = HEIGHT) -> tuple[Figure, Axes]:
    figure = new_figure(WIDTH, height)
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    axes.grid(axis="y", color=STANDS_FOR["faint"], linewidth=0.5, alpha=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _dashes(results: Results) -> dict[str, str]:
    """Give methods of one kind lines of their own."""
    seen: dict[str, int] = {}
    found = {}
    for method in results.methods:
        found[method.key] = DASHES[seen.get(method.kind, 0) % len(DASHES)]
        seen[method.kind] = seen.get(method.kind, 0) + 1
    return found
