"""Checkpoints: whole or not at all, and believed only after looking. Damage of every kind, of every file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rehead.disk import read_checksummed_json, write_checksummed_json
from rehead.errors import DamagedError, UserError
from rehead.model.config import preset
from rehead.model.model import Model
from rehead.pretrain.options import PretrainOptions
from rehead.pretrain.run import run_pretraining
from rehead.training import checkpoint
from rehead.training.checkpoint import FILES, MANIFEST, Checkpoint
from rehead.training.loop import BEST, CHECKPOINTS
from rehead.training.optimizers import Optimizers, Rates
from tests.training.running import broken_off, left, small, straight
from tests.training.still import Still

pytestmark = pytest.mark.usefixtures("quick")


def made(step: int = 7) -> Checkpoint:
    weights = {"model.w": torch.arange(6.0).reshape(2, 3), "model.b": torch.tensor([1.5])}
    return Checkpoint(weights, {"model.w/step": torch.tensor(3.0)}, {"step": step, "note": "ü"})


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def flipped(file: Path) -> None:
    """One bit, near the end: in a tensor, or in a digest."""
    content = bytearray(file.read_bytes())
    content[-6] ^= 1
    file.write_bytes(content)


def deleted(file: Path) -> None:
    file.unlink()


def replaced_by_a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = (truncated, emptied, flipped, deleted, replaced_by_a_directory)
damages = pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    path = checkpoint.save(made(), tmp_path)
    assert path.name == "step-000007"
    found = checkpoint.load(path)
    assert found.state == made().state
    for given, kept in ((made().model, found.model), (made().optimizer, found.optimizer)):
        assert given.keys() == kept.keys()
        assert all(torch.equal(given[name], kept[name]) for name in given)


@damages
@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_a_damaged_checkpoint_is_not_believed(damage: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    path = checkpoint.save(made(), tmp_path)
    damage(path / name)
    with pytest.raises(DamagedError, match="step-000007"):
        checkpoint.load(path)


def test_one_of_another_version_is_not_believed(tmp_path: Path) -> None:
    path = checkpoint.save(made(), tmp_path)
    write_checksummed_json(path / MANIFEST, read_checksummed_json(path / MANIFEST) | {"format": 2})
    with pytest.raises(DamagedError, match="format 2 is not known"):
        checkpoint.load(path)


def test_the_newest_good_one_is_found(tmp_path: Path) -> None:
    said: list[str] = []
    assert checkpoint.newest(tmp_path / "none", said.append) is None
    for step in (9, 10, 999_999, 1_000_000):  # by number, not by name
        checkpoint.save(made(step), tmp_path)
    newest = checkpoint.newest(tmp_path, said.append)
    assert newest is not None
    assert newest.state["step"] == 1_000_000
    assert not said
    flipped(tmp_path / "step-1000000" / "model.safetensors")
    newest = checkpoint.newest(tmp_path, said.append)
    assert newest is not None
    assert newest.state["step"] == 999_999
    assert len(said) == 1
    assert "step-1000000" in said[0]


def test_what_is_half_written_is_no_checkpoint_and_is_cleared(tmp_path: Path) -> None:
    path = checkpoint.save(made(3), tmp_path)
    for name in (".step-000004.abc.partial", ".step-000001.gone", ".step-000002.xyz.old"):
        shutil.copytree(path, tmp_path / name)
    assert checkpoint.listed(tmp_path) == [path]
    checkpoint.clear_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_clearing(tmp_path: Path) -> None:
    def steps() -> list[int]:
        return [int(path.name.removeprefix("step-")) for path in checkpoint.listed(tmp_path)]

    for step in range(1, 8):
        checkpoint.save(made(step), tmp_path)
    checkpoint.clear(tmp_path, keep=5)
    assert steps() == [3, 4, 5, 6, 7]
    checkpoint.clear_after(tmp_path, 6)
    assert steps() == [3, 4, 5, 6]
    (tmp_path / ".step-000005.gone").mkdir()  # half a deletion, when the run was killed
    (tmp_path / ".step-000005.gone" / "left").touch()
    checkpoint.clear_but(tmp_path, {4, 6, 100})
    assert steps() == [4, 6]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["step-000004", "step-000006"]


# Whole runs: broken off with checkpoints of steps 6 and 8 there.


@pytest.fixture
def broken(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretrainOptions:
    broken_off(small(text, tmp_path / "run", checkpoint_steps=2), 12)
    there = [path.name for path in checkpoint.listed(tmp_path / "run" / CHECKPOINTS)]
    assert there == ["step-000006", "step-000008"]
    return small(text, tmp_path / "run", checkpoint_steps=5, resume=True, quiet=False)


@damages
@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_the_one_before_a_damaged_one_is_used_and_the_user_is_told(
    damage: Callable[[Path], None],
    name: str,
    broken: PretrainOptions,
    text: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    damage(broken.out / CHECKPOINTS / "step-000008" / name)
    run_pretraining(broken)
    said = capfd.readouterr().err
    assert "a damaged checkpoint: " in said
    assert "step-000008" in said
    assert "resuming at step 6" in said
    assert left(broken.out) == straight(text, tmp_path / "straight")


def test_when_all_are_damaged_the_user_decides(broken: PretrainOptions, tmp_path: Path) -> None:
    for path in checkpoint.listed(broken.out / CHECKPOINTS):
        flipped(path / "optimizer.safetensors")
    with pytest.raises(UserError, match=r"no intact checkpoint in .*--overwrite"):
        run_pretraining(broken)
    assert len(checkpoint.listed(broken.out / CHECKPOINTS)) == 2  # nothing was deleted


def test_a_checkpoint_of_another_model_does_not_fit(broken: PretrainOptions, text: Path, tmp_path: Path) -> None:
    """Digests are right, names and shapes are not: a directory put together by hand."""
    run_pretraining(small(text, tmp_path / "other", nhid=32))
    theirs = tmp_path / "other" / CHECKPOINTS / "step-000012"
    shutil.copytree(theirs, broken.out / CHECKPOINTS / "step-000012")
    with pytest.raises(DamagedError, match=r"does not fit.* instead of"):
        run_pretraining(broken)


@pytest.mark.parametrize("key", ["lines", "phase", "added"])
def test_a_state_of_another_version_is_refused(key: str, broken: PretrainOptions) -> None:
    path = broken.out / CHECKPOINTS / "step-000008"
    state: dict[str, Any] = json.loads((path / "state.json").read_text())
    state.pop(key, None) if key in state else state.update({key: 1})
    found = checkpoint.load(path)
    shutil.rmtree(path)
    checkpoint.save(Checkpoint(found.model, found.optimizer, state), path.parent)
    with pytest.raises(DamagedError, match="not of this version"):
        run_pretraining(broken)


def test_a_best_model_that_is_lost_leaves_the_last(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    options = small(text, tmp_path / "run", checkpoint_steps=1, quiet=False, lr_scale=1000)
    losses = iter((3.0, 2.0, 5.0, 5.0))
    monkeypatch.setattr("rehead.pretrain.causal.Causal.report", lambda self, measures: {"loss": next(losses)})
    broken_off(options, 14)
    flipped(options.out / CHECKPOINTS / BEST / "step-000004" / "model.safetensors")
    options.resume = True
    run = run_pretraining(options)
    assert run is not None
    assert "the best weights, of step 4, are lost, and the last ones are kept" in capfd.readouterr().err
    assert run.details["best_step"] == 12
    assert left(options.out).weights[-64:] == left(options.out).model[-64:]


def test_a_tokenizer_or_description_that_was_changed_is_refused(broken: PretrainOptions) -> None:
    file = broken.out / "tokenizer.json"
    content = file.read_text()
    file.write_text(content + " ")
    with pytest.raises(DamagedError, match=r"tokenizer\.json: not the file that was saved"):
        run_pretraining(broken)
    file.write_text(content)
    flipped(broken.out / "pretrain.json")
    with pytest.raises(DamagedError, match=r"pretrain\.json"):
        run_pretraining(broken)


def test_tokens_that_were_damaged_are_made_again(
    broken: PretrainOptions, text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flipped(broken.out / "tokens" / "ids.bin")
    run_pretraining(broken)
    assert "encoding again" in capfd.readouterr().err
    assert left(broken.out) == straight(text, tmp_path / "straight")


def test_state_of_another_optimizer_is_refused() -> None:
    torch.manual_seed(0)
    config = preset("lab", ntokens=10, nhid=4, nlayers=1)
    optimizers = Optimizers(Still(Model(config, config.language_model())), Rates(), "adamw", sharded=False)
    name = "model.base.embedding.weight"
    optimizers.load({f"{name}/exp_avg": torch.zeros(10, 4)})
    with pytest.raises(DamagedError, match=r"squares', which AdamW does not keep"):
        optimizers.load({f"{name}/squares": torch.zeros(10)})
    with pytest.raises(DamagedError, match="no part of this run"):
        optimizers.load({"other/exp_avg": torch.zeros(1)})


def test_too_few_tokens_are_refused(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("two words\nthree small words\n", encoding="utf-8")
    with pytest.raises(UserError, match="tokens to learn from"):
        run_pretraining(small(tmp_path / "two.txt", tmp_path / "run"))
    assert not any((tmp_path / "run").iterdir())
