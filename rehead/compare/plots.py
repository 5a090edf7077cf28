"""The plots of a report, as inline SVG that follows the page's light or dark colours.

Matplotlib draws in placeholder colours (such as `#00c0d1`); in the SVG each becomes a CSS variable, which the page
sets. Text stays text, in the page's font. Plots are as wide as a phone in portrait, so that they stay readable there.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.compare.kinds import Kind
from rehead.compare.results import Confusion, Curve, Method, Reliability, Results
from rehead.figures import new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 4.9, 3.5  # inches
LEGEND_ROW = 0.17  # inches
LEGEND_LETTERS = 32  # that a label may have beside another
MARKERS: dict[Kind, str] = {
    "scratch": "s", "pretrained": "o", "frozen": "D", "recipe": "*", "tfidf": "^", "tfidf_chars": "P",
    "nbsvm": "v", "fasttext": "X",
}  # fmt: skip
# Never shown: `inline` replaces each by the CSS variable of its name.
PLACEHOLDERS = {
    "ink": "#00c0d0", "faint": "#00c0d1", "ground": "#00c0d2",
    "scratch": "#00c0e0", "pretrained": "#00c0e1", "frozen": "#00c0e2", "recipe": "#00c0e3", "tfidf": "#00c0e4",
    "nbsvm": "#00c0e5", "tfidf_chars": "#00c0e6", "fasttext": "#00c0e7",
}  # fmt: skip
COLOURS: tuple[Kind, ...] = ("recipe", "tfidf", "frozen", "nbsvm", "tfidf_chars", "fasttext")
DASHES = ("-", "--", ":", "-.")  # tell apart methods of one kind


INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")


def draw_plots(results: Results) -> dict[str, str]:
    """Draw all plots of a report: name → SVG."""
    with inked():
        found = draw_comparison(results)
        for number, confusion in enumerate(results.confusions):
            found[f"confusion-{number}"] = draw_confusion(confusion, list(results.data.classes))
        if results.reliabilities:
            found["reliability"] = draw_reliability(results, results.reliabilities)
        return {name: inline(figure, name) for name, figure in found.items()}


@contextmanager
def inked() -> Iterator[None]:
    """Draw with placeholders for the page's colours."""
    with style():
        import matplotlib as mpl

        colours: Any = dict.fromkeys(INKED, PLACEHOLDERS["ink"])
        with mpl.rc_context({**colours, "text.parse_math": False}):  # class names may contain $
            yield


def draw_comparison(results: Results) -> dict[str, Figure]:
    """Draw accuracy by epoch, and by labels where there are several training set sizes."""
    found: dict[str, Figure] = {}
    if curves := [each for each in results.curves if each.labels == results.counts[-1]]:
        found["curves"] = draw_curves(results, curves)
    if len(results.counts) > 1:
        found["labels"] = draw_label_curve(results)
    return found


def placeholder(results: Results, method: Method) -> str:
    """Give the colour that a method is drawn in."""
    return PLACEHOLDERS[colour_of(results, method)]


def draw_curves(results: Results, curves: Sequence[Curve]) -> Figure:
    """Plot validation accuracy by epoch: mean over seeds, and a band from minimum to maximum."""
    figure, axes = begin_figure()
    dashes = _dashes(results)
    for curve in curves:
        method = results.method(curve.method)
        colour = placeholder(results, method)
        epochs, low, mean, high = band(curve)
        axes.fill_between(epochs, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(epochs, mean, color=colour, linewidth=2, linestyle=dashes[method.key], marker="o", markersize=3.5,
                  label=method.title)  # fmt: skip
    for reach in results.reaches:
        if reach.labels == results.counts[-1] and results.method(reach.method).kind == "scratch":
            axes.axhline(100 * reach.target, color=PLACEHOLDERS["ink"], linewidth=1, linestyle=":",
                         label="best of scratch")  # fmt: skip
            break
    axes.set_xlabel("epochs (0: before the first step)")
    axes.set_ylabel("validation accuracy, %")
    axes.set_xlim(left=0)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return figure


def band(curve: Curve) -> tuple[list[float], list[float], list[float], list[float]]:
    """Compute epochs, and minimum, mean and maximum accuracy in %. A seed that stopped early keeps its last value."""
    epochs = sorted({round(point.epoch, 6) for seed in curve.seeds for point in seed})
    rows = []
    for seed in curve.seeds:
        known = {round(point.epoch, 6): 100 * point.accuracy for point in seed}
        last = next(iter(known.values()))
        rows.append([last := known.get(epoch, last) for epoch in epochs])
    table = np.array(rows)  # (seeds, epochs)
    return epochs, table.min(0).tolist(), table.mean(0).tolist(), table.max(0).tolist()


def draw_label_curve(results: Results) -> Figure:
    """Plot the learning curve: test accuracy by training set size, with the 95 % interval over test documents."""
    columns = 2 if all(len(method.title) <= LEGEND_LETTERS for method in results.methods) else 1
    figure, axes = begin_figure(HEIGHT + LEGEND_ROW * -(-len(results.methods) // columns))
    dashes = _dashes(results)
    for method in results.methods:
        scores = [score for labels in results.counts if (score := results.score(method.key, labels))]
        x = [score.labels for score in scores]
        colour = placeholder(results, method)
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
    axes.set_xlabel("training labels")
    axes.set_ylabel("test accuracy, %")
    figure.legend(frameon=False, fontsize=8.5, loc="outside lower center", ncols=columns)
    return figure


def draw_confusion(confusion: Confusion, names: Sequence[str]) -> Figure:
    """Plot a confusion matrix; cells are shaded by their fraction of the row (true class)."""
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
            colour = PLACEHOLDERS["recipe" if row == column else "pretrained"]
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
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    axes.tick_params(length=0)
    for side_name in ("top", "right", "left", "bottom"):
        axes.spines[side_name].set_visible(False)
    return figure


def draw_reliability(results: Results, reliabilities: Sequence[Reliability]) -> Figure:
    """Plot a reliability diagram: accuracy by confidence; a calibrated method lies on the diagonal."""
    figure, axes = begin_figure()
    lowest = min((each.confidence for one in reliabilities for each in one.bins), default=0.5)
    start = 100 * min(0.5, np.floor(10 * lowest) / 10)
    axes.plot([start, 100], [start, 100], color=PLACEHOLDERS["faint"], linewidth=1, linestyle=":")
    for reliability in reliabilities:
        method = results.method(reliability.method)
        axes.plot(
            [100 * each.confidence for each in reliability.bins], [100 * each.right for each in reliability.bins],
            color=PLACEHOLDERS[method.kind], marker=MARKERS[method.kind], markersize=5, linewidth=1.6,
            label=method.title,
        )  # fmt: skip
    axes.set_xlabel("predicted probability, %")
    axes.set_ylabel("accuracy, %")
    axes.set_xlim(start - 1, 101)
    axes.legend(frameon=False, fontsize=9)
    return figure


def inline(figure: Figure, name: str) -> str:
    """Render a figure as inline SVG, with the page's colours and font, and ids that are unique in the page."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for variable, colour in PLACEHOLDERS.items():
        text = text.replace(colour, f"var(--{variable})")
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font: ([^;\"]*?)'DejaVu Sans'[^;\"]*", r"font: \1inherit-family", text)
    text = text.replace("inherit-family", "var(--font)")
    # The page sets the width; the view box keeps the aspect ratio.
    return re.sub(
        r'<svg ([^>]*?)height="[^"]*"', r"<svg \1", re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\1", text, count=1), count=1
    )


def begin_figure(height: float = HEIGHT) -> tuple[Figure, Axes]:
    """Begin a plot of the width of the page's cards."""
    figure = new_figure(WIDTH, height)
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    axes.grid(axis="y", color=PLACEHOLDERS["faint"], linewidth=0.5, alpha=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def colour_of(results: Results, method: Method) -> Kind:
    """Choose the colour of a method: that of its kind, or one that no other kind uses for the second and later ones."""
    same = [each.key for each in results.methods if each.kind == method.kind]
    used = {each.kind for each in results.methods}
    free = [kind for kind in COLOURS if kind not in used]
    place = same.index(method.key)
    return method.kind if not place or place > len(free) else free[place - 1]


def _dashes(results: Results) -> dict[str, str]:
    """Assign line styles, so that methods of one kind differ."""
    seen: dict[str, int] = {}
    found = {}
    for method in results.methods:
        found[method.key] = DASHES[seen.get(method.kind, 0) % len(DASHES)]
        seen[method.kind] = seen.get(method.kind, 0) + 1
    return found
