"""A run that was broken off and resumed ends byte for byte where the other one ends."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from rehead.pretrain.document import Document
from rehead.pretrain.run import run_pretraining
from rehead.training import checkpoint
from tests.training.running import Killed, Left, broken_off, left, needs_document, small, straight

pytestmark = pytest.mark.usefixtures("quick")

# Twelve steps of 8 rows, half an epoch; preset `base` has dropout.
OBJECTIVES: list[Any] = [
    {"objective": "causal"},
    {"objective": "masked"},
    {"objective": "masked", "next_sentence": True},
    {"objective": "hybrid"},
    {"objective": "causal+masked"},
    {"objective": "causal,masked"},
    pytest.param({"objective": "document"}, marks=needs_document),
    pytest.param({"objective": "document", "preset": "bag"}, marks=needs_document),
    pytest.param({"objective": "document,masked"}, marks=needs_document),
    pytest.param({"objective": "document+masked"}, marks=needs_document),
]


def test_the_same_command_gives_the_same_bytes(text: Path, tmp_path: Path) -> None:
    first = straight(text, tmp_path / "a")
    assert straight(text, tmp_path / "b") == first
    assert straight(text, tmp_path / "c", seed=1).weights != first.weights


@pytest.mark.parametrize("given", OBJECTIVES, ids=lambda given: "-".join(map(str, given.values())))
def test_every_objective_resumes_to_the_bit(
    given: dict[str, Any], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off three times, each time amid a step of three parts, with a checkpoint every other step."""
    given = {**given, "accumulate": 3}
    expected = straight(text, tmp_path / "straight", **given)
    out = tmp_path / "broken"
    broken_off(small(text, out, checkpoint_steps=2, **given), 12)
    for at in (5, 17):
        broken_off(small(text, out, checkpoint_steps=2, resume=True, **given), at)
    run_pretraining(small(text, out, checkpoint_steps=2, resume=True, **given))
    assert left(out) == expected


def test_a_bag_that_stops_early_resumes_to_the_bit(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops when the held-out loss no longer falls: also if that was counted by the process that was killed."""
    monkeypatch.setattr(Document, "selection_loss", lambda self, found: 1.0)  # no validation is better than the first
    given = {"preset": "bag", "objective": "bag", "nlayers": None, "epochs": None, "validations": 10}
    expected = straight(text, tmp_path / "straight", **given)
    assert expected.state["validated"] - expected.state["best_validated"] >= 3
    assert expected.state["validated"] < 10
    out = tmp_path / "broken"
    for at in (6, 3):
        broken_off(small(text, out, checkpoint_steps=1, resume=at == 3, **given), at)
    run_pretraining(small(text, out, checkpoint_steps=1, resume=True, **given))
    assert left(out) == expected


@pytest.mark.parametrize("given", [{"accumulate": 1}, {"accumulate": 3, "objective": "causal,masked"}])
def test_it_does_not_matter_where_a_run_is_broken_off(
    given: dict[str, Any], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every batch until there are no more: in every part of a step and every validation of either phase.

    Two epochs of five steps, so at their border too.
    """
    given = {**given, "batch": 640, "epochs": 2}
    expected = straight(text, tmp_path / "straight", **given)
    for at in itertools.count(1, 1 if given["accumulate"] == 1 else 3):
        out = tmp_path / str(at)
        try:
            broken_off(small(text, out, checkpoint_steps=1, **given), at)
        except pytest.fail.Exception:  # "DID NOT RAISE"
            break
        run_pretraining(small(text, out, checkpoint_steps=1, resume=True, **given))
        assert left(out) == expected, f"broken off at batch {at}"
    assert at >= 15


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7, 100])
def test_the_cadence_of_checkpoints_changes_nothing(
    steps: int, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"objective": "causal,masked", "accumulate": 2}
    expected = straight(text, tmp_path / "straight", **given)
    out = tmp_path / "broken"
    broken_off(small(text, out, checkpoint_steps=steps, **given), 21)
    run_pretraining(small(text, out, resume=True, **given))
    assert left(out) == expected


def test_a_run_broken_off_while_it_saves_goes_on(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call by which a checkpoint is written, deleted or flushed."""
    expected = straight(text, tmp_path / "straight")
    calls = [
        (checkpoint, name)
        for name in ("save_file", "write_json", "sha256", "write_checksummed_json", "clear", "_delete")
    ]
    for module, name in calls:
        out = tmp_path / name
        plain, seen = getattr(module, name), 0

        def killing(*arguments: Any, plain: Any = plain, **options: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == 5:
                raise Killed
            return plain(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(module, name, killing)
            with pytest.raises(Killed):
                run_pretraining(small(text, out, checkpoint_steps=2))
        run_pretraining(small(text, out, checkpoint_steps=3, resume=True))
        assert left(out) == expected, name


def test_a_best_model_stays_while_a_checkpoint_goes_by_it(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Better ones are found after the checkpoint, and the run is broken off before the next.

    Where time is the budget, the resumed run validates at other steps and might not find them again.
    """
    out = tmp_path / "run"
    broken_off(small(text, out, checkpoint_steps=4, validations=12), 13)
    kept = [path.name for path in checkpoint.listed(out / "checkpoints" / "best")]
    state = checkpoint.load(out / "checkpoints" / "step-000004").state
    assert state["best_step"] == 4
    assert checkpoint.name(4) in kept
    assert len(kept) > 1


def test_a_checkpoint_holds_what_the_run_is(text: Path, tmp_path: Path) -> None:
    result: Left = straight(text, tmp_path / "run", epochs=0.5)
    assert result.state["step"] == 12
    assert result.state["tokens"] == 12 * 128
    assert [line["step"] for line in result.metrics if line["kind"] == "train"] == [4, 8, 10, 12]
    assert [line["step"] for line in result.metrics if line["kind"] == "valid"] == [0, 4, 8, 12]
