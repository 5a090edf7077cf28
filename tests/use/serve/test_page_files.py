"""Files on the page: rows as they are cut, labelled and given back."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rehead.errors import UserError
from rehead.text.documents import ReadOptions
from rehead.text.records import Records
from rehead.use.labeller import Labeller
from rehead.use.predictions import Layout, Prediction
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
    assert page.text("file-said") == "Done: 5 rows; 2 empty or too long, without a label."
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
        ('text\n"never closed\nand on', "Line 2: .*quote.* not closed"),
        (
            'text\n\n"good" film\n',
            "Line 3: .*quote",
        ),
        (
            "a good film,3\nbad\n",
            "Line 2: 1 field, but .* 2.*comma",
        ),
        ("", "empty"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(content: str, said: str, page: Page) -> None:
    page.drop_file("bad.csv", content)
    page.run("if (!document.getElementById('file-form').hidden) document.getElementById('start').click();")
    page.wait("!document.getElementById('file-problem').hidden")
    assert re.search(said, page.text("file-problem"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("films.csv", "id,text\n1,fine\n2,great, really\n"),
        ("films.csv", 'id,text\r\n\r\n1,"two\nlines"\r\n2\r\n'),
        ("films.tsv", "id\ttext\n1\tfine, really\n2\ta\tb\n"),
    ],
)
def test_a_row_of_another_width_is_refused_as_by_predict(name: str, content: str, page: Page, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode())
    with pytest.raises(UserError) as refused:
        list(Records(str(tmp_path / name), ReadOptions()))
    page.drop_file(name, content)
    page.run("document.getElementById('start').click();")
    page.wait("!document.getElementById('file-problem').hidden")
    said = str(refused.value).removeprefix(str(tmp_path / name))
    assert re.findall(r"\d+", page.text("file-problem")) == re.findall(r"\d+", said)  # line, fields found and expected
    assert not page.shown("download")


def test_a_text_file_has_a_text_in_each_line(page: Page, tmp_path: Path) -> None:
    """Rows as `rehead predict` reads and writes them."""
    content = '\n"a good" film, really\n\nid;text\r\n bad\rtext\n  \n\n'
    (tmp_path / "films.txt").write_bytes(content.encode())
    page.drop_file("films.txt", content)
    assert not page.shown("table")
    page.run("document.getElementById('start').click();")
    page.wait("!document.getElementById('download').hidden")
    assert page.run("return document.getElementById('download').download") == "films-labelled.csv"
    labeller = Labeller.of(classifier())
    records = Records(str(tmp_path / "films.txt"), ReadOptions())
    layout = Layout("csv", records.columns(), labeller.names, labeller.multilabel)
    expected = layout.header()
    for record in records:
        given = labeller.probabilities([record.text])
        said = Prediction(labeller.labels(given)[0], given[0].tolist()) if record.text else Prediction(None, None)
        expected += layout.row(record, said)
    for mine, row in zip(downloaded(page).split("\n"), expected.split("\n"), strict=True):
        assert re.sub(r"0\.\d{6}", "P", mine) == re.sub(r"0\.\d{6}", "P", row)
        shares = [[float(each) for each in re.findall(r"0\.\d{6}", line)] for line in (mine, row)]
        assert shares[0] == pytest.approx(shares[1], abs=2e-6)


def test_a_full_queue_is_waited_for(page: Page) -> None:
    """The server refuses, and is asked again."""
    worker = page.server.service.label_worker
    capacity = worker.capacity
    worker.capacity = 0
    page.drop_file("films.csv", "text\na good film\n")
    page.run("document.getElementById('start').click();")
    wait_until(lambda: 'why="full"' in page.server.get("/metrics")[1])
    worker.capacity = capacity
    page.wait("!document.getElementById('download').hidden")
    assert "Done: 1 rows" in page.text("file-said")


@contextmanager
def held_up(page: Page) -> Iterator[None]:
    """Have the page label a file that gets no answer before this ends."""
    worker, go = page.server.service.label_worker, threading.Event()
    real = worker.compute
    worker.compute = lambda jobs: go.wait(10) and real(jobs)  # type: ignore[assignment,return-value]
    try:
        page.drop_file("films.csv", "text\n" + "a good film\n" * 50)
        page.run("document.getElementById('start').click();")
        wait_until(lambda: not worker.idle)
        yield
    finally:
        go.set()
        worker.compute = real


def test_a_file_can_be_stopped(page: Page) -> None:
    with held_up(page):
        page.run("document.getElementById('stop').click();")
        page.wait("document.getElementById('file-said').textContent.startsWith('Stopped')")
        assert not page.shown("download")
    assert not page.run("return document.getElementById('start').disabled")
    assert page.focus() == "start"


def test_who_has_gone_on_typing_is_not_disturbed_when_a_file_is_done(page: Page) -> None:
    with held_up(page):
        assert page.focus() == "stop"
        page.run("document.getElementById('text').focus();")
    page.wait("!document.getElementById('download').hidden && !document.getElementById('start').disabled")
    assert page.focus() == "text"


def test_who_waits_for_a_file_finds_it_at_hand(page: Page) -> None:
    with held_up(page):
        pass
    page.wait("!document.getElementById('download').hidden && !document.getElementById('start').disabled")
    assert page.focus() == "download"


def test_one_file_is_labelled_at_a_time(page: Page) -> None:
    with held_up(page):
        page.drop_file("others.csv", "text\na bad film\n")
        assert page.run("return document.getElementById('csv').disabled")
    page.wait("!document.getElementById('download').hidden")
    assert page.text("file-name").startswith("films.csv")
    assert downloaded(page).count("a good film") == 50


CUTS = [
    ("a,b\nc,d\n", [["a", "b"], ["c", "d"]]),
    ("a,b\r\nc,d", [["a", "b"], ["c", "d"]]),
    ("a\rb\r\nc\n", [["a"], ["b"], ["c"]]),
    ('"a,\n""b""",c\n', [['a,\n"b"', "c"]]),
    ('"",\n,""\n', [["", ""], ["", ""]]),
    ("a,", [["a", ""]]),
    ("a,b\n\n\nc,d\n", [["a", "b"], ["c", "d"]]),
    ('a\n""\n\nb', [["a"], [""], ["b"]]),
    ('a"b,c\n', [['a"b', "c"]]),
]


LINES = ('a, "b"\n\n c\r\n \rd\n\n\n', [['a, "b"'], [""], [" c"], [""], ["d"]])


@pytest.mark.parametrize(("delimiter", "text", "rows"), [*((",", *each) for each in CUTS), ("", *LINES)])
def test_rows_are_cut_alike_wherever_the_pieces_end(
    delimiter: str, text: str, rows: list[list[str]], page: Page
) -> None:
    found = page.run(
        f"""const text = {json.dumps(text)}, all = [];
        for (let cut = 0; cut <= text.length; cut++) for (let other = cut; other <= text.length; other++) {{
          const rows = new window.rehead.Rows({delimiter!r}), got = [];
          got.push(...rows.read(text.slice(0, cut)), ...rows.read(text.slice(cut, other)));
          got.push(...rows.read(text.slice(other)), ...rows.read("", true));
          all.push(got);
        }}
        return all;"""
    )
    assert all(each == rows for each in found)
