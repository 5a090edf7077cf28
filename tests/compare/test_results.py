"""`results.json`: out and in again, and what is not one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rehead.compare.page import render
from rehead.compare.results import load_results, to_json
from rehead.disk import write_json
from rehead.errors import DamagedError
from tests.compare.made_results import made_results


def test_out_and_in_again(tmp_path: Path) -> None:
    results = made_results()
    write_json(tmp_path / "results.json", to_json(results))
    again = load_results(tmp_path / "results.json")
    assert again == results
    assert render(again, {}) == render(results, {})


def change(value: dict[str, Any], path: str, to: object) -> None:
    *way, last = path.split(".")
    for step in way:
        value = value[int(step)] if isinstance(value, list) else value[step]
    value[last] = to


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("format", 2),
        ("answer", "yes"),
        ("scores.0.accuracy.mean", "high"),
        ("scores.0.accuracy", None),
        ("methods.0.kind", "magic"),
        ("guards.opened", True),
        ("data.extra", 1),
    ],
)
def test_what_is_not_one_is_refused_in_a_line(tmp_path: Path, path: str, to: object) -> None:
    value = json.loads(json.dumps(to_json(made_results())))
    change(value, path, to)
    write_json(tmp_path / "results.json", value)
    with pytest.raises(DamagedError, match=r"results\.json: not .*Compare again"):
        load_results(tmp_path / "results.json")


def test_the_headline_is_not_chosen_by_its_score() -> None:
    results = made_results(ahead=-0.2)
    assert results.ours is not None
    assert results.ours.kind == "recipe"
    best = results.best([each.kind for each in results.methods])
    assert best is not None
    assert best.method != "recipe"
