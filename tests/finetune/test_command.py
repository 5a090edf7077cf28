"""`rehead finetune` and `rehead evaluate`, from files to files."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rehead.disk
import rehead.finetune.run
import rehead.runs.run
from rehead.cli import main
from rehead.errors import UserError
from rehead.finetune.directory import open_directory
from rehead.finetune.options import FinetuneOptions
from rehead.finetune.run import _read, run_finetuning
from rehead.runs.run import load, save
from rehead.runs.scoring import class_probabilities
from rehead.text.documents import LabelledData, ReadOptions
from rehead.text.readers import Texts
from rehead.training import loop
from tests.finetune.conftest import MakeBase
from tests.finetune.sets import multilabel, reviews
from tests.training.running import Killed

QUICK = ["--epochs", "2", "--lr-scale", "10", "--device", "cpu"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the pictures, and waiting for the disk."""
    monkeypatch.setattr(rehead.finetune.run.curves, "save", lambda metrics, directory: [])
    monkeypatch.setattr(rehead.disk, "fsync", lambda path: None)
    monkeypatch.setattr(rehead.runs.run, "fsync", lambda path: None)


def write(path: Path, data: LabelledData) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows((text, "|".join(labels)) for text, labels, _, _ in data if labels)
    return path


pytestmark = pytest.mark.usefixtures("quick_search")


@pytest.fixture
def files(tmp_path: Path, make_base: MakeBase) -> Path:
    """A folder with a base, examples, and a validation part."""
    save(make_base("small"), tmp_path / "base")
    write(tmp_path / "train.csv", reviews(60))
    write(tmp_path / "valid.csv", reviews(30, 1))
    write(tmp_path / "tags.csv", multilabel(80))
    return tmp_path


def finetune(files: Path, *more: str, out: str = "run") -> int:
    return main(["finetune", str(files / "train.csv"), "--out", str(files / out), *QUICK, *more])


def test_from_a_base_to_a_classifier(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        finetune(files, "--from", str(files / "base"), "--valid", str(files / "valid.csv"), "--freeze", "layers") == 0
    )
    said = capsys.readouterr()
    assert "60 training examples, 30 for validation; 2 classes: bad, good" in said.err
    assert "calibrated on 30 validation documents" in said.err
    assert "validation (30 texts): accuracy" in said.out
    run = load(files / "run")
    assert run.labels == ["bad", "good"]
    assert run.details["options"]["epochs"] == 2
    assert not (files / "run" / "finetune.json").exists()
    assert main(["evaluate", str(files / "run"), str(files / "valid.csv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    right = (class_probabilities(run, reviews(30, 1).texts).argmax(1) == np.arange(30) % 2).mean()
    assert found["accuracy"] == pytest.approx(right)
    assert found["accuracy"] > 0.8
    assert [each["name"] for each in found["classes"]] == ["bad", "good"]


def test_without_validation_it_says_what_it_does(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert finetune(files, "--from", str(files / "base"), "--freeze", "layers") == 0
    assert "12 of the 60 examples are set aside" in capsys.readouterr().err
    assert finetune(files, "--from", str(files / "base"), "--freeze", "layers", "--quiet", out="other") == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize("more", [["--preset", "bag"], ["--preset", "lab", "--nlayers", "1", "--nhead", "2"]], ids=str)
def test_from_scratch(files: Path, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert finetune(files, "--scratch", "--nhid", "16", "--vocab", "300", *more) == 0
    run = load(files / "run")
    assert run.model.config.nhid == 16
    assert run.tokenizer is not None
    assert run.tokenizer.vocab_size <= 300


def test_scratch_like_a_run(files: Path, make_base: MakeBase) -> None:
    save(make_base(), files / "base", overwrite=True)
    assert finetune(files, "--scratch", "--from", str(files / "base")) == 0
    made, base = load(files / "run"), load(files / "base")
    assert made.model.config == base.model.config
    assert not np.array_equal(made.model.base.embedding.weight.detach(), base.model.base.embedding.weight.detach())


def test_cross_validation_decides_unless_told(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And it does so again, to the bit, if it is interrupted and resumed."""
    (files / "more.txt").write_text("\n".join(reviews(100, 9).texts), encoding="utf-8")
    more = ["--from", str(files / "base"), "--valid", str(files / "valid.csv"), "--unlabelled", str(files / "more.txt")]
    assert finetune(files, *more) == 0
    said = capsys.readouterr()
    assert "cross-validation" in said.err
    assert "self-training: " in said.err
    run = load(files / "run")
    assert run.details["method"] == "recipe"
    assert not (files / "run" / "finetune.json").exists()
    assert main(["evaluate", str(files / "run"), str(files / "valid.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.8

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rehead.finetune.run, "_save", lambda options, run, name: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            finetune(files, *more, out="again")
    assert finetune(files, *more[:-2], "--resume", out="again") == 2
    assert "other --unlabelled" in capsys.readouterr().err
    assert finetune(files, *more, "--resume", out="again") == 0
    assert (files / "again" / "model.safetensors").read_bytes() == (files / "run" / "model.safetensors").read_bytes()


def test_a_linear_classifier_on_the_base_as_it_is(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["finetune", str(files / "train.csv"), "--from", str(files / "base"), "--freeze", "base"]
    assert main([*words, "--out", str(files / "run")]) == 0
    said = capsys.readouterr()
    assert "10-fold cross-validation" in said.err
    assert "out-of-fold" in said.out
    assert "(60 texts): accuracy" in said.out
    run, base = load(files / "run"), load(files / "base")
    assert run.details["method"] == "linear"
    for name, tensor in run.model.base.state_dict().items():
        np.testing.assert_array_equal(tensor, base.model.base.state_dict()[name], err_msg=name)
    for name, value in {"epochs": 3, "lr": 2e-5, "lr-scale": 2, "layer-decay": 0.5, "validations": 3}.items():
        assert main([*words, "--out", str(files / "other"), f"--{name}", str(value)]) == 2
        assert f"--{name} applies" in capsys.readouterr().err
    assert not (files / "other").exists()


def test_of_very_much_unlabelled_text_a_sample_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "more.txt").write_text("\n".join(f"text {place}" for place in range(200)), encoding="utf-8")
    texts = Texts(str(tmp_path / "more.txt"))
    assert rehead.finetune.run.sample_texts(texts, 0) == [f"text {place}" for place in range(200)]
    monkeypatch.setattr("rehead.finetune.candidates.self_training.MAX_DOCUMENTS", 20)
    kept = rehead.finetune.run.sample_texts(texts, 0)
    assert len(set(kept)) == 20
    assert any(int(each.split()[1]) >= 100 for each in kept)
    assert kept != rehead.finetune.run.sample_texts(texts, 1)


def test_several_labels(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(files / "run"), *QUICK, "--from", str(files / "base"), "--freeze", "layers"]
    assert main(["finetune", str(files / "tags.csv"), *out]) == 0
    said = capsys.readouterr()
    assert "3 labels (multilabel)" in said.err
    assert len(load(files / "run").details["thresholds"]) == 3
    assert "thresholds tuned for --metric accuracy" in said.out
    assert main(["evaluate", str(files / "run"), str(files / "tags.csv")]) == 0
    assert "all labels of a text correct" in capsys.readouterr().out


def test_evaluate_prints_tables(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finetune(files, "--from", str(files / "base"), "--valid", str(files / "valid.csv"), "--freeze", "layers")
    capsys.readouterr()
    assert main(["evaluate", str(files / "run"), str(files / "train.csv")]) == 0
    said = capsys.readouterr()
    assert "warning: " in said.err
    assert "trained on" in said.err
    lines = said.out.splitlines()
    assert lines[0] == "60 texts"
    at = lines.index("confusion matrix (rows: true class, columns: predicted)")
    counts = [[int(each) for each in line.split()[1:]] for line in lines[at + 2 :]]
    assert [sum(row) for row in counts] == [30, 30]
    assert any(
        line.startswith("accuracy") and f"{100 * (counts[0][0] + counts[1][1]) / 60:.2f}" in line for line in lines
    )
    main(["evaluate", str(files / "run"), str(files / "valid.csv")])
    assert "calibrated" in capsys.readouterr().err


def test_broken_off_and_resumed(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--from", str(files / "base"), "--checkpoint-steps", "1", "--freeze", "layers"]
    assert finetune(files, *more, out="straight") == 0
    plain, seen = loop._Training._here, 0

    def here(training: Any, batch: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == 9:
            raise Killed
        return plain(training, batch)

    with monkeypatch.context() as patched:
        patched.setattr(loop._Training, "_here", here)
        with pytest.raises(Killed):
            finetune(files, *more)
    capsys.readouterr()
    assert finetune(files, *more, out="run") == 2
    assert "exists already" in capsys.readouterr().err
    assert finetune(files, *more, "--lr-scale", "2", "--resume") == 2
    error = capsys.readouterr().err
    assert "--lr-scale 10.0" in error
    assert "--lr-scale 2.0" in error
    assert finetune(files, *more, "--valid", str(files / "valid.csv"), "--resume") == 2
    assert "other --valid" in capsys.readouterr().err
    assert finetune(files, *more, "--resume") == 0
    assert "resuming at step" in capsys.readouterr().err
    for name in ("model.safetensors", "labels.json", "tokenizer.json"):
        assert (files / "run" / name).read_bytes() == (files / "straight" / name).read_bytes()
    assert finetune(files, *more, "--resume") == 2
    assert "is finished" in capsys.readouterr().err


def test_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--from", str(files / "base")]
    write(files / "odd.csv", reviews(9, 1, names=("bad", "good", "so")))
    refused = {
        "--nhid applies to a model that is made here": [*base, "--nhid", "16"],
        "--freeze layers": ["--scratch", "--freeze", "layers"],
        "--freeze base": [*base, "--scratch", "--freeze", "base"],
        "--freeze embeddings": [*base, "--scratch", "--freeze", "embeddings"],
        "--patience": [*base, "--patience", "2"],
        "nothing: no such run": ["--from", str(files / "nothing")],
        "odd.csv line 4: the label 'so'": [
            *base, "--valid", str(files / "odd.csv"),
        ],
        "--dropout 1": [*base, "--dropout", "1"],
        "--lr 3: must be above 0 and at most 0.1": [*base, "--lr", "3"],
        "--lr 0.001 and --lr-scale 2": [*base, "--lr", "1e-3", "--lr-scale", "2"],
        "--shard": [*base, "--shard"],
        "--epochs 0": [*base, "--epochs", "0"],
        "--freeze none": [
            *base, "--freeze", "none", "--unlabelled", str(files / "train.csv"),
        ],
        "--unlabelled": [*base, "--scratch", "--unlabelled", str(files / "train.csv")],
        "--overwrite": [*base, "--resume", "--overwrite"],
    }  # fmt: skip
    for said, more in refused.items():
        assert finetune(files, *more) == 2, said
        lines = capsys.readouterr().err.splitlines()
        assert said in lines[-1]
        assert not (files / "run").exists() or not any((files / "run").iterdir()), said
    assert main(["evaluate", str(files / "base"), str(files / "train.csv")]) == 2
    assert "not a classifier" in capsys.readouterr().err


def test_what_is_replaced_comes_back_if_the_new_run_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--from", str(files / "base"), "--freeze", "layers"]
    assert finetune(files, *base) == 0
    before = (files / "run" / "config.json").read_bytes()
    write(files / "odd.csv", reviews(9, 1, names=("bad", "good", "so")))
    assert finetune(files, *base, "--overwrite", "--valid", str(files / "odd.csv")) == 2
    assert (files / "run" / "config.json").read_bytes() == before
    assert finetune(files, *base, "--overwrite", "--seed", "1") == 0
    assert (files / "run" / "config.json").read_bytes() != before


def test_validation_that_repeats_the_examples_is_warned_of(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--from", str(files / "base"), "--freeze", "layers", "--valid", str(files / "train.csv")]
    assert finetune(files, *more) == 0
    assert "warning: 60 of 60 validation texts" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("more", [["--freeze", "layers"], ["--freeze", "none", "--length", "16"]], ids=str)
def test_several_processes_do_what_one_does(files: Path, more: list[str]) -> None:
    words = ["-m", "rehead", "finetune", str(files / "train.csv"), "--valid", str(files / "valid.csv"), *QUICK, *more]
    words += ["--from", str(files / "base"), "--dropout", "0", "--quiet"]
    alone = [sys.executable, *words, "--out", str(files / "alone")]
    multilabel = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        *words,
        "--out",
        str(files / "two"),
    ]
    for command in (alone, multilabel):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    one, two = (load(files / name).model.state_dict() for name in ("alone", "two"))
    for name, tensor in one.items():
        np.testing.assert_allclose(two[name], tensor, atol=1e-4, err_msg=name)


def test_from_python(files: Path) -> None:
    options = FinetuneOptions(
        labelled=[str(files / "train.csv")],
        out=files / "run",
        base=[str(files / "base")],
        freeze="layers",
        epochs=2,
        quiet=True,
    )
    fitted = run_finetuning(options)
    assert fitted is not None
    assert fitted.curve[0].epoch == 0


def test_a_place_that_was_refused_is_refused_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="exists already"):
        open_directory(FinetuneOptions(labelled=["a.csv"], out=tmp_path), {}, resume=True)
    assert [each.name for each in tmp_path.iterdir()] == ["letter.txt"]


def test_labels_that_look_alike_are_named_before_training(tmp_path: Path) -> None:
    rows = [("Pos" if number < 2 else "pos" if number % 2 else "neg") for number in range(20)]
    table = "text,label\n" + "".join(f"text {number},{label}\n" for number, label in enumerate(rows))
    (tmp_path / "a.csv").write_text(table)
    said: list[str] = []
    options = FinetuneOptions(labelled=[str(tmp_path / "a.csv")], out=tmp_path / "run")
    _read(options, ReadOptions(), said.append)
    assert any("'pos' (9) and 'Pos' (2)" in line for line in said), said
