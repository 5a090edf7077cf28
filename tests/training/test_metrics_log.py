"""`metrics.jsonl`: each line once, whatever was written after the checkpoint; and the curves drawn of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rehead.errors import UserError
from rehead.pretrain.run import run_pretraining
from rehead.training import curves
from rehead.training.metrics_log import MetricsLog, memory, read
from tests.training.running import broken_off, small


def test_lines_come_back_as_they_were_written(tmp_path: Path) -> None:
    record = MetricsLog(tmp_path / "metrics.jsonl", 0)
    record.write({"kind": "train", "step": 1, "loss": 0.1 + 0.2})
    record.write({"kind": "valid", "step": 1, "loss": float("nan"), "perplexity": float("inf")})
    lines = read(tmp_path / "metrics.jsonl")
    assert lines[0] == {"kind": "train", "step": 1, "loss": 0.1 + 0.2}
    assert lines[1] == {"kind": "valid", "step": 1, "loss": None, "perplexity": None}


def test_a_resumed_run_keeps_the_lines_of_its_checkpoint(tmp_path: Path) -> None:
    """Two phases meet in step 4: only their number tells which lines of step 4 the checkpoint knows."""
    path = tmp_path / "metrics.jsonl"
    record = MetricsLog(path, 0)
    for step in (0, 4, 4, 8):
        record.write({"kind": "valid", "step": step})
    with path.open("a") as file:
        file.write('{"kind": "train", "st')  # cut short by a crash
    assert [line["step"] for line in read(path)] == [0, 4, 4, 8]
    MetricsLog(path, 2).write({"kind": "train", "step": 5})
    assert [line["step"] for line in read(path)] == [0, 4, 5]
    MetricsLog(path, 0)
    assert path.read_text() == ""


def test_what_is_not_a_line_of_ours_ends_the_record(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for bad in ("[]", "3", '{"step": "x"}', "\0\0\0"):
        path.write_text(json.dumps({"step": 1}) + "\n" + bad + "\n" + json.dumps({"step": 2}) + "\n")
        assert read(path) == [{"step": 1}]


def test_a_record_that_cannot_be_written_is_the_users_to_mend(tmp_path: Path) -> None:
    record = MetricsLog(tmp_path / "metrics.jsonl", 0)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(UserError, match=r"metrics\.jsonl cannot be written: Is a directory"):
        record.write({"step": 1})


def test_memory_is_what_the_process_holds() -> None:
    assert 2**24 < memory() < 2**40


def test_curves_of_a_chain(text: Path, tmp_path: Path) -> None:
    """Both phases, every point of them, on the axes that say what they show."""
    run_pretraining(small(text, tmp_path / "run", objective="causal,masked", epochs=2))
    assert (tmp_path / "run" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "run" / "curves.svg").stat().st_size > 1000
    lines = read(tmp_path / "run" / "metrics.jsonl")
    left, right = curves.draw(tmp_path / "run" / "metrics.jsonl").axes
    assert left.get_title(loc="left") == "loss: causal, then masked"
    assert right.get_title(loc="left") == "held out: accuracy"
    wanted = [line["loss"] for line in lines if line["kind"] == "valid" and line["objective"] == "masked"]
    assert wanted in [list(each.get_ydata()) for each in left.lines]
    border = max(line["tokens"] for line in lines if line["objective"] == "causal") / 1e6
    assert [border, border] in [list(each.get_xdata()) for each in right.lines]


def test_curves_of_a_run_that_has_hardly_begun(tmp_path: Path) -> None:
    MetricsLog(tmp_path / "metrics.jsonl", 0)
    curves.draw(tmp_path / "metrics.jsonl")
    record = MetricsLog(tmp_path / "metrics.jsonl", 0)
    record.write({"kind": "valid", "objective": "document", "step": 0, "tokens": 0, "seconds": 0, "loss": None})
    curves.draw(tmp_path / "metrics.jsonl")


def test_lines_that_a_crash_took_are_not_counted(text: Path, tmp_path: Path) -> None:
    """Else the next resumed run would keep as many lines too many, and steps would be there twice."""
    out = tmp_path / "run"
    broken_off(small(text, out, checkpoint_steps=1, validations=0, epochs=2), 32)
    (out / "metrics.jsonl").write_text("")  # three lines, after 31 steps
    broken_off(small(text, out, checkpoint_steps=33, validations=0, epochs=2, resume=True), 12)
    run_pretraining(small(text, out, validations=0, epochs=2, resume=True))
    assert [line["step"] for line in read(out / "metrics.jsonl")] == [40, 48]


def test_a_run_of_one_step_knows_its_rate(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_pretraining(small(text, tmp_path / "run", epochs=None, tokens=100, quiet=False))
    (line,) = (line for line in read(tmp_path / "run" / "metrics.jsonl") if line["kind"] == "train")
    assert line["tokens_per_second"] > 0
    (last,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("causal: 100 tokens in "))
    assert "tokens/s" not in last  # a budget in tokens has it in the lines before
