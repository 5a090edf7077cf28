"""Every command that writes, replacing an earlier output, and what must hold after anything has happened to it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from rehead.cli import main
from rehead.disk import OLD, beside
from rehead.runs.run import load
from rehead.text.datasets import DatasetSplits
from tests.compare.conftest import reviews, small_and_quick
from tests.faults import FaultyDisk, faulty_disk
from tests.finetune.test_command import write
from tests.training.running import end_of, fork

OUT = "out"
EVERY_STEP = ["--checkpoint-steps", "1"]
PRETRAIN = ["--preset", "bag", "--vocab", "300", "--nhid", "8", "--tokens", "12000", *EVERY_STEP]


def files_of(out: Path) -> str:
    """The content of a file or directory, as one string to compare."""
    if out.is_file():
        return repr(out.read_bytes())
    return repr(sorted((str(each.relative_to(out)), each.read_bytes()) for each in out.rglob("*") if each.is_file()))


def seed_of_run(out: Path) -> str:
    """Load a run, which checks every file of it; tell two by their seed."""
    return str(load(out).details["seed"])


def seed_of_report(out: Path) -> str:
    assert (out / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
    return str(json.loads((out / "results.json").read_text(encoding="utf-8"))["run"]["options"]["seed"])


@dataclass(frozen=True)
class Writer:
    """A command that writes `out`."""

    arguments: list[str]
    "Of both times; paths are relative to the folder that the test is in."
    old: list[str]
    new: list[str]
    "What differs between them."
    identity: Callable[[Path], str] = files_of
    "Checks an output, and gives something that tells the old one from the new one."
    resumes: bool = False
    out: str = OUT

    def words(self, folder: Path, *more: str) -> list[str]:
        """The command line for this folder."""
        given = [*self.arguments, "--out", self.out, *more, "--quiet"]
        return [str(folder / each) if each in (self.out, *FILES) else each for each in given]

    def run(self, folder: Path, *more: str, **faults: Any) -> int:
        """Do it in a forked child, with the faults that are asked for; give the exit code."""
        return end_of(self.start(folder, *more, **faults), within=120)

    def start(self, folder: Path, *more: str, **faults: Any) -> int:
        """Start a child that does it, its words in a file beside the folder."""
        return fork(lambda: self.job(folder, *more, **faults)[0], log_of(folder))

    def job(self, folder: Path, *more: str, **faults: Any) -> tuple[int, FaultyDisk]:
        """Do it in this process; give the exit code, and what was done to the disk."""
        splits = mock.patch("rehead.text.export.load_dataset", lambda *sizes: made_splits(sizes[-1]))
        with small_and_quick(), splits, faulty_disk(folder, **faults) as disk:
            return main(self.words(folder, *more)), disk


def log_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def made_splits(seed: int) -> DatasetSplits:
    return DatasetSplits(reviews(20, seed), reviews(6, seed), reviews(6, seed), reviews(30, seed + 1).texts, 0)


FILES = ("text.txt", "labelled.csv", "base-run", "classifier")
SEEDS: dict[str, list[str]] = {"old": ["--seed", "0"], "new": ["--seed", "1"]}
WRITERS = {
    "pretrain": Writer(["pretrain", "text.txt", *PRETRAIN], **SEEDS, identity=seed_of_run, resumes=True),
    "finetune": Writer(
        ["finetune", "labelled.csv", "--from", "base-run"], **SEEDS, identity=seed_of_run, resumes=True
    ),
    "finetune by gradient": Writer(
        ["finetune", "labelled.csv", "--from", "base-run", "--freeze", "none", "--epochs", "1", *EVERY_STEP],
        **SEEDS, identity=seed_of_run, resumes=True,
    ),
    "finetune without a base": Writer(
        ["finetune", "labelled.csv", "--unlabelled", "text.txt", "--freeze", "base", *EVERY_STEP],
        **SEEDS, identity=seed_of_run, resumes=True,
    ),
    "compare": Writer(
        ["compare", "labelled.csv", "--from", "base-run", "--methods", "frozen,tfidf", "--seeds", "1", "--no-control"],
        **SEEDS, identity=seed_of_report, resumes=True,
    ),
    "export": Writer(["export", "classifier"], ["--format", "onnx"], ["--format", "onnx-int8"]),
    "predict": Writer(["predict", "classifier", "labelled.csv"], [], ["--threshold", "0.9"], resumes=True, out="o.csv"),
    "data export": Writer(["data", "export", "imdb"], **SEEDS),
}  # fmt: skip


def make_inputs(folder: Path) -> None:
    """Write what the commands read: text, labels, a base and a classifier."""
    folder.mkdir()
    texts = reviews(60, 5).texts
    (folder / "text.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    write(folder / "labelled.csv", reviews(40))
    text, labelled, base, classifier = (str(folder / name) for name in FILES)
    with small_and_quick():
        assert main(["pretrain", text, *PRETRAIN, "--out", base, "--quiet"]) == 0
        assert main(["finetune", labelled, "--from", base, "--freeze", "base", "--out", classifier, "--quiet"]) == 0


@dataclass(frozen=True)
class Prepared:
    """A folder with inputs and an old output, to be copied; and what old and new outputs are."""

    writer: Writer
    folder: Path
    old: str
    new: str
    operations: list[tuple[str, str]]

    def copy(self, to: Path) -> Path:
        shutil.copytree(self.folder, to)
        return to


def prepare(writer: Writer, inputs: Path, folder: Path) -> Prepared:
    """Make the old output; replace it in a copy, to learn what the new one is and which operations that takes."""
    shutil.copytree(inputs, folder)
    assert writer.job(folder, *writer.old)[0] == 0
    trial = folder.with_name(f"{folder.name}-trial")
    shutil.copytree(folder, trial)
    code, disk = writer.job(trial, *writer.new, "--overwrite")
    assert code == 0
    old, new = (writer.identity(each / writer.out) for each in (folder, trial))
    assert old != new
    shutil.rmtree(trial)
    return Prepared(writer, folder, old, new, disk.done)


def check_after(prepared: Prepared, folder: Path, code: int, *, resume: bool, swaps: bool = True) -> None:
    """The output is the old one or the new one, errors are one line, and the next start finishes what was begun."""
    writer, out = prepared.writer, folder / prepared.writer.out
    said = log_of(folder).read_text(encoding="utf-8")
    assert code in (0, 2, -signal.SIGKILL), said
    assert "Traceback" not in said
    assert code != 2 or said.count("rehead: error: ") == 1, said
    if not out.exists() and writer.identity is not seed_of_run:  # runs are put back when they are loaded
        assert not swaps
        out = beside(out, OLD)
    there = writer.identity(out)
    assert there in (prepared.old, prepared.new)
    assert code != 0 or there == prepared.new
    finish(prepared, folder, "--resume" if resume and writer.resumes else "--overwrite", swaps=swaps)


def finish(prepared: Prepared, folder: Path, more: str, *, swaps: bool = True) -> None:
    """Start the command again: it succeeds, and leaves nothing behind."""
    writer = prepared.writer
    again = writer.run(folder, *writer.new, more, swaps=swaps)
    if again == 2 and more == "--resume":  # it had not begun, or was done
        again = writer.run(folder, *writer.new, "--overwrite", swaps=swaps)
    assert again == 0, log_of(folder).read_text(encoding="utf-8")
    assert writer.identity(folder / writer.out) == prepared.new
    names = [each.name for each in folder.iterdir()]
    assert sorted(names) == sorted({*FILES, writer.out}), "something is left behind"
