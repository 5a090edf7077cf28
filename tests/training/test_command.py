"""`rehead pretrain` as a user meets it: what it writes and says, what it refuses; and the same from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rehead
from rehead.cli import main
from rehead.errors import UserError
from rehead.pretrain.causal import Causal
from rehead.pretrain.run import run_pretraining
from tests.training.running import command, left, small, straight, words

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.slow
def test_a_run_needs_nothing_but_text_and_a_place(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default model and objective."""
    assert main(["pretrain", str(text), "--out", str(tmp_path / "runs" / "base")]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{tmp_path / 'runs' / 'base'}: n-gram vectors, no layers; objective bag, ")
    assert "\nheld out: " in said.out
    assert "tokens are little text" in said.err
    run = rehead.load(tmp_path / "runs" / "base")
    assert run.details["objective"] == "bag"
    assert run.tokenizer is not None
    assert sorted(each.name for each in (tmp_path / "runs" / "base").iterdir()) == [
        "README.md", "checkpoints", "config.json", "metrics.jsonl", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip


def test_the_command_and_python_do_the_same(text: Path, tmp_path: Path) -> None:
    given = {**vars(small(text, tmp_path / "python"))}
    del given["texts"]
    run = rehead.pretrain([text], **given)
    done = command(words(text, tmp_path / "command"))
    assert (done.returncode, done.stderr) == (0, "")  # --quiet: no progress, no notes
    assert done.stdout.startswith(
        f"{tmp_path / 'command'}: a Transformer of 1 layer; objective causal, 1,536 tokens in 12 steps"
    )
    assert "held out: loss" in done.stdout
    assert left(tmp_path / "command") == left(tmp_path / "python") == straight(text, tmp_path / "straight")
    loaded = rehead.load(tmp_path / "command")
    assert loaded.details["steps"] == run.details["steps"] == 12
    for name, tensor in run.model.state_dict().items():
        assert tensor.equal(loaded.model.state_dict()[name])


@pytest.mark.parametrize(
    ("given", "trained", "note"),
    [
        ({"preset": "bag", "objective": None}, "training n-gram vectors, no layers", None),
        ({"preset": "lab", "objective": None}, "training a Transformer of 1 layer", None),
        ({"preset": "base", "objective": None}, "training a Transformer of 1 layer", None),
        ({"preset": "base", "objective": "bag"}, "training token vectors, no layers", "bag trains none of the layers"),
        (
            {"preset": "bag", "objective": "causal"},
            "training n-gram vectors, no layers",
            "language model without layers",
        ),
    ],
    ids=["bag", "lab", "base", "bag with layers", "causal without layers"],
)
def test_it_says_which_part_learns(
    given: dict[str, Any],
    trained: str,
    note: str | None,
    text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dials = {"nlayers": None} if given["preset"] == "bag" else {}
    assert main(words(text, tmp_path / "run", quiet=False, epochs=0.1, **given, **dials)) == 0
    said = capsys.readouterr()
    assert trained in said.err
    assert trained.removeprefix("training ") in said.out
    notes = [line for line in said.err.splitlines() if line.startswith("note: ") and "little text" not in line]
    assert len(notes) == (note is not None), notes
    assert all(str(note) in line for line in notes), notes
    wanted = given["objective"] or {"bag": "bag", "lab": "causal", "base": "bag,causal"}[given["preset"]]
    assert rehead.load(tmp_path / "run").details["objective"] == wanted


def test_python_names_an_option_that_there_is_not(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pretrain has no option 'epoch'. It has: .*epochs"):
        rehead.pretrain(text, out=tmp_path / "run", epoch=1)


def test_held_out_text_that_is_too_little_to_tell(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was hidden, as in a single word: there is no loss to go by, and the last weights are kept."""
    monkeypatch.setattr(Causal, "report", lambda self, measures: {"loss": float("nan"), "perplexity": float("nan")})
    assert main([*words(text, tmp_path / "run", quiet=False), "--checkpoint-steps", "1"]) == 0
    assert capsys.readouterr().out.endswith("held out: nothing that could be measured\n")
    assert rehead.load(tmp_path / "run").details["held_out"] == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tokens": 100}, "--epochs and --tokens"),
        ({"epochs": 0}, "--epochs 0: must be above 0"),
        ({"epochs": "nan"}, "--epochs nan: must be above 0"),
        ({"epochs": None, "tokens": "1e30"}, "--tokens 1e+30: must be above 0 and below 1e+18"),
        ({"epochs": None, "minutes": -1}, "--minutes -1: must be above 0"),
        ({"length": 1}, "--length 1: must be 2 or more"),
        ({"batch": 8}, "--batch 8 is less than one sequence of --length 16"),
        ({"accumulate": 0}, "--accumulate 0: must be 1 or more"),
        ({"lr": 0}, "--lr 0: must be above 0"),
        ({"lr": 3}, "at most 0.1. To multiply the default learning rates by a factor, give --lr-scale"),
        ({"lr": "nan"}, "--lr nan"),
        ({"lr_scale": 0}, "--lr-scale 0: must be above 0"),
        ({"lr_scale": "inf"}, "--lr-scale inf"),
        ({"lr": 1e-3, "lr_scale": 2}, "--lr 0.001 and --lr-scale 2"),
        ({"clip": -1}, "--clip -1: must be 0 or more"),
        ({"warmup_ratio": 0.8}, "--warmup-ratio 0.8 and --decay-ratio 0.5"),
        ({"checkpoint_steps": "0"}, "--checkpoint-steps 0: must be 1 or more"),
        ({"checkpoint_minutes": "nan"}, "--checkpoint-minutes nan: must be 0 or more"),
        ({"seed": 2**63}, "must fit into 64 bits"),
        ({"objective": "next"}, "'next'. Choose from: causal, masked, hybrid, document"),
        ({"objective": "causal:0.5,masked:0.4"}, "the shares add up to 0.9"),
        ({"next_sentence": True}, "--next-sentence goes with --objective masked"),
        ({"resume": True, "overwrite": True}, "Give one"),
        ({"mask_probability": 1.5, "objective": "masked"}, "--mask-probability 1.5: must be between 0 and 1"),
        ({"causal_rows": 0, "objective": "hybrid"}, "--causal-rows 0: must be between 0 and 1"),
        (
            {"mask_probability": 0.2, "objective": "causal"},
            "--mask-probability goes with --objective masked or hybrid, not with causal",
        ),
        ({"causal_rows": 0.2, "objective": "masked"}, "--causal-rows goes with --objective hybrid, not with masked"),
        ({"nhid": 15}, "nhead"),
        ({"device": "tpu"}, "invalid choice"),
        ({"preset": "huge"}, "invalid choice"),
    ],
    ids=lambda each: None if isinstance(each, str) else "-".join(f"{name}={value}" for name, value in each.items()),
)
def test_what_makes_no_sense_is_one_line_and_leaves_nothing(
    given: dict[str, Any], said: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = [str(each) for each in words(text, out, **given)]
    try:
        code = main(arguments)
    except SystemExit as ended:  # as argparse does
        code = int(ended.code or 0)
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not out.exists() or not list(out.iterdir())


def test_compiling_takes_a_compiler(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler.*no-such-compiler"):
        run_pretraining(small(text, tmp_path / "run", compile=True, device="cpu"))
    run_pretraining(small(text, tmp_path / "run", resume=True))


def test_text_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", str(tmp_path / "none.txt"), "--out", str(tmp_path / "run")]) == 2
    assert "none.txt" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_place_that_is_taken(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").write_text("a letter")
    assert main(words(text, tmp_path / "run", overwrite=True)) == 2
    assert "exists already and is not a directory" in capsys.readouterr().err
    assert (tmp_path / "run").read_text() == "a letter"


def test_a_run_that_is_not_finished_says_so_when_it_is_loaded(text: Path, tmp_path: Path) -> None:
    from tests.training.running import broken_off

    broken_off(small(text, tmp_path / "run"), 5)
    with pytest.raises(UserError, match=r"its training has not finished. Go on with it: add --resume"):
        rehead.load(tmp_path / "run")
