"""Labels that may not mean what they say are taken as they are spelled, and named."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rehead.errors import UserError
from rehead.text.documents import LabelledData, ReadOptions
from rehead.text.label_spelling import same_label
from rehead.text.labelled import label_name, read_examples

ALIKE = {
    "case": ("Pos", "pos", "differ only in case"),
    "numbers": ("1", "1.0", "spellings of one value"),
    "numbers with zeros": ("1.5", "01.50", "spellings of one value"),
    "booleans": ("true", "1", "spellings of one value"),
    "booleans of Python": ("True", "true", "differ only in case"),
    "accents": ("caf\u00e9", "cafe\u0301", "accents are encoded in two ways"),
    "width": ("\uff11", "1", "differ only in case or in variants"),
    "a zero-width space": ("pos", "pos\u200b", "invisible"),
    "two spaces": ("very good", "very  good", "spaces"),
    "a no-break space": ("very good", "very\u00a0good", "spaces"),
}


def table(path: Path, labels: list[str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *((f"text {n}", label) for n, label in enumerate(labels))])
    return path


def read(path: Path, **options: bool) -> LabelledData:
    return read_examples([str(path)], ReadOptions(**options), check=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(ALIKE))
def test_two_spellings_of_one_name_are_named(name: str, tmp_path: Path) -> None:
    common, rare, said = ALIKE[name]
    data = read(table(tmp_path / "a.csv", [common, "other", common, rare, common, "other"]))
    assert {common, rare} <= set(data.names), "they stay what they are"
    [note] = data.notes
    assert "a.csv line 5" in note, note
    assert "(3)" in note, note
    assert "(1)" in note, note
    assert said in note, note
    assert "\u200b" not in note


@pytest.mark.parametrize(
    "labels", [["a", "b"], ["A", "B"], ["1", "2.0"], ["1.0", "-1.0"], ["true", "0"], ["nan", "inf"]]
)
def test_other_names_are_not_mentioned(labels: list[str], tmp_path: Path) -> None:
    assert read(table(tmp_path / "a.csv", labels * 3)).notes == []


def test_of_very_many_spellings_some_are_named(tmp_path: Path) -> None:
    names = [f"Name {number}" for number in range(20)]
    data = read(table(tmp_path / "a.csv", [*names, *map(str.lower, names)]))
    assert len(data.notes) == 6
    assert data.notes[-1].startswith("15 more")


def test_one_bar_among_many_labels_is_named(tmp_path: Path) -> None:
    labels = ["pos", "neg", "new"] * 101
    labels[41] = "neg|pos"
    data = read(table(tmp_path / "a.csv", labels))
    assert data.multilabel
    [note] = data.notes
    assert "a.csv line 43: 1 of 303 labels has a |" in note
    assert "--single-label" in note
    single = read(table(tmp_path / "a.csv", labels), single_label=True)
    assert not single.multilabel
    assert single.notes == []


def test_bars_in_many_labels_and_lists_are_no_accident(tmp_path: Path) -> None:
    assert read(table(tmp_path / "a.csv", ["a|b", "a", "b"] * 5)).notes == []
    (tmp_path / "a.jsonl").write_text(
        "\n".join(json.dumps({"text": f"t {n}", "label": ["a", "b"] if n == 7 else ["a"]}) for n in range(50))
    )
    assert read(tmp_path / "a.jsonl").notes == []


def test_a_key_twice_in_one_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "x"}\n{"text": "b", "label": "x", "label": "y"}\n')
    with pytest.raises(UserError, match=r"a\.jsonl line 2: the key 'label' is there twice"):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "values", [[1, 1.0, 2], [1.0, 2.0], [1.5, 2], ["1", 1], ["Pos", "pos"], ["", 0], [10**20, 1e20]]
)
def test_csv_jsonl_and_parquet_agree(values: list[object], tmp_path: Path) -> None:
    values = [value for value in values if value != ""]
    written = table(tmp_path / "a.csv", [str(value) for value in values])
    (tmp_path / "a.jsonl").write_text(
        "\n".join(json.dumps({"text": f"text {n}", "label": value}) for n, value in enumerate(values))
    )
    assert read(tmp_path / "a.jsonl").labels == read(written).labels
    assert [note.partition(":")[2] for note in read(tmp_path / "a.jsonl").notes] == [
        note.partition(":")[2] for note in read(written).notes
    ]
    if len({type(value) for value in values}) == 1 and not isinstance(values[0], int):
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]

        texts = [f"text {n}" for n in range(len(values))]
        pyarrow.parquet.write_table(pyarrow.table({"text": texts, "label": values}), tmp_path / "a.parquet")
        assert read(tmp_path / "a.parquet").labels == read(written).labels


def test_a_label_of_another_spelling_is_recognised() -> None:
    assert same_label("POS", ["neg", "pos"]) == "pos"
    assert same_label("1", ["0.0", "1.0"]) == "1.0"
    assert same_label("new", ["neg", "pos"]) is None


SPELLINGS = st.one_of(
    st.text(min_size=1, max_size=8),
    st.integers(-5, 5).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(str),
    st.sampled_from(
        ["true", "True", "FALSE", "1", "1.0", "1e0", "+1", "①", "½", "ß", "SS", "ﬁ", "İ", "i\u0307", "\u200d"]
    ),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(labels=st.lists(SPELLINGS, min_size=1, max_size=12))
def test_any_spelling_is_kept_and_noted_in_one_line(labels: list[str], tmp_path: Path) -> None:
    try:
        names = [label_name(label, "here") for label in labels]
    except UserError:
        return
    names = [name for name in names if name]
    lines = [json.dumps({"text": f"t {n}", "label": [name]}) for n, name in enumerate(names)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    if names:
        data = read(tmp_path / "a.jsonl")
        assert [label for (label,) in data.labels] == names
        assert all(note.isprintable() for note in data.notes)
