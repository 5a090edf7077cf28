"""The learning curves of a run, drawn from its `metrics.jsonl`.

Left: the training loss (thin: as logged; thick: smoothed) and the held-out loss. Right, where there is one: another
held-out metric, accuracy or perplexity. Phases follow each other along the x-axis, with a dotted line between them.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rehead.figures import INK, new_figure, save_figures, style
from rehead.training.metrics_log import read

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "curves"
TRAINING, HELD_OUT = "#9fb3c8", "#b3541e"
SHOWN = ("accuracy", "perplexity", "next_accuracy")  # of what validation reports, the first that is there


def draw(metrics: Path) -> Figure:
    """Draw the learning curves of a run."""
    lines = read(metrics)
    with style():
        named = _measured(lines)
        figure = new_figure(11.0 if named else 6.0, 4.4)
        panels = figure.subplots(1, 2 if named else 1, squeeze=False)[0]
        _loss(panels[0], lines)
        if named:
            _measure(panels[1], lines, named)
        for axes in panels:
            axes.set_xlabel("tokens read, millions")
            for border in _borders(lines):
                axes.axvline(border, color=INK, linewidth=0.8, linestyle=":")
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
    return figure


def save(metrics: Path, directory: Path) -> list[Path]:
    """Draw the curves into a directory, as curves.png and curves.svg."""
    return save_figures({NAME: draw(metrics)}, directory, overwrite=True).paths


def _loss(axes: Axes, lines: list[dict[str, Any]]) -> None:
    objectives = list(dict.fromkeys(line["objective"] for line in lines))
    for objective in objectives:
        x, y = _series(lines, "train", "loss", objective)
        axes.plot(x, y, color=TRAINING, linewidth=0.9, alpha=0.6)
        axes.plot(x, _smooth(y), color=TRAINING, linewidth=2, label="training" if objective == objectives[0] else None)
        x, y = _series(lines, "valid", "loss", objective)
        label = "held out" if objective == objectives[0] else None
        axes.plot(x, y, color=HELD_OUT, linewidth=2, marker="o", markersize=4, label=label)
    axes.set_title("loss: " + ", then ".join(objectives), loc="left")
    if objectives:
        axes.legend(frameon=False)


def _measured(lines: list[dict[str, Any]]) -> str | None:
    """Name the held-out metric to draw beside the loss: the first of `SHOWN`; None if there is none."""
    names = [name for line in lines if line["kind"] == "valid" for name in line if name.rpartition(".")[2] in SHOWN]
    return min(names, key=lambda name: SHOWN.index(name.rpartition(".")[2]), default=None)


def _measure(axes: Axes, lines: list[dict[str, Any]], best: str) -> None:
    valid = [line for line in lines if line["kind"] == "valid"]
    for objective in dict.fromkeys(line["objective"] for line in valid):
        axes.plot(*_series(lines, "valid", best, objective), color=HELD_OUT, linewidth=2, marker="o", markersize=4)
    axes.set_title(f"held out: {best.replace('_', ' ')}", loc="left")
    if best.endswith("perplexity"):
        axes.set_yscale("log")


def _series(
    lines: list[dict[str, Any]], kind: str, name: str, objective: str | None = None
) -> tuple[list[float], list[float]]:
    """Give the points of one curve: millions of tokens, and the value, where there is one."""
    points = [
        (line["tokens"] / 1e6, line[name])
        for line in lines
        if line["kind"] == kind and line.get(name) is not None and objective in (None, line["objective"])
    ]
    return [x for x, _ in points], [y for _, y in points]


def _borders(lines: list[dict[str, Any]]) -> list[float]:
    """Find where one objective ends and the next begins."""
    ends: list[float] = []
    for before, after in pairwise(lines):
        if before["objective"] != after["objective"]:
            ends.append(before["tokens"] / 1e6)
    return ends


def _smooth(values: list[float]) -> list[float]:
    """Smooth by a moving average over a fortieth of the curve to either side."""
    reach = len(values) // 40
    windows = [values[max(0, at - reach) : at + reach + 1] for at in range(len(values))]
    return [sum(window) / len(window) for window in windows]
