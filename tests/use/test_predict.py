"""`rehead predict` from files to files: what the classifier says, row by row."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rehead.cli import main
from rehead.runs.run import save
from rehead.use import predict as predicting
from rehead.use.explain import explain
from rehead.use.labeller import Labeller
from tests.faults import faulty_disk, on
from tests.training.running import end_of, fork, needs_fork
from tests.use.tiny_classifier import some_texts, tiny_classifier

Table = list[dict[str, str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tiny_classifier(), tmp_path_factory.mktemp("run") / "clf"))


def table(path: Path) -> Table:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def write(path: Path, texts: list[str]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text"])
        rows.writerows(enumerate(texts))
    return str(path)


def test_every_row_gets_what_the_classifier_says(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "GROUP_TEXTS", 7)
    texts = some_texts(50)
    given = write(tmp_path / "in.csv", texts)
    assert main(["predict", run, given, "--out", str(tmp_path / "out.csv"), "--quiet"]) == 0
    rows = table(tmp_path / "out.csv")
    assert [(row["id"], row["text"]) for row in rows] == [(str(n), text) for n, text in enumerate(texts)]
    labeller = Labeller.open(run)
    expected = labeller.probabilities(texts)
    found = np.array([[float(row[f"p_{name}"]) for name in labeller.names] for row in rows])
    assert np.abs(found - expected).max() < 2e-6
    assert [row["label"] for row in rows] == [labeller.names[each] for each in expected.argmax(1)]
    assert len({row["label"] for row in rows}) == 3


def test_all_formats_say_the_same(run: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    texts = some_texts(20)
    write(tmp_path / "a.csv", texts)
    (tmp_path / "a.tsv.gz").write_bytes(
        gzip.compress("\n".join(["id\ttext", *(f"{n}\t{text}" for n, text in enumerate(texts))]).encode())
    )
    lines = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    columns = {"id": [str(n) for n in range(20)], "text": texts}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    outs = []
    for name in ("a.csv", "a.tsv.gz", "a.jsonl", "a.parquet"):
        assert main(["predict", run, str(tmp_path / name), "--format", "csv", "--quiet"]) == 0
        outs.append(capfdbinary.readouterr().out)
    assert len(set(outs)) == 1
    assert main(["predict", run, str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "o.jsonl.gz"), "--quiet"]) == 0
    objects = [json.loads(line) for line in gzip.decompress((tmp_path / "o.jsonl.gz").read_bytes()).splitlines()]
    for row, each in zip(csv.DictReader(io.StringIO(outs[0].decode())), objects, strict=True):
        assert [each[name] for name in ("id", "text", "label")] == [row[name] for name in ("id", "text", "label")]
        assert each["probabilities"] == {name: float(row[f"p_{name}"]) for name in ("bad", "fair", "good")}


def test_plain_text_from_standard_input(run: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rehead", "predict", run, "--quiet"]
    done = subprocess.run(command, input=b"a good film\n\na bad book\n", capture_output=True, check=True)
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert [row["text"] for row in rows] == ["a good film", "", "a bad book"]
    assert [bool(row["label"]) for row in rows] == [True, False, True]
    assert done.stderr == b""


def test_empty_texts_keep_their_rows(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = write(tmp_path / "in.csv", ["good film", "", "  ", "bad film"])
    out = tmp_path / "out.csv"
    assert main(["predict", run, given, "--out", str(out)]) == 0
    assert [bool(row["p_good"]) for row in table(out)] == [True, False, False, True]
    assert "(empty text) 2" in capsys.readouterr().out
    assert main(["predict", run, given, "--out", str(out), "--overwrite", "--skip-empty"]) == 0
    assert [row["id"] for row in table(out)] == ["0", "3"]
    assert "empty text: 2" in capsys.readouterr().err


def test_no_row_gives_the_header(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = write(tmp_path / "in.csv", [])
    assert main(["predict", run, given, "--out", str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").read_text() == "id,text,label,p_bad,p_fair,p_good\n"
    assert "out.csv: no text" in capsys.readouterr().out


def test_it_abstains_below_the_threshold(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, out = write(tmp_path / "in.csv", some_texts(60)), tmp_path / "out.csv"
    assert main(["predict", run, given, "--out", str(out), "--threshold", "0.6"]) == 0
    rows = table(out)
    likeliest = [max(float(row[f"p_{name}"]) for name in ("bad", "fair", "good")) for row in rows]
    assert [row["label"] == "unsure" for row in rows] == [each < 0.6 for each in likeliest]
    assert 0 < sum(each < 0.6 for each in likeliest) < 60
    assert f"unsure {sum(each < 0.6 for each in likeliest)}" in capsys.readouterr().out
    arguments = ["predict", run, given, "--out", str(out), "--overwrite", "--threshold", "0.6", "--unsure"]
    assert main([*arguments, "?"]) == 0
    assert {row["label"] for row in table(out)} == {"bad", "fair", "good", "?"}
    assert main([*arguments, "fair"]) == 2
    assert "'fair' is the name of a class" in capsys.readouterr().err


def test_a_csv_for_a_spreadsheet(run: str, tmp_path: Path) -> None:
    """Without the option, a text that looks like a formula is written as it was read."""
    (tmp_path / "in.csv").write_text("id,text\n1,=cmd()\n")
    command = ["predict", run, str(tmp_path / "in.csv"), "--out", str(tmp_path / "o.csv"), "--overwrite", "--quiet"]
    for more, cell in (([], "=cmd()"), (["--spreadsheet"], "'=cmd()")):
        assert main([*command, *more]) == 0
        assert (tmp_path / "o.csv").read_text().splitlines()[1].startswith(f"1,{cell},")


def test_several_labels(tmp_path: Path) -> None:
    multilabel = tiny_classifier(multilabel=True)
    multilabel.details["thresholds"] = [0.3, 0.5, 0.7]
    run = str(save(multilabel, tmp_path / "clf"))
    given = write(tmp_path / "in.csv", some_texts(40))
    assert main(["predict", run, given, "--out", str(tmp_path / "o.jsonl"), "--quiet"]) == 0
    seen = set()
    for line in (tmp_path / "o.jsonl").read_text().splitlines():
        row = json.loads(line)
        shares = row["probabilities"]
        assert row["labels"] == [
            name for name, least in zip(shares, [0.3, 0.5, 0.7], strict=True) if shares[name] >= least
        ]
        seen.add(len(row["labels"]))
    assert len(seen) > 1


def test_a_label_column_of_the_input_stays(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.csv").write_text("text,label\ngood film,mine\n")
    assert main(["predict", run, str(tmp_path / "in.csv"), "--out", str(tmp_path / "out.csv")]) == 0
    (row,) = table(tmp_path / "out.csv")
    assert row["label"] == "mine"
    assert row["predicted_label"] in ("bad", "fair", "good")
    assert "label is predicted_label" in capsys.readouterr().err


def test_words_with_their_weights(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["good film", "", "a bad <b> book"]
    given = write(tmp_path / "in.csv", texts)
    why = explain(Labeller.open(run), [texts[0], texts[2]])
    assert main(["predict", run, given, "--explain", "--out", str(tmp_path / "o.jsonl"), "--quiet"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert rows[1]["explanation"] is None
    for row, expected in zip([rows[0], rows[2]], why, strict=True):
        assert row["explanation"]["label"] == expected.label == row["label"]
        words = row["explanation"]["words"]
        assert [(each["word"], each["begin"]) for each in words] == [
            (expected.text[each.begin : each.end], each.begin) for each in expected.words
        ]
        assert np.allclose([each["weight"] for each in words], [each.weight for each in expected.words], atol=1e-6)
    assert main(["predict", run, given, "--explain", "--out", str(tmp_path / "o.csv"), "--quiet"]) == 0
    assert [bool(row["explanation"]) for row in table(tmp_path / "o.csv")] == [True, False, True]
    assert table(tmp_path / "o.csv")[0]["explanation"].startswith(why[0].label + ";")
    capsys.readouterr()
    assert main(["predict", run, given, "--explain", "--quiet"]) == 0
    assert capsys.readouterr().out.count(" %") == 2


def test_a_page_of_explanations(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, out = write(tmp_path / "in.csv", ["good film", "", "a bad <b> book"]), tmp_path / "o.html"
    assert main(["predict", run, given, "--out", str(out)]) == 2
    assert "Add --explain" in capsys.readouterr().err
    assert main(["predict", run, given, "--explain", "--out", str(out)]) == 0
    assert out.read_text().count("<article>") == 2
    assert main(["predict", run, given, "--explain", "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["predict", run, given, "--explain", "--out", str(out), "--resume"]) == 2
    assert "--resume" in capsys.readouterr().err
    (tmp_path / "torn.csv").write_text("id,text\n1,x\n2\n")
    assert main(["predict", run, str(tmp_path / "torn.csv"), "--explain", "--out", str(tmp_path / "t.html")]) == 2
    assert not list(tmp_path.glob("t.html*"))


@pytest.mark.parametrize("out", [None, "o.html"])
def test_explanations_abstain_and_count_as_the_table_does(
    out: str | None, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = ["good film", "", *some_texts(20)]
    command = ["predict", run, write(Path("in.csv"), texts), "--threshold", "0.6"]
    assert main([*command, "--out", "o.csv"]) == 0
    counted = capsys.readouterr().out.removeprefix("o.csv: ")
    assert "unsure " in counted
    assert "(empty text) 1" in counted
    assert main([*command, "--explain", *(["--out", out] if out else [])]) == 0
    said = capsys.readouterr()
    assert (said.out if out else said.err).endswith(counted)
    shown = Path(out).read_text() if out else said.out
    labels = [row["label"] for row in table(Path("o.csv")) if row["label"]]
    assert re.findall(r"^(?:.*<h2>)?(\w+)(?:,|  )[^\n]* %", shown, re.MULTILINE) == labels
    assert shown.count("unsure, explained: ") == labels.count("unsure")


@pytest.mark.parametrize("out", [None, "o.html", "o.csv", "o.jsonl"])
def test_the_label_to_explain_can_be_named(
    out: str | None, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = some_texts(9)
    command = ["predict", run, write(Path("in.csv"), texts), "--explain", "--explain-label", "fair", "--quiet"]
    assert main([*command, *(["--out", out] if out else [])]) == 0
    shown = Path(out).read_text() if out else capsys.readouterr().out
    labeller = Labeller.open(run)
    given = [labels[0] for labels in labeller.labels(labeller.probabilities(texts)) if labels]
    assert len(set(given)) > 1
    if out == "o.jsonl":
        rows = [json.loads(line) for line in shown.splitlines()]
        assert [(row["label"], row["explanation"]["label"]) for row in rows] == [(each, "fair") for each in given]
        weights = [[word["weight"] for word in row["explanation"]["words"]] for row in rows]
        expected = [[word.weight for word in each.words] for each in explain(labeller, texts, label="fair")]
        assert all(np.allclose(one, other, atol=1e-6) for one, other in zip(weights, expected, strict=True))
    elif out == "o.csv":
        assert [(row["label"], row["explanation"].split(";")[0]) for row in table(Path(out))] == [
            (each, "fair") for each in given
        ]
    else:
        named = [f"{each}, explained: fair" if each != "fair" else "fair" for each in given]
        assert re.findall(r"^(?:.*<h2>)?(\w+(?:, explained: \w+)?)  [\d.]+ %", shown, re.MULTILINE) == named


def test_labels_cannot_be_asked_for(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["predict", "--help"])
    said = capsys.readouterr().out
    assert "--text-column" in said
    assert "--label-column" not in said
    assert "--single-label" not in said


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("id,text\n1,good film\n", "csv"),
        ('"id"\t"Review"\n1\tgood film\n', "tsv"),
        ('{"text": "good film"}\n', "jsonl"),
        ("a good film, a text\n", None),
        ("", None),
    ],
)
def test_a_table_on_standard_input_is_not_taken_for_text_in_silence(
    given: str, kind: str | None, run: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def said(*more: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        assert main(["predict", run, "-", *more]) == 0
        return capfd.readouterr().err

    note = f"its first line looks like {kind}. If it is, add --input-format {kind}"
    assert (note in said()) == (kind is not None)
    assert "looks like" not in said("--quiet")
    assert kind is None or "looks like" not in said("--input-format", kind)


@needs_fork
@pytest.mark.parametrize("more", [["--explain", "--out", "o.html"], ["--most-uncertain", "1", "--out", "o.csv"]])
def test_what_cannot_be_gone_on_with_is_begun_anew(
    more: list[str], run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After kill -9 in the middle of the writing."""
    monkeypatch.chdir(tmp_path)
    command = ["predict", run, write(Path("in.csv"), some_texts(3)), "--quiet", *more]

    def killed() -> int:
        with faulty_disk(tmp_path, on(f"{more[-1]}.partial", "rename"), "kill"):
            return main(command)

    assert end_of(fork(killed, tmp_path.with_name("killed.log"))) == -signal.SIGKILL
    assert Path(f"{more[-1]}.partial").stat().st_size
    assert main(command) == 0
    assert sorted(each.name for each in Path().iterdir()) == ["in.csv", more[-1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.csv", "--threshold", "1.5"], "--threshold 1.5"),
        (["in.csv", "--resume"], "Name it with --out"),
        (["in.csv", "--spreadsheet", "--format", "jsonl"], "--spreadsheet is for csv"),
        (["in.csv", "--resume", "--overwrite", "--out", "o.csv"], "Give one"),
        (["in.csv", "--explain-label", "good"], "Add --explain"),
        (["in.csv", "--explain", "--explain-label", "grand"], "--explain-label grand: choose one of bad, fair, good"),
        (["in.csv", "--out", "in.csv", "--overwrite"], "in.csv is the input file"),
        (["in.csv", "--out", "o.xlsx"], "--out o.xlsx"),
        (["in.csv", "--text-column", "words"], "no column 'words'. There are: id, text"),
        (["nowhere.csv"], "no such file"),
        (["in.csv", "--out", "there.csv"], "there.csv exists already"),
        (["in.csv", "--out", "o.csv", "--resume"], "nothing to resume"),
        (["torn.csv", "--out", "o.csv"], "torn.csv line 3: 1 field, but the header names 2"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str],
    message: str,
    run: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("in.csv"), ["good film"])
    Path("there.csv").write_text("mine")
    Path("torn.csv").write_text("id,text\n1,x\n2\n")
    assert main(["predict", run, *arguments, "--quiet"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert Path("there.csv").read_text() == "mine"
    assert sorted(each.name for each in Path().iterdir()) == ["in.csv", "there.csv", "torn.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["txt", "csv", "jsonl"])
def test_memory_does_not_grow_with_the_input(kind: str, run: str, tmp_path: Path) -> None:
    """Peak memory of the process, on an input and on one four times as long."""
    code = """
import resource, sys
from rehead.cli import main
assert main(sys.argv[1:]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
    peaks = []
    texts = [" ".join([text] * 8) for text in some_texts(4_000)]
    rows = [json.dumps({"id": 7, "text": text}) if kind == "jsonl" else f"7,{text}" for text in texts]
    for times in (5, 20):
        given, out = tmp_path / f"{times}.{kind}", tmp_path / f"{times}-labelled.csv"
        with given.open("w") as file:
            file.write("id,text\n" if kind == "csv" else "")
            for _ in range(times):
                file.writelines(f"{row}\n" for row in rows)
        command = ["predict", run, str(given), "--out", str(out), "--quiet"]
        done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
        peaks.append(int(done.stderr))
        with out.open() as file:
            assert sum(1 for _ in file) == 4_000 * times + 1
    assert given.stat().st_size > 18_000_000
    assert peaks[1] < peaks[0] + 10_000, peaks  # kilobytes; the texts of the larger input alone take 14,000 more
