"""`rehead finetune` without a base: one is pretrained first, on the texts that are given."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rehead
import rehead.finetune.own_base
import rehead.finetune.run
import rehead.pretrain.run
import rehead.runs.run
from rehead.cli import main
from rehead.errors import UserError
from rehead.finetune.options import FinetuneOptions, pretraining_options
from rehead.runs.run import load
from rehead.runs.scoring import class_probabilities
from rehead.text.combined import CombinedTexts
from rehead.training import loop
from rehead.training.stopping import Stopped
from tests.faults import faulty_disk, on
from tests.finetune.sets import reviews
from tests.finetune.test_command import write
from tests.training.running import Killed

TRAIN, VALID, MORE = reviews(60), reviews(30, 1), reviews(100, 9).texts
TEXTS, LABELS = TRAIN.texts, [label for (label,) in TRAIN.labels]
NEW, TRUE = reviews(20, 5).texts, [label for (label,) in reviews(20, 5).labels]
GRADIENT = ["--freeze", "layers", "--epochs", "2"]

pytestmark = pytest.mark.usefixtures("quick_search", "small_own_bases")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write(tmp_path / "train.csv", TRAIN)
    write(tmp_path / "valid.csv", VALID)
    (tmp_path / "more.txt").write_text("\n".join(MORE), encoding="utf-8")
    return tmp_path


def finetune(files: Path, *more: str, out: str = "run", examples: str = "train.csv") -> int:
    words = ["finetune", str(files / examples), "--out", str(files / out), "--vocab", "320", "--device", "cpu"]
    return main([*words, *more])


def weights(path: Path) -> bytes:
    return (path / "model.safetensors").read_bytes()


def break_off(patch: pytest.MonkeyPatch, at: int) -> None:
    """Kill training, of the base or the classifier, at the `at`-th batch from now."""
    plain, seen = loop._Training._here, 0

    def here(training: Any, batch: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == at:
            raise Killed
        return plain(training, batch)

    patch.setattr(loop._Training, "_here", here)


def fail(error: BaseException) -> Any:
    def call(*given: Any, **options: Any) -> Any:
        raise error

    return call


# The command


def test_it_is_pretraining_and_then_fine_tuning(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--unlabelled", str(files / "more.txt")]
    assert finetune(files, *more, "--valid", str(files / "valid.csv")) == 0
    said = capsys.readouterr()
    for line in ("60 training examples, 30 for validation", "part 1 of 2", "part 2 of 2", "self-training: "):
        assert line in said.err
    assert "note: " in said.err
    assert "--unlabelled" in said.err
    assert "pretrained on 160 documents" in said.out
    assert "validation (30 texts): accuracy" in said.out
    run = load(files / "run")
    assert run.details["pretraining"]["text"]["documents"] == 160
    assert run.details["pretraining"]["objective"] == "bag"
    assert {each.name for each in (files / "run").iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "labels.json", "README.md",
    }  # fmt: skip
    card = (files / "run" / "README.md").read_text(encoding="utf-8")
    assert "160 documents" in card
    assert "its base:\n  - objective: bag" in card

    (files / "examples.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    words = ["pretrain", str(files / "examples.txt"), str(files / "more.txt"), "--out", str(files / "base")]
    assert main([*words, "--vocab", "320", "--device", "cpu"]) == 0
    words = ["finetune", str(files / "train.csv"), "--out", str(files / "two"), "--from", str(files / "base"), *more]
    assert main([*words, "--valid", str(files / "valid.csv")]) == 0
    assert weights(files / "two") == weights(files / "run")


@pytest.mark.parametrize("more", [[], ["--freeze", "base"], GRADIENT, ["--freeze", "none", "--epochs", "1"]], ids=str)
def test_unlabelled_text_is_pretrained_on_whatever_is_frozen(files: Path, more: list[str]) -> None:
    assert finetune(files, "--unlabelled", str(files / "more.txt"), "--quiet", *more) == 0
    run = load(files / "run")
    assert run.details["pretraining"]["text"]["documents"] == 160
    assert (class_probabilities(run, NEW).argmax(1) == np.arange(20) % 2).mean() > 0.7


def test_quiet_says_the_result_alone(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert finetune(files, "--quiet") == 0
    said = capsys.readouterr()
    assert not said.err
    assert "pretrained on 60 documents" in said.out


def test_validation_texts_are_never_pretrained_on(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "all.txt").write_text("\n".join([*VALID.texts, "", *TEXTS, *MORE]), encoding="utf-8")
    read: list[str] = []
    plain = CombinedTexts.__iter__

    def texts(self: CombinedTexts) -> Iterator[Any]:
        for document in plain(self):
            read.append(document.text)
            yield document

    monkeypatch.setattr(CombinedTexts, "__iter__", texts)
    given = ["--unlabelled", str(files / "all.txt"), "--valid", str(files / "valid.csv"), "--freeze", "base"]
    assert finetune(files, *given) == 0
    assert set(read) == {*TEXTS, *MORE} - set(VALID.texts)
    assert load(files / "run").details["pretraining"]["text"]["documents"] == 160
    said = capsys.readouterr().err
    assert "copy of a validation text: 30" in said
    assert "copy of a labelled text: 60" in said
    assert "empty text: 1" in said


def test_labels_do_not_reach_pretraining(files: Path) -> None:
    other = dataclasses.replace(TRAIN, labels=TRAIN.labels[::-1])
    write(files / "other.csv", other)
    assert finetune(files, "--freeze", "base", "--quiet") == 0
    assert finetune(files, "--freeze", "base", "--quiet", out="other", examples="other.csv") == 0
    one, two = load(files / "run"), load(files / "other")
    assert one.details["pretraining"]["text"] == two.details["pretraining"]["text"]
    for name, tensor in one.model.base.state_dict().items():
        assert torch.equal(tensor, two.model.base.state_dict()[name]), name
    texts = (files / "run" / "tokenizer.json").read_bytes()
    assert texts == (files / "other" / "tokenizer.json").read_bytes()


def test_very_little_text_gives_a_classifier_and_a_note(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{word},{label}\n" for word, label in [("good", "a"), ("bad", "b")] * 3)
    (files / "few.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    assert finetune(files, examples="few.csv") == 0
    said = capsys.readouterr().err
    assert "tokens are little text" in said
    assert "1,000,000 tokens" in said
    assert "--unlabelled" in said
    assert class_probabilities(load(files / "run"), ["good", "bad"]).argmax(1).tolist() == [0, 1]


def test_model_options_are_those_of_the_base(files: Path) -> None:
    given = FinetuneOptions(
        labelled=["a.csv"], out=files, unlabelled=["b.txt"], preset="lab", nlayers=1, nhead=2, vocab=300, seed=3,
        precision="float32", epochs=7, lr=1e-3, length=99, text_column="review", checkpoint_steps=5,
    )  # fmt: skip
    made = pretraining_options(given, files / "base")
    shared = ("preset", "nlayers", "nhead", "vocab", "seed", "precision", "text_column", "checkpoint_steps")
    assert all(getattr(made, name) == getattr(given, name) for name in shared)
    assert (made.epochs, made.lr, made.length) == (None, None, 256)  # these are the classifier's
    assert made.texts == ["a.csv", "b.txt"]
    write(files / "few.csv", reviews(12))
    lab = ["--preset", "lab", "--nhid", "16", "--nlayers", "1", "--nhead", "2", "--freeze", "base"]
    assert finetune(files, *lab, "--quiet", examples="few.csv") == 0
    assert load(files / "run").details["pretraining"]["objective"] == "causal"


def test_options_of_one_kind_of_file(files: Path) -> None:
    """The column of a table says nothing about plain text beside it."""
    (files / "odd.csv").write_text(
        (files / "train.csv").read_text(encoding="utf-8").replace("text,label", "wording,verdict"), encoding="utf-8"
    )
    given = ["--text-column", "wording", "--label-column", "verdict", "--unlabelled", str(files / "more.txt")]
    assert finetune(files, *given, "--freeze", "base", "--quiet", examples="odd.csv") == 0
    assert load(files / "run").details["pretraining"]["text"]["documents"] == 160


# Broken off, resumed, refused


@pytest.mark.parametrize(("at", "more"), [(1, []), (4, []), (9, []), (4, GRADIENT)], ids=str)
def test_broken_off_while_pretraining(
    files: Path, at: int, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--unlabelled", str(files / "more.txt"), "--checkpoint-steps", "1", *more]
    assert finetune(files, *given, out="straight") == 0
    with pytest.MonkeyPatch.context() as patched:
        break_off(patched, at)
        with pytest.raises(Killed):
            finetune(files, *given)
    assert (files / "run" / ".base" / "pretrain.json").exists()
    capsys.readouterr()
    assert finetune(files, *given) == 2
    assert "--resume" in capsys.readouterr().err
    assert finetune(files, *given, "--resume", "--seed", "4") == 2
    assert "--seed" in capsys.readouterr().err
    assert finetune(files, *given, "--resume") == 0
    assert weights(files / "run") == weights(files / "straight")
    assert not (files / "run" / ".base").exists()
    assert finetune(files, *given, "--resume") == 2
    assert "is finished" in capsys.readouterr().err


def test_broken_off_before_the_base_is_begun(files: Path) -> None:
    assert finetune(files, out="straight") == 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rehead.finetune.own_base.pretrain_in", fail(Killed()))
        with pytest.raises(Killed):
            finetune(files)
    (files / "run" / ".base").mkdir()
    (files / "run" / ".base" / ".pretrain.json.partial").write_text("{")
    assert finetune(files, "--resume") == 0
    assert weights(files / "run") == weights(files / "straight")


def test_broken_off_after_pretraining(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The base that is there is used."""
    given = [*GRADIENT, "--checkpoint-steps", "3"]
    assert finetune(files, *given, out="straight") == 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rehead.finetune.run, "_save", fail(Killed()))
        with pytest.raises(Killed):
            finetune(files, *given, out="one")
    with pytest.MonkeyPatch.context() as patched:
        plain = rehead.finetune.run.fit_classifier

        def fit(*data: Any, **options: Any) -> Any:
            break_off(patched, 5)
            return plain(*data, **options)

        patched.setattr(rehead.finetune.run, "fit_classifier", fit)
        with pytest.raises(Killed):
            finetune(files, *given, out="two")
    assert (files / "two" / "checkpoints").exists()
    monkeypatch.setattr("rehead.finetune.own_base.pretrain_in", fail(AssertionError("pretrained again")))
    for out in ("one", "two"):
        capsys.readouterr()
        assert finetune(files, *given, "--resume", out=out) == 0
        assert "pretrained already" in capsys.readouterr().err
        assert weights(files / out) == weights(files / "straight")
        assert not (files / out / ".base").exists()


def test_other_text_is_not_resumed_with(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--unlabelled", str(files / "more.txt")]
    with pytest.MonkeyPatch.context() as patched:
        break_off(patched, 3)
        with pytest.raises(Killed):
            finetune(files, *given)
    assert finetune(files, "--resume") == 2
    assert "other --unlabelled" in capsys.readouterr().err
    write(files / "train.csv", reviews(58))
    assert finetune(files, *given, "--resume") == 2
    assert "other examples" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["rehead.finetune.own_base.pretrain_in", "rehead.finetune.run.fit_classifier"])
def test_the_run_before_comes_back_if_the_new_one_is_refused(files: Path, place: str) -> None:
    assert finetune(files, "--freeze", "base") == 0
    before = {each.name: each.read_bytes() for each in (files / "run").iterdir()}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(place, fail(UserError("no.")))
        assert finetune(files, "--overwrite") == 2
        assert finetune(files, out="new") == 2
    assert {each.name: each.read_bytes() for each in (files / "run").iterdir()} == before
    assert not any((files / "new").iterdir())
    assert finetune(files, "--overwrite", "--freeze", "base", "--seed", "1") == 0
    assert weights(files / "run") != before["model.safetensors"]


def test_the_run_before_answers_until_the_new_one_is_complete(files: Path) -> None:
    assert finetune(files, "--freeze", "base") == 0
    before = weights(files / "run")
    with pytest.MonkeyPatch.context() as patched:
        break_off(patched, 4)
        with pytest.raises(Killed):
            finetune(files, "--overwrite")
    assert weights(files / "run") == before
    assert load(files / "run").labels == ["bad", "good"]
    assert finetune(files, "--resume") == 0
    assert weights(files / "run") != before
    assert not [each for each in files.iterdir() if each.name.startswith(".")]


def test_a_full_disk_while_pretraining_loses_no_checkpoint(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert finetune(files, "--checkpoint-steps", "1", out="straight") == 0
    with faulty_disk(files, on("MANIFEST.json", "write", times=3), "full"):
        assert finetune(files, "--checkpoint-steps", "1") == 2
    assert "No space left on device" in (said := capsys.readouterr().err)
    assert "--resume" in said
    assert finetune(files, "--checkpoint-steps", "1", "--resume") == 0
    assert weights(files / "run") == weights(files / "straight")


def test_refused_before_anything_is_written(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(files / "odd.csv", reviews(9, 1, names=("bad", "good", "so")))
    for said, more in {
        "--vocab": ["--tokenizer", str(files / "tokenizer.json")],
        "--patience": ["--patience", "2"],
        "odd.csv line 4: the label 'so'": ["--valid", str(files / "odd.csv")],
        "nowhere.txt": ["--unlabelled", str(files / "nowhere.txt")],
        "--shard": ["--shard"],
        "--overwrite": ["--resume", "--overwrite"],
        "nhead": ["--preset", "small", "--nhead", "3"],
    }.items():
        assert finetune(files, *more) == 2, said
        assert said in capsys.readouterr().err.splitlines()[-1]
        assert not (files / "run").exists(), said
    assert finetune(files, "--vocab", "20") == 2
    assert "--vocab 20 is too small" in capsys.readouterr().err
    assert not any((files / "run").iterdir())


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("rehead.finetune.own_base.pretrain_in", Stopped(signal.SIGINT)),
        ("rehead.finetune.run.fit_classifier", KeyboardInterrupt()),
    ],
    ids=["pretraining", "cross-validation"],
)
def test_after_ctrl_c_it_says_how_to_resume(
    files: Path, place: str, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(place, fail(error))
        assert finetune(files) == 130
    assert "Resume with: rehead" in capsys.readouterr().err
    assert finetune(files, "--resume") == 0


def test_from_python(files: Path) -> None:
    run = rehead.finetune(files / "train.csv", out=files / "run", unlabelled=files / "more.txt", vocab=320, quiet=True)
    assert run.details["pretraining"]["text"]["documents"] == 160
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rehead.finetune.own_base.pretrain_in", fail(Stopped(signal.SIGINT)))
        with pytest.raises(KeyboardInterrupt, match="resume=True"):
            rehead.finetune(files / "train.csv", out=files / "other", quiet=True)


@pytest.mark.slow
def test_several_processes_do_what_one_does(files: Path) -> None:
    words = ["-m", "rehead", "finetune", str(files / "train.csv"), "--unlabelled", str(files / "more.txt"), "--quiet"]
    words += [
        "--nhid",
        "16",
        "--vocab",
        "320",
        "--device",
        "cpu",
        "--precision",
        "float32",
        "--dropout",
        "0",
        *GRADIENT,
    ]
    many = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for command, out in (([sys.executable], "alone"), (many, "two")):
        done = subprocess.run(
            [*command, *words, "--out", str(files / out)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert not (files / out / ".base").exists()
    one, two = (load(files / name).model.state_dict() for name in ("alone", "two"))
    for name, tensor in one.items():
        np.testing.assert_allclose(two[name], tensor, atol=1e-3, err_msg=name)
    crossing = [each for each in words if each not in GRADIENT and each not in ("--dropout", "0", "--precision")]
    crossing.remove("float32")
    done = subprocess.run([*many, *crossing, "--out", str(files / "x")], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "cross-validation runs in one process" in done.stderr
