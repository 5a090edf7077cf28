"""What a step does, against a step written out by hand; what is held out; which weights a run ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import rehead.pretrain.run
from rehead.pretrain.causal import Causal
from rehead.pretrain.row_objective import RowObjective
from rehead.pretrain.run import run_pretraining
from rehead.training import loop
from rehead.training.objective import Objective
from rehead.training.optimizers import Optimizers, clip
from rehead.training.state import State
from tests.training.running import SMALL, left, metrics, shaped, small, straight

pytestmark = pytest.mark.usefixtures("quick")


class Seen:
    """The objective of a run, and the gradients of its first step, before and after they were clipped."""

    objective: Causal
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]
    norm: float


STATISTICS = "base.statistics."  # measured when training is done


def first_step(text: Path, out: Path, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Seen:
    seen = Seen()

    def clipped(parameters: Any, most: float) -> float:
        objective = seen.objective
        seen.before = {name: each.grad.clone() for name, each in objective.named_parameters() if each.grad is not None}
        seen.norm = clip(parameters, most)
        seen.after = {name: each.grad.clone() for name, each in objective.named_parameters() if each.grad is not None}
        raise RuntimeError("that is enough")

    plain = loop._Training.__init__

    def init(self: loop._Training, phase: loop.Phase, *rest: Any, **options: Any) -> None:
        assert isinstance(phase.objective, Causal)
        seen.objective = phase.objective
        plain(self, phase, *rest, **options)

    with monkeypatch.context() as patched, shaped(dropout=0.0):
        patched.setattr(loop, "clip", clipped)
        patched.setattr(loop._Training, "__init__", init)
        with pytest.raises(RuntimeError, match="that is enough"):
            run_pretraining(small(text, out, precision="float32", validations=0, **given))
    return seen


def by_hand(objective: Causal) -> dict[str, torch.Tensor]:
    """The gradients of the mean loss of the whole batch of step 0, through full logits."""
    ids = objective.read(0).tensors["ids"]
    assert ids.shape == (SMALL["batch"] // SMALL["length"], SMALL["length"] + 1)
    logits = objective.model(ids[:, :-1], causal=True)
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    named = dict(objective.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


@pytest.mark.parametrize("accumulate", [1, 3, 8, 11])
def test_parts_of_a_step_add_up_to_one_big_batch(
    accumulate: int, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 rows cut into parts of unequal size, and into more parts than there are rows."""
    seen = first_step(text, tmp_path / "run", monkeypatch, accumulate=accumulate)
    expected = by_hand(seen.objective)
    assert seen.before.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(seen.before[name], gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("most", [0.1, 1e6, 0])
def test_gradients_are_clipped_by_their_common_length(
    most: float, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = first_step(text, tmp_path / "run", monkeypatch, clip=most)
    length = float(torch.cat([each.flatten() for each in seen.before.values()]).norm())
    assert seen.norm == pytest.approx(length, rel=1e-5)
    assert length > 0.2
    factor = most / length if most == 0.1 else 1.0
    for name, gradient in seen.before.items():
        torch.testing.assert_close(seen.after[name], gradient * factor)


def test_parts_with_little_to_predict_count_by_what_they_predict(text: Path, tmp_path: Path) -> None:
    """Masked parts differ in how many tokens they hide: a mean of means would be something else."""
    with shaped(dropout=0.0):
        whole = straight(text, tmp_path / "whole", objective="masked", precision="float32")
        parts = straight(text, tmp_path / "parts", objective="masked", precision="float32", accumulate=5)
    for line, other in zip(whole.metrics, parts.metrics, strict=True):
        assert line["loss"] == pytest.approx(other["loss"], abs=1e-4)


def test_dropout_is_on_in_training_and_depends_on_the_seed_alone(text: Path, tmp_path: Path) -> None:
    with_dropout = straight(text, tmp_path / "a")
    torch.manual_seed(99)  # whatever the caller did before
    assert straight(text, tmp_path / "b") == with_dropout
    with shaped(dropout=0.0):
        assert straight(text, tmp_path / "c").weights != with_dropout.weights


def test_no_document_is_both_trained_on_and_held_out(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught: list[Any] = []
    plain = rehead.pretrain.run._prepare

    def prepare(*given: Any, **options: Any) -> Any:
        caught.append(plain(*given, **options))
        return caught[-1]

    monkeypatch.setattr(rehead.pretrain.run, "_prepare", prepare)
    run = run_pretraining(small(text, tmp_path / "run"))
    train, valid = caught[0].train, caught[0].valid
    assert not set(train.documents) & set(valid.documents)
    assert len(train) + len(valid) == 60
    assert run is not None
    assert run.details["text"]["held_out_documents"] == len(valid) > 0


def test_what_is_held_out_is_never_read_in_training(text: Path, tmp_path: Path) -> None:
    """Every held-out document has a word of its own; no batch of two epochs has it."""
    lines = text.read_text().splitlines()
    marked = tmp_path / "marked.txt"
    marked.write_text("".join(f"{line} number{place:03d}\n" for place, line in enumerate(lines)))
    caught: list[Causal] = []
    plain = loop._Training.__init__

    def init(self: loop._Training, phase: loop.Phase, *rest: Any, **options: Any) -> None:
        assert isinstance(phase.objective, Causal)
        caught.append(phase.objective)
        plain(self, phase, *rest, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop._Training, "__init__", init)
        run = run_pretraining(small(marked, tmp_path / "run"))
    assert run is not None
    assert run.tokenizer is not None
    decode, objective = run.tokenizer.decode, caught[0]
    rows = [row for step in range(50) for row in objective.read(step).tensors["ids"].tolist()]
    trained = " ".join(decode(row) for row in rows)
    held_out = " ".join(decode(row) for batch in objective.held_out() for row in batch.tensors["ids"].tolist())
    numbers = {f"number{place:03d}" for place in range(60)}
    kept = {each for each in numbers if each in held_out}
    assert kept
    assert not [each for each in kept if each in trained]
    assert len([each for each in numbers if each in trained]) > 30  # the search would find them


def test_a_run_ends_with_its_best_weights_and_keeps_its_last(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation is made to say that step 8 of 12 was best."""
    losses = iter((9.0, 3.0, 2.0, 4.0))
    monkeypatch.setattr(Causal, "report", lambda self, measures: {"loss": next(losses)})
    kept: dict[int, dict[str, torch.Tensor]] = {}
    plain = Optimizers.step
    steps = iter(range(1, 100))

    def step(self: Optimizers, factor: float, fraction: float) -> None:
        plain(self, factor, fraction)
        kept[next(steps)] = {name: each.detach().clone() for each, name in self.names.items()}

    monkeypatch.setattr(Optimizers, "step", step)
    run = run_pretraining(small(text, tmp_path / "run"))
    assert run is not None
    assert run.details["best_step"] == 8
    assert run.details["held_out"] == {"loss": 2.0}
    saved = load_file(tmp_path / "run" / "model.safetensors")
    last = load_file(tmp_path / "run" / "checkpoints" / "step-000012" / "model.safetensors")
    for name, tensor in saved.items():
        assert torch.equal(run.model.state_dict()[name], tensor)
        if not name.startswith(STATISTICS):
            assert torch.equal(tensor, kept[8][f"model.{name}"])
            assert torch.equal(last[f"model.{name}"], kept[12][f"model.{name}"])
    assert run.model.base.statistics.known
    assert any(not torch.equal(kept[8][name], kept[12][name]) for name in kept[8])
    assert left(tmp_path / "run").best is not None


def test_without_validations_the_last_weights_are_the_run(text: Path, tmp_path: Path) -> None:
    run = run_pretraining(small(text, tmp_path / "run", validations=0))
    assert run is not None
    assert run.details["best_step"] == 0
    assert [line["kind"] for line in metrics(tmp_path / "run")] == ["train", "train"]
    last = load_file(tmp_path / "run" / "checkpoints" / "step-000012" / "model.safetensors")
    for name, tensor in run.model.state_dict().items():
        assert name.startswith(STATISTICS) or torch.equal(tensor, last[f"model.{name}"])


def test_training_lowers_the_held_out_loss(text: Path, tmp_path: Path) -> None:
    run_pretraining(small(text, tmp_path / "run", epochs=6, lr_scale=3))
    valid = [line["loss"] for line in metrics(tmp_path / "run") if line["kind"] == "valid"]
    assert valid[-1] < valid[0] - 1


def test_an_objective_takes_the_model_over_once_where_its_phase_begins(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    monkeypatch.setattr(RowObjective, "adapt_trained_model", lambda self: taken.append(self.name))
    run_pretraining(small(text, tmp_path / "run", objective="causal,masked,causal"))
    assert taken == ["masked", "causal"]


def test_a_watcher_is_called_at_every_validation_and_changes_nothing(text: Path, tmp_path: Path) -> None:
    """What it draws from torch's own generator does not reach the run: every step seeds its dropout."""
    seen: list[tuple[float, int]] = []

    def watch(objective: Objective, state: State, fraction: float) -> None:
        seen.append((fraction, state.step))
        torch.rand(3)
        with objective.model.evaluating():
            objective.model(torch.zeros(1, 4, dtype=torch.int64))

    with shaped():
        run_pretraining(small(text, tmp_path / "watched"), watch=watch)
        run_pretraining(small(text, tmp_path / "alone"))
    validated = [line["step"] for line in metrics(tmp_path / "watched") if line["kind"] == "valid"]
    assert [step for _, step in seen] == validated
    assert seen[0] == (0.0, 0)
    assert seen[-1][0] == 1
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("watched", "alone"))
    assert all(torch.equal(each, other[name]) for name, each in one.items())
