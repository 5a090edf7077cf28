"""Small runs, ways to break them off, and what must be the same afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rehead.pretrain.run
from rehead.cli import main
from rehead.pretrain.options import PretrainOptions
from rehead.pretrain.run import run_pretraining
from rehead.training import loop
from rehead.training.metrics_log import read

TIMES = ("seconds", "tokens_per_second", "memory")  # of a line of metrics: what no two runs have in common
HERE = Path(__file__).parents[2]

# `base` has dropout and no big table. 60 documents are about 3,000 tokens: 23 steps of 128 in an epoch.
SMALL: dict[str, Any] = {
    "preset": "base", "vocab": 300, "nhid": 16, "nlayers": 1, "nhead": 2, "length": 16, "batch": 128, "validations": 3,
    "objective": "causal", "epochs": 0.5, "quiet": True,
}  # fmt: skip

needs_document = pytest.mark.skipif(
    importlib.util.find_spec("rehead.pretrain.document") is None, reason="there is no document objective yet"
)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def small(text: Path, out: Path, **changes: Any) -> PretrainOptions:
    return PretrainOptions(texts=[str(text)], out=out, **{**SMALL, **changes})


@contextlib.contextmanager
def shaped(**changes: Any) -> Iterator[None]:
    """Have runs in this process make models with these dials, which the command line does not offer."""
    plain = rehead.pretrain.run._config

    def config(options: PretrainOptions, tokenizer: Any) -> Any:
        return dataclasses.replace(plain(options, tokenizer), **changes)

    rehead.pretrain.run._config = config
    try:
        yield
    finally:
        rehead.pretrain.run._config = plain


def words(text: Path, out: Path, **changes: Any) -> list[str]:
    """The same as `small`, as words for the command line."""
    given = ["pretrain", str(text), "--out", str(out)]
    for name, value in {**SMALL, **changes}.items():
        flag = f"--{name.replace('_', '-')}"
        given += [flag] if value is True else [] if value is False or value is None else [flag, str(value)]
    return given


class Left(NamedTuple):
    """What a finished run leaves behind, but for times."""

    weights: bytes
    model: bytes
    optimizer: bytes
    best: bytes | None
    state: dict[str, Any]
    metrics: list[dict[str, Any]]


def left(out: Path) -> Left:
    """Read what must be the same however often a run was interrupted."""
    (last,) = (out / "checkpoints").glob("step-*")
    bests = sorted((out / "checkpoints" / "best").glob("step-*"))
    assert len(bests) <= 1
    state = json.loads((last / "state.json").read_text())
    for name in ("seconds", "phase_seconds"):
        del state[name]
    return Left(
        (out / "model.safetensors").read_bytes(),
        (last / "model.safetensors").read_bytes(),
        (last / "optimizer.safetensors").read_bytes(),
        (bests[0] / "model.safetensors").read_bytes() if bests else None,
        state,
        metrics(out),
    )


def metrics(out: Path) -> list[dict[str, Any]]:
    return [{key: line[key] for key in line if key not in TIMES} for line in read(out / "metrics.jsonl")]


def straight(text: Path, out: Path, **changes: Any) -> Left:
    run_pretraining(small(text, out, **changes))
    return left(out)


class Killed(BaseException):
    """Not an Exception: nothing in the program is meant to catch it."""


def broken_off(options: PretrainOptions, at: int) -> None:
    """Break a run off at the `at`-th batch that is brought to the device: amid a step's parts, or while validating."""
    seen = 0
    plain = loop._Training._here

    def here(training: loop._Training, batch: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == at:
            raise Killed
        return plain(training, batch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop._Training, "_here", here)
        with pytest.raises(Killed):
            run_pretraining(options)


def fork(job: Callable[[], int], log: Path) -> int:
    """Do a job in a forked child, its words in a file; give its process id. Starting is free: torch is there."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        with log.open("ab", 0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        code = job()
    finally:
        os._exit(code)


def fork_command(arguments: list[str], log: Path) -> int:
    return fork(lambda: main(arguments), log)


def end_of(child: int, *, within: float = 60) -> int:
    """Wait for a child: its exit code, or the negative number of the signal that ended it."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"the child was not done after {within} s")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def command(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python -m rehead …` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rehead", *arguments], capture_output=True, text=True, env=environment(), **options
    )


def torchrun(arguments: list[str], processes: int = 2, *extra: str, start: list[str] | None = None) -> list[str]:
    """The command that starts several processes on this machine."""
    many = ["--standalone", f"--nproc-per-node={processes}", *extra]
    return [sys.executable, "-m", "torch.distributed.run", *many, *(start or ["-m", "rehead"]), *arguments]
