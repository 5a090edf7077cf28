"""Files on the page: rows as they are cut, labelled and given back."""

from __future__ import annotations

import csv
import io
import json
import threading
from typing import Any

import pytest

from rehead.use.labeller import Labeller
from tests.use.serve.page import Page
from tests.use.serve.running import classifier, wait_until

ROWS = [
    ["id", "text", "label"],
    ["1", 'a "good" film, really', "x"],
    ["2", "two\nlines", "y"],
    ["3", "", "z"],
    ["4", "x" * 1001, "w"],
    ["5", "🎬 café <b>", ""],
]


def written(rows: list[list[str]], **how: Any) -> str:
    out = io.StringIO()
    csv.writer(out, **how).writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize("how", [{}, {"lineterminator": "\n"}, {"delimiter": ";"}, {"delimiter": "\t"}])
def test_a_file_comes_back_labelled(how: dict[str, Any], page: Page) -> None:
    page.drop_file("films.csv", "\ufeff" + written(ROWS, **how))
    assert page.run("return document.getElementById('has-header').checked")
    assert page.run("return document.getElementById('column').selectedOptions[0].textContent") == "text"
    page.run("document.getElementById('start').click();")
    page.wait("!document.getElementById('download').hidden")
    assert page.run("return document.getElementById('download').download") == "films-labelled.csv"
    assert page.text("file-said") == "Done: 5 rows; 2 empty or too long, left without a label."
    found = list(csv.reader(io.StringIO(downloaded(page)), delimiter=how.get("delimiter", ",")))
    labeller = Labeller.of(classifier())
    assert found[0] == [*ROWS[0], "predicted_label", *(f"p_{name}" for name in labeller.names)]
    for mine, row in zip(found[1:], ROWS[1:], strict=True):
        assert mine[:3] == row
        if row[0] in "34":
            assert mine[3:] == [""] * 4
            continue
        given = labeller.probabilities([row[1]])
        assert mine[3] == (labeller.labels(given)[0] or [""])[0]
        assert [float(each) for each in mine[4:]] == pytest.approx(given[0].tolist(), abs=2e-6)


def downloaded(page: Page) -> str:
    """Read what the link would download."""
    page.run(
        """window.got = null; const link = document.getElementById('download');
        const reader = new FileReader(); reader.onload = () => { window.got = reader.result; };
        reader.readAsText(link.blob);"""
    )
    page.wait("window.got !== null")
    return str(page.run("return window.got"))


def test_a_file_without_names_of_columns(page: Page) -> None:
    page.drop_file("plain.csv", "a good film,3\na bad film,4\n")
    assert not page.run("return document.getElementById('has-header').checked")
    page.run("document.getElementById('start').click();")
    page.wait("!document.getElementById('download').hidden")
    found = list(csv.reader(io.StringIO(downloaded(page))))
    assert [row[:2] for row in found] == [["a good film", "3"], ["a bad film", "4"]]
    assert all(len(row) == 6 for row in found)


def test_a_long_file_is_sent_in_pieces_and_keeps_its_order(page: Page) -> None:
    rows = [["text"], *[[f"film {number} " + "good " * (number % 90)] for number in range(150)]]
    page.drop_file("long.csv", written(rows))
    page.run("document.getElementById('start').click();")
    page.wait("!document.getElementById('download').hidden")
    found = list(csv.reader(io.StringIO(downloaded(page))))
    assert [row[0] for row in found] == [row[0] for row in rows]
    labeller = Labeller.of(classifier())
    labels = [(each or [""])[0] for each in labeller.labels(labeller.probabilities([row[0] for row in rows[1:]]))]
    assert [row[1] for row in found[1:]] == labels


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('text\n"never closed\nand on', "Row 2: a quote is opened and not closed."),
        ("", "There is no row in this file, or its first one is too long."),
    ],
)
def test_what_is_wrong_with_a_file_is_said(content: str, said: str, page: Page) -> None:
    page.drop_file("bad.csv", content)
    page.run("if (!document.getElementById('file-form').hidden) document.getElementById('start').click();")
    page.wait("!document.getElementById('file-problem').hidden")
    assert page.text("file-problem") == said


def test_a_full_queue_is_waited_for(page: Page) -> None:
    """The server refuses, and is asked again."""
    lane = page.server.service.labels_lane
    room = lane.room
    lane.room = 0
    page.drop_file("films.csv", "text\na good film\n")
    page.run("document.getElementById('start').click();")
    wait_until(lambda: 'why="full"' in page.server.get("/metrics")[1])
    lane.room = room
    page.wait("!document.getElementById('download').hidden")
    assert "Done: 1 rows" in page.text("file-said")


def test_a_file_can_be_stopped(page: Page) -> None:
    lane, go = page.server.service.labels_lane, threading.Event()
    real = lane.compute
    lane.compute = lambda jobs: go.wait(10) and real(jobs)  # type: ignore[assignment,return-value]
    try:
        page.drop_file("films.csv", "text\n" + "a good film\n" * 50)
        page.run("document.getElementById('start').click();")
        wait_until(lambda: not lane.empty)
        page.run("document.getElementById('stop').click();")
        page.wait("document.getElementById('file-said').textContent.startsWith('Stopped')")
        assert not page.shown("download")
    finally:
        go.set()
        lane.compute = real
    assert not page.run("return document.getElementById('start').disabled")


CUTS = [
    ("a,b\nc,d\n", [["a", "b"], ["c", "d"]]),
    ("a,b\r\nc,d", [["a", "b"], ["c", "d"]]),
    ("a\rb\r\nc\n", [["a"], ["b"], ["c"]]),
    ('"a,\n""b""",c\n', [['a,\n"b"', "c"]]),
    ('"",\n,""\n', [["", ""], ["", ""]]),
    ("a,", [["a", ""]]),
    ("a,b\n\n\nc,d\n", [["a", "b"], ["c", "d"]]),
    ('"a" b,c\n', [["a b", "c"]]),
    ('a"b,c\n', [['a"b', "c"]]),
]


@pytest.mark.parametrize(("text", "rows"), CUTS)
def test_rows_are_cut_alike_wherever_the_pieces_end(text: str, rows: list[list[str]], page: Page) -> None:
    found = page.run(
        f"""const text = {json.dumps(text)}, all = [];
        for (let cut = 0; cut <= text.length; cut++) for (let other = cut; other <= text.length; other++) {{
          const rows = new window.rehead.Rows(","), got = [];
          got.push(...rows.read(text.slice(0, cut)), ...rows.read(text.slice(cut, other)));
          got.push(...rows.read(text.slice(other)), ...rows.read("", true));
          all.push(got);
        }}
        return all;"""
    )
    assert all(each == rows for each in found)
