"""The plots: what they show, and that they are the same every time."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rehead.compare.plots import band, colour_of, draw_curves, draw_label_curve, draw_plots
from rehead.compare.results import Curve, CurvePoint, Method
from tests.compare.made_results import COUNTS, REACHED, made_results


def moments(*accuracies: float) -> list[CurvePoint]:
    return [CurvePoint(float(epoch), 2.0 * epoch, value, value) for epoch, value in enumerate(accuracies)]


def test_a_band_goes_from_the_lowest_to_the_highest_seed() -> None:
    epochs, low, mean, high = band(Curve("scratch", 100, [moments(0.5, 0.6, 0.8), moments(0.5, 0.7, 0.6)]))
    assert epochs == [0, 1, 2]
    assert low == pytest.approx([50, 60, 60])
    assert mean == pytest.approx([50, 65, 70])
    assert high == pytest.approx([50, 70, 80])


def test_a_seed_that_stopped_early_keeps_its_last_value() -> None:
    _, low, mean, _ = band(Curve("scratch", 100, [moments(0.5, 0.6, 0.8), moments(0.5, 0.7)]))
    assert low == pytest.approx([50, 60, 70])
    assert mean == pytest.approx([50, 65, 75])


def test_the_curves_begin_before_the_first_step() -> None:
    results = made_results()
    axes = draw_curves(results, results.curves).axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    for title in ("from scratch", "pretrained, fine-tuned"):
        assert lines[title].get_xdata()[0] == 0
    assert "best of scratch" in lines
    assert lines["best of scratch"].get_ydata()[0] == pytest.approx(74.1)
    assert len(axes.collections) == 2  # a band each


def test_the_label_curve_shows_every_score() -> None:
    results = made_results()
    results.scores = [each for each in results.scores if (each.method, each.labels) != ("scratch", 20)]
    figure = draw_label_curve(results)
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert lines["NB-SVM"].get_xdata().tolist() == COUNTS
    assert lines["NB-SVM"].get_ydata().tolist() == pytest.approx([100 * value for value in REACHED["nbsvm"]])
    assert lines["from scratch"].get_xdata().tolist() == COUNTS[1:]


def test_the_legend_has_room_for_names_of_several_bases() -> None:
    results = made_results()
    results.methods = [replace(each, title=f"{each.title} (lab-causal, lab-masked)") for each in results.methods]
    figure = draw_label_curve(results)
    figure.draw_without_rendering()
    legend, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert legend.x0 >= 0
    assert legend.x1 <= whole.width
    assert legend.y1 < figure.axes[0].get_window_extent().y0


def test_two_drawings_are_the_same_bytes() -> None:
    assert draw_plots(made_results()) == draw_plots(made_results())


@pytest.mark.parametrize("size", [1, 3, 15])
def test_any_number_of_classes_can_be_drawn(size: int) -> None:
    names = tuple(f"class {number} with a name that is rather long" for number in range(size))
    drawn = draw_plots(made_results(classes=names))["confusion-0"]
    assert drawn.count("class ") >= size
    assert ("900" in drawn) == (size <= 12)  # numbers only where there is room for them


def test_what_was_not_measured_is_not_drawn() -> None:
    results = made_results(seeds=1)
    results.counts = results.counts[-1:]
    results.curves, results.reliabilities = [], []
    assert set(draw_plots(results)) == {"confusion-0", "confusion-1"}


def test_a_picture_says_nothing_of_when_or_by_what_it_was_drawn() -> None:
    for svg in draw_plots(made_results()).values():
        assert svg.startswith("<svg ")
        assert not re.search(r"created with|<metadata|dc:date", svg, re.IGNORECASE)
        assert re.search(r'<svg [^>]*viewBox="', svg)
        assert not re.search(r'<svg [^>]*\b(width|height)="', svg)


def test_methods_of_one_kind_have_colours_of_their_own() -> None:
    results = made_results()
    own = next(each for each in results.methods if each.kind == "pretrained")
    more = [Method(f"pretrained:{name}", "pretrained", name, "", name) for name in ("a", "b", "c")]
    results.methods = [own, *more]
    colours = [colour_of(results, each) for each in results.methods]
    assert colours[0] == "pretrained"
    assert len(set(colours)) == 4
    results.methods = [*made_results().methods, *more]
    used = {colour_of(results, each) for each in made_results().methods}
    assert all(colour_of(results, each) not in used - {"pretrained"} for each in more), "no other kind's colour"
