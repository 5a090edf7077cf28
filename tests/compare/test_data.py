"""The data of a comparison: what is left of each class once test documents are taken out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rehead.compare.data import prepare
from rehead.compare.options import CompareOptions
from rehead.errors import UserError
from tests.compare.conftest import reviews


def write(path: Path, rows: list[tuple[str, str]]) -> list[str]:
    path.write_text("\n".join(json.dumps({"text": text, "label": label}) for text, label in rows))
    return [str(path)]


def test_a_class_of_near_duplicates_is_explained(tmp_path: Path) -> None:
    """Six examples, of which one or two are held out as a test set: the others are their near copies."""
    data = reviews(60)
    rows = [(text, label) for text, (label,) in zip(data.texts, data.labels, strict=True)]
    copied = "an odd film of a ghost that walks through the old house by the river every single night of the year"
    rows += [(f"{copied} {number}", "odd") for number in range(6)]
    options = CompareOptions(labelled=write(tmp_path / "a.jsonl", rows), base=[], out=tmp_path / "out", quiet=True)
    with pytest.raises(UserError, match="the class 'odd' has") as error:
        prepare(options, [])
    assert "near copies of test documents" in str(error.value)
    assert "only example" not in str(error.value)


def test_labels_that_look_alike_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = reviews(60)
    rows = [
        (text, label.title() if number < 20 else label)
        for number, (text, (label,)) in enumerate(zip(data.texts, data.labels, strict=True))
    ]
    options = CompareOptions(labelled=write(tmp_path / "a.jsonl", rows), base=[], out=tmp_path / "out", quiet=True)
    prepare(options, [])
    assert "'good' (20) and 'Good' (10)" in capsys.readouterr().err
