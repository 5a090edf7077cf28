"""`rehead inspect`, as a user calls it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from rehead.model import LanguageModel, preset
from rehead.model.accounting import account, work
from rehead.pretrain.options import PretrainOptions
from rehead.runs.run import Run, save
from tests.model.conftest import alive, miniature
from tests.use.tiny_runs import a_run, printed, tiny_tokenizer

LAB = {
    "embedding": "10,000,200",
    "one layer": "242,000",
    "all layers": "968,000",
    "base": "10,968,200",
    "language-model head": "10,050,201",
    "language model": "21,018,401",
    "2-class head": "402",
    "classifier": "10,968,602",
}


def test_the_labs_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = printed(capsys, "inspect", "--preset", "lab", "--vocab", "50001", "--classes", "2")
    rows = {part: line for line in out.splitlines() for part in LAB if line.startswith(part + "  ")}
    assert rows.keys() == LAB.keys()
    for part, count in LAB.items():
        assert f" {count} " in rows[part], rows[part]
    assert "ntokens·nhid" in rows["embedding"]
    assert "50,001·200" in rows["embedding"]
    assert "47.6 %" in rows["embedding"]
    assert "38.1 MiB" in rows["embedding"]
    assert "exactly 21,018,401 (language model) and 10,968,602 (classifier)" in out
    assert err == ""


@pytest.mark.parametrize("name", ["lab", "small", "base", "bag"])
def test_json_gives_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", "--preset", name, "--vocab", "1234", "--classes", "7"]
    table, _ = printed(capsys, *arguments)
    out, _ = printed(capsys, *arguments, "--json")
    document = json.loads(out)
    config = preset(name, ntokens=1234)
    counted = account(config, config.classifier(7))
    assert [(row["part"], row["count"]) for row in document["parameters"]] == [
        (row.part, row.count) for row in counted.rows
    ]
    for row in document["parameters"]:
        line = next(line for line in table.splitlines() if line.strip().startswith(row["part"] + "  "))
        assert row["formula"] in line
        assert row["numbers"] in line
        assert f"{row['count']:,}" in line
        assert row["float32_bytes"] == 4 * row["count"]
        for whole, share in row["share"].items():
            assert share == pytest.approx(row["count"] / counted.total(whole))
    for whole in ("language model", "classifier"):
        parts = [row for row in document["parameters"] if row["level"] == "part" and whole in row["share"]]
        assert sum(row["count"] * row["times"] for row in parts) == counted.total(whole)
    for row, cost in zip(document["training_flops_per_token"], work(config, config.classifier(7)), strict=True):
        assert (row["objective"], row["body"], row["head"]) == (cost.objective, cost.body.value, cost.head.value)
        assert row["total"] == row["body"] + row["head"]
    assert document["workload"]["length"] == 256
    assert document["carries"] is None
    assert [row["objective"] for row in document["training_flops_per_token"]] == [
        "causal",
        "masked",
        "hybrid",
        "document",
        "bag",
        "classify",
    ]


def test_a_narrow_terminal_cuts_nothing() -> None:
    """In real terminals of these widths: every formula and number is there, folded perhaps, but whole."""
    program = "import fcntl, struct, sys, termios\nfrom rehead.cli import main\nfor columns in (60, 80, 100):\n"
    program += "    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))\n"
    program += "    assert main(['inspect', '--preset', 'lab']) == 0\n"
    command = shlex.join([sys.executable, "-c", program])
    done = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "…" not in done.stdout
    for figure in ("21,018,401", "10,968,602", "50,001·200"):
        assert done.stdout.count(figure) >= 3
    bare = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert max(map(len, bare.splitlines())) <= 100


def test_dials_can_be_turned(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capsys, "inspect", "--preset", "lab", "--nhead", "4")
    assert "exactly 21,018,401" in out
    out, _ = printed(capsys, "inspect", "--preset", "lab", "--nhid", "100", "--nlayers", "2", "--vocab", "10")
    assert out.startswith("preset lab: nhid 100, nlayers 2, nhead 2, nff 100, ntokens 10")


def test_the_preset_of_pretraining_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    preset_of_pretraining = PretrainOptions.__dataclass_fields__["preset"].default
    assert printed(capsys, "inspect")[0].startswith(f"preset {preset_of_pretraining}:")


def test_a_run_is_counted_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(a_run(), tmp_path / "run")
    out, _ = printed(capsys, "inspect", str(path))
    assert out.startswith(f"run {path}: nhid 8, nlayers 1, nhead 2, nff 8, ntokens 12, classes 2")
    assert "has a classifier head" in out


def pictures(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}


def test_pictures_of_a_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = printed(capsys, "inspect", "--preset", "lab", "--plots", str(tmp_path / "plots"))
    drawn = pictures(tmp_path / "plots")
    assert set(drawn) == {"mask.png", "mask.svg", "positions.png", "positions.svg"}
    assert all(name in err for name in drawn)
    for name, content in drawn.items():
        if name.endswith("png"):
            assert content.startswith(b"\x89PNG")
        else:
            ElementTree.fromstring(content)
    words = drawn["mask.svg"].decode()
    assert words.count("−∞") == 12 * 11 // 2 + 1  # one for each hidden look, and the title's
    assert "query position" in words


def test_two_drawings_are_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        printed(capsys, "inspect", "--preset", "lab", "--plots", str(tmp_path / name), "--quiet")
    assert pictures(tmp_path / "one") == pictures(tmp_path / "two")


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_attention_over_a_text(direction: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(alive(miniature("lab", nlayers=3), LanguageModel(tied=False)), tiny_tokenizer())
    path = save(run, tmp_path / "run")
    text = "a truly good film, a $x$"
    printed(capsys, "inspect", str(path), "--text", text, "--plots", str(tmp_path / "plots"), "--direction", direction)
    words = (tmp_path / "plots" / "attention.svg").read_text()
    for label in (
        "layer 1, head 1",
        "layer 3, head 2",
        "truly",
        "film",
        "<unk>".replace("<", "&lt;").replace(">", "&gt;"),
    ):
        assert label in words, label
    assert ("masked" in words) == (direction == "causal")


@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
def test_every_kind_of_positions_is_drawn_or_said_to_be_absent(
    positions: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(a_run(positions=positions), tmp_path / "run")
    _, err = printed(capsys, "inspect", str(path), "--plots", str(tmp_path / "plots"))
    assert (tmp_path / "plots" / "positions.png").exists() == (positions != "none")
    assert ("position encodings" in err) == (positions == "none")


def test_pictures_are_kept_unless_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mask.png").write_text("mine")
    arguments = ["inspect", "--preset", "lab", "--plots", str(tmp_path)]
    out, err = printed(capsys, *arguments, code=2)
    assert "exists already" in err
    assert "--overwrite" in err
    assert out == ""
    assert (tmp_path / "mask.png").read_text() == "mine"
    printed(capsys, *arguments, "--overwrite")
    assert (tmp_path / "mask.png").read_bytes().startswith(b"\x89PNG")


def wrong(tmp_path: Path) -> dict[str, tuple[list[str], str]]:
    run = str(save(a_run(), tmp_path / "run"))
    bag = str(save(Run(alive(miniature("bag")), tiny_tokenizer()), tmp_path / "bag"))
    wordless = str(save(Run(alive(miniature("lab"))), tmp_path / "wordless"))
    plots = ["--plots", str(tmp_path / "plots")]
    return {
        "no such run": (["nothing"], "nothing: no such run"),
        "a run and a preset": ([run, "--preset", "lab"], "--preset "),
        "a run and a vocabulary": ([run, "--vocab", "9"], "--vocab"),
        "a run and classes": ([run, "--classes", "3"], "--classes"),
        "a text without a run": (["--text", "a", *plots], "--text "),
        "a text without plots": ([run, "--text", "a"], "--plots DIR"),
        "a direction without a text": ([run, "--direction", "causal"], "--text"),
        "an empty text": ([run, "--text", "", *plots], "no tokens"),
        "no layers": ([bag, "--text", "a", *plots], "no layers"),
        "no tokenizer": ([wordless, "--text", "a", *plots], "no tokenizer"),
        "no vocabulary": (["--vocab", "0"], "ntokens=0"),
        "one class": (["--classes", "1"], "classes=1"),
        "no class": (["--classes", "0"], "classes=0"),
        "a run and a width": ([run, "--nhid", "8"], "--nhid"),
        "no length": (["--length", "0"], "--length=0"),
        "a file for a directory": (["--preset", "lab", "--plots", __file__], "test_inspect.py: "),
    }


def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, (arguments, said) in wrong(tmp_path).items():
        out, err = printed(capsys, "inspect", *arguments, code=2)
        assert err.startswith("rehead: error: "), name
        assert said in err, (name, err)
        assert err.count("\n") == 1, name
        assert out == "", name


def test_a_long_text_is_cut_and_the_picture_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(alive(miniature("lab", maxlen=100), LanguageModel(tied=False)), tiny_tokenizer())
    path = save(run, tmp_path / "run")
    printed(capsys, "inspect", str(path), "--text", "film " * 60, "--plots", str(tmp_path / "plots"))
    assert "the first 40 of 60 tokens" in (tmp_path / "plots" / "attention.svg").read_text()
