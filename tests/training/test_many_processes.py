"""Two processes under torchrun do what one does: replicated and sharded, resumed on another number of them, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import rehead
from rehead.errors import UserError
from rehead.pretrain.run import run_pretraining
from rehead.training import checkpoint
from tests.training.running import broken_off, environment, left, metrics, shaped, small, torchrun, words

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.skipif(os.name == "nt", reason="gloo and /proc")]

PLAIN: dict[str, Any] = {"dropout": 0.0}
GRAMS: dict[str, Any] = {"dropout": 0.0, "nbuckets": 64}
LONG: dict[str, Any] = {"epochs": 50 / 24, "nlayers": 2, "dials": PLAIN}  # 50 steps
SHARD: dict[str, Any] = {"shard": True, "nlayers": 2}

# What two processes do. `one` is what one process does instead; where it says nothing, the same.
CASES: dict[str, dict[str, Any]] = {
    "causal": {**LONG},
    "masked": {"objective": "masked", "next_sentence": True, "dials": PLAIN},
    "hybrid": {"objective": "hybrid", "dials": PLAIN},
    "mixed": {"objective": "causal+masked", "dials": PLAIN},
    "chain": {"objective": "causal,masked", "dials": PLAIN},
    "muon": {"optimizer": "muon", "dials": PLAIN},
    "bag": {"objective": "document", "preset": "bag", "epochs": 3, "dials": GRAMS},
    "document": {"objective": "document", "preset": "bag", "nlayers": 1, "epochs": 3, "dials": GRAMS},
    "document chain": {"objective": "document,masked", "dials": GRAMS, "preset": "bag", "nlayers": 1, "epochs": 2},
    "dropout": {"nlayers": 2, "dials": {}, "one": {"accumulate": 2}},
    "dropout in parts": {"accumulate": 2, "dials": {}, "one": {"accumulate": 4}},
    "one row": {"objective": "hybrid", "batch": 16, "epochs": 0.1, "dials": PLAIN},  # one process gets nothing
    "shard": {**LONG, **SHARD},
    "shard in parts": {**SHARD, "accumulate": 2, "dials": {}, "one": {"accumulate": 4}},
    "shard chain": {**SHARD, "objective": "causal,masked", "dials": PLAIN},
    "shard mixed": {**SHARD, "objective": "causal+masked", "dials": PLAIN},
}
# With AdamW in the place of row-wise Adagrad: their losses are their own.
SHARDED_DOCUMENTS = {
    "shard document": {**CASES["document"], **SHARD},
    "shard bag, then document": {**CASES["document"], **SHARD, "objective": "bag,document"},  # with one output table
}
# Broken off by two processes, to be resumed by one; and the reverse.
LEAVES = {
    "two to one": {"break_at": 14, "checkpoint_steps": 3, "dials": PLAIN},
    "two bags to one": {"break_at": 14, "checkpoint_steps": 3, **CASES["bag"]},
    "shards to one": {"break_at": 14, "checkpoint_steps": 3, "dials": PLAIN, **SHARD},
    "shards to two": {"break_at": 14, "checkpoint_steps": 3, "dials": PLAIN, **SHARD},
}
TAKES_UP = {
    "one to two": {"dials": PLAIN},
    "one bag to two": CASES["bag"],
    "one to shards": {"dials": PLAIN, **SHARD},
    "shards to two": {"dials": PLAIN, "nlayers": 2},
}


def of_one(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What one process is given in the place of two, and the dials of its model."""
    given = {**case, **case.get("one", {})}
    return {name: given[name] for name in given if name not in ("dials", "one", "shard", "break_at")}, case["dials"]


@pytest.fixture(scope="module")
def of_two(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs of two processes, in one start of torchrun."""
    folder = tmp_path_factory.mktemp("two")
    for name in ("one to two", "one bag to two", "one to shards"):
        given, dials = of_one(TAKES_UP[name])
        with shaped(**dials):
            broken_off(small(text, folder / name, precision="float32", checkpoint_steps=3, **given), 14)
    cases = {**CASES, **LEAVES, **SHARDED_DOCUMENTS}
    cases |= {f"{name}, again" if name in cases else name: {**case, "resume": True} for name, case in TAKES_UP.items()}
    cases = {name: {"precision": "float32", **case} for name, case in cases.items()}
    for case in cases.values():
        case.pop("one", None)
    (folder / "shards to two, again").symlink_to(folder / "shards to two")
    (folder / "cases.json").write_text(json.dumps(cases))
    start = ["-m", "tests.training.several_runs"]
    started = torchrun([str(text), str(folder), str(folder / "cases.json")], start=start)
    done = subprocess.run(started, capture_output=True, text=True, env=environment(), timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def same_losses(out: Path, expected: Path) -> None:
    """The same lines of metrics, and every number in them within 1e-4."""
    found, wanted = metrics(out), metrics(expected)
    assert [line["step"] for line in found] == [line["step"] for line in wanted]
    for line, other in zip(found, wanted, strict=True):
        assert line.keys() == other.keys()
        for key, value in other.items():
            close = value if isinstance(value, str) else pytest.approx(value, abs=1e-4, rel=1e-4)
            assert line[key] == close, (key, line, other)


def whole_run(text: Path, out: Path, case: dict[str, Any]) -> Path:
    given, dials = of_one(case)
    with shaped(**dials):
        run_pretraining(small(text, out, precision="float32", **given))
    return out


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_losses_of_one(name: str, of_two: Path, text: Path, tmp_path: Path) -> None:
    same_losses(of_two / name, whole_run(text, tmp_path / "one", CASES[name]))
    assert rehead.load(of_two / name).details["steps"] == metrics(of_two / name)[-1]["step"]


@pytest.mark.parametrize("name", SHARDED_DOCUMENTS)
def test_a_sharded_document_run_learns(name: str, of_two: Path) -> None:
    """Stages are compared with themselves: each has a held-out loss over candidates of its own."""
    lines = [line for line in metrics(of_two / name) if line["kind"] == "valid"]
    for objective in {line["objective"] for line in lines}:
        held_out = [line["loss"] for line in lines if line["objective"] == objective]
        assert held_out[-1] < held_out[0], objective
    rehead.load(of_two / name)


def test_fifty_steps_are_fifty(of_two: Path) -> None:
    assert [metrics(of_two / name)[-1]["step"] for name in ("causal", "shard")] == [50, 50]


@pytest.mark.parametrize("name", ["two to one", "two bags to one", "shards to one"])
def test_one_process_takes_up_what_two_left(name: str, of_two: Path, text: Path, tmp_path: Path) -> None:
    case = LEAVES[name]
    assert not (of_two / name / "config.json").exists()
    whole_run(text, of_two / name, {**case, "resume": True})
    same_losses(of_two / name, whole_run(text, tmp_path / "one", case))


@pytest.mark.parametrize("name", TAKES_UP)
def test_two_processes_take_up_what_others_left(name: str, of_two: Path, text: Path, tmp_path: Path) -> None:
    same_losses(of_two / name, whole_run(text, tmp_path / "one", TAKES_UP[name]))


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_step(out: Path, step: int, running: subprocess.Popen[str]) -> None:
    while not [path for path in checkpoint.listed(out / "checkpoints") if path.name >= checkpoint.name(step)]:
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes in /proc")
def test_a_killed_process_is_started_again_and_the_run_ends_the_same(text: Path, tmp_path: Path) -> None:
    """`torchrun --max-restarts 3 -m rehead pretrain`, and kill -9 of the second process."""
    out, given = tmp_path / "run", {"epochs": 3, "precision": "float32"}
    arguments = [*words(text, out, **given), "--checkpoint-steps", "4"]
    started = torchrun(arguments, 2, "--max-restarts=3")
    running = subprocess.Popen(started, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_step(out, 8, running)
    os.kill(children(running.pid)[1], signal.SIGKILL)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 0, said
    assert "exitcode" in said or "Signal 9" in said, said  # it was killed, not done before
    # Two processes draw dropout as two parts in one process do.
    run_pretraining(small(text, tmp_path / "one", **{**given, "accumulate": 2}))
    same_losses(out, tmp_path / "one")
    assert left(out).state["step"] == left(tmp_path / "one").state["step"]


@pytest.mark.slow
def test_torchrun_that_is_told_to_stop_leaves_a_run_that_goes_on(text: Path, tmp_path: Path) -> None:
    out, given = tmp_path / "run", {"epochs": 3, "precision": "float32"}
    arguments = words(text, out, **given)
    started = torchrun([*arguments, "--checkpoint-steps", "4"])
    running = subprocess.Popen(started, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_step(out, 8, running)
    running.terminate()
    _, said = running.communicate(timeout=120)
    assert running.returncode != 0
    assert f"Resume with: torchrun … -m rehead {arguments[0]} {arguments[1]}" in said
    again = subprocess.run(
        torchrun([*arguments, "--resume"]), env=environment(), capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0, again.stderr
    run_pretraining(small(text, tmp_path / "one", **{**given, "accumulate": 2}))
    same_losses(out, tmp_path / "one")


def test_a_refusal_is_not_a_bug_in_the_others(text: Path, tmp_path: Path) -> None:
    """The first process says what is wrong, and ends; the second one finds it gone."""
    (tmp_path / "letter.txt").write_text("dear")
    refused = subprocess.run(
        torchrun(words(text, tmp_path)), env=environment(), capture_output=True, text=True, timeout=120
    )
    assert refused.returncode == 1
    assert f"rehead: error: {tmp_path} exists already." in refused.stderr
    assert "this is a bug" not in refused.stderr


def test_sharding_takes_several_processes(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Start them with torchrun, or drop --shard"):
        run_pretraining(small(text, tmp_path / "run", shard=True))
