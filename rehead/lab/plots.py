"""The curves of a lab, drawn as those of a comparison: accuracy by epoch and by labels, held-out loss by tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rehead.compare.plots import begin_figure, draw_comparison, inked, inline, placeholder
from rehead.compare.results import Method
from rehead.lab.facts import LabFacts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_plots(facts: LabFacts) -> dict[str, str]:
    """Draw all plots of the page: name → SVG."""
    with inked():
        found = draw_comparison(facts.comparison)
        if any(len(each.snapshots) > 1 for each in facts.pretraining):
            found["pretraining"] = _draw_pretraining(facts)
        return {name: inline(figure, name) for name, figure in found.items()}


def method_of(facts: LabFacts, name: str) -> Method | None:
    """Find the method that starts from a pretraining run."""
    return next((each for each in facts.comparison.methods if each.kind == "pretrained" and each.name == name), None)


def _draw_pretraining(facts: LabFacts) -> Figure:
    """Plot the share of correct held-out predictions by the tokens that were read."""
    figure, axes = begin_figure()
    for each in facts.pretraining:
        if (method := method_of(facts, each.name)) is None:
            continue
        points = [
            (at.tokens / 1e6, 100 * at.measures["accuracy"]) for at in each.snapshots if "accuracy" in at.measures
        ]
        axes.plot(
            [tokens for tokens, _ in points], [right for _, right in points],
            color=placeholder(facts.comparison, method), linewidth=2, marker="o", markersize=4, label=each.name,
        )  # fmt: skip
    axes.set_xlabel("million tokens read by the layers")
    axes.set_ylabel("held-out predictions that are right, %")
    axes.set_xlim(left=0)
    axes.legend(frameon=False, fontsize=9)
    return figure
