"""What a run may be resumed with, and what it is refused for, by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import rehead
from rehead.errors import UserError
from rehead.pretrain.directory import open_directory
from rehead.pretrain.options import PretrainOptions
from rehead.pretrain.run import run_pretraining
from rehead.training.options import FREE_TO_CHANGE
from tests.training.running import broken_off, left, small, straight

pytestmark = pytest.mark.usefixtures("quick")

# For every option another value than that of a small run, and how the two are said.
OTHERS: dict[str, tuple[Any, str]] = {
    "accumulate": (2, "with --accumulate 1, not with --accumulate 2"),
    "batch": (256, "with --batch 128, not with --batch 256"),
    "clip": (0.5, "with --clip 1.0, not with --clip 0.5"),
    "decay_ratio": (0.25, "with --decay-ratio 0.5, not with --decay-ratio 0.25"),
    "documents": ("block", "without --documents, not with --documents block"),
    "epochs": (1.5, "with --epochs 0.5, not with --epochs 1.5"),
    "input_format": ("txt", "without --input-format, not with --input-format txt"),
    "length": (8, "with --length 16, not with --length 8"),
    "lowercase": (True, "without --lowercase, not with --lowercase"),
    "lr": (0.05, "without --lr, not with --lr 0.05"),
    "lr_scale": (0.5, "with --lr-scale 1.0, not with --lr-scale 0.5"),
    "mask_probability": (0.2, "with --mask-probability 0.3, not with --mask-probability 0.2"),
    "max_document_mb": (8, "with --max-document-mb 16, not with --max-document-mb 8"),
    "next_sentence": (True, "without --next-sentence, not with --next-sentence"),
    "nhead": (1, "with --nhead 2, not with --nhead 1"),
    "nhid": (32, "with --nhid 16, not with --nhid 32"),
    "nlayers": (2, "with --nlayers 1, not with --nlayers 2"),
    "objective": ("hybrid", "with --objective masked, not with --objective hybrid"),
    "optimizer": ("muon", "with --optimizer adamw, not with --optimizer muon"),
    "precision": ("bfloat16", "with --precision auto, not with --precision bfloat16"),
    "preset": ("lab", "with --preset base, not with --preset lab"),
    "seed": (1, "with --seed 0, not with --seed 1"),
    "single_label": (True, "without --single-label, not with --single-label"),
    "skip_empty": (False, "with --skip-empty, not without --skip-empty"),
    "validations": (4, "with --validations 3, not with --validations 4"),
    "vocab": (320, "with --vocab 300, not with --vocab 320"),
    "warmup_ratio": (0.1, "with --warmup-ratio 0.02, not with --warmup-ratio 0.1"),
    "weight_decay": (0.2, "with --weight-decay 0.1, not with --weight-decay 0.2"),
}
# Those that are checked in other tests, or cannot be the only one that differs.
ELSEWHERE = {"base", "embeddings", "texts", "out", "tokenizer", "tokens", "minutes", "causal_rows"}
OF_COLUMNS = {
    "delimiter",
    "label_column",
    "no_quotes",
    "text_column",
}  # a text file has none


@pytest.fixture(scope="module")
def broken(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("broken") / "run"
    broken_off(small(text, out, objective="masked", checkpoint_steps=2), 9)
    return out


def test_every_option_is_free_or_compared() -> None:
    """A new option has to be put into one of the two lists."""
    names = {each.name for each in dataclasses.fields(PretrainOptions)}
    missing = names - FREE_TO_CHANGE - ELSEWHERE - OF_COLUMNS - OTHERS.keys()
    assert not missing, f"decide whether these may change when a run is resumed: {sorted(missing)}"


@pytest.mark.parametrize("name", OTHERS)
def test_another_option_is_refused_by_its_name(name: str, broken: Path, text: Path) -> None:
    value, said = OTHERS[name]
    before = sorted((path, path.stat().st_mtime_ns) for path in broken.rglob("*"))
    changes = {"objective": "masked", "resume": True, name: value}
    if name == "objective":
        changes["next_sentence"] = False
    with pytest.raises(UserError) as raised:
        run_pretraining(small(text, broken, **changes))
    assert str(raised.value).startswith(f"{broken} ")
    assert f" {said}." in str(raised.value)
    assert sorted((path, path.stat().st_mtime_ns) for path in broken.rglob("*")) == before


@pytest.mark.parametrize("name", ["tokens", "minutes"])
def test_another_budget_is_refused(name: str, broken: Path, text: Path) -> None:
    changes: dict[str, Any] = {"objective": "masked", "resume": True, "epochs": None, name: 1000}
    with pytest.raises(UserError, match=r"with --epochs 0.5, not without --epochs"):
        run_pretraining(small(text, broken, **changes))


def test_other_text_is_refused(broken: Path, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(text.read_text().replace("film", "flim", 1))
    with pytest.raises(UserError, match=r"other text than .*other\.txt"):
        run_pretraining(small(other, broken, objective="masked", resume=True))


def test_another_tokenizer_is_refused(broken: Path, text: Path) -> None:
    with pytest.raises(UserError, match=r"with another --tokenizer|without --vocab"):
        run_pretraining(
            small(text, broken, objective="masked", resume=True, vocab=None, tokenizer=broken / "tokenizer.json")
        )


def test_what_does_not_change_the_result_may_change(text: Path, tmp_path: Path) -> None:
    """The text and the run under other names, another cadence, another device that is the same."""
    expected = straight(text, tmp_path / "straight")
    broken_off(small(text, tmp_path / "run", checkpoint_steps=2), 9)
    moved, same = tmp_path / "moved", tmp_path / "same.txt"
    (tmp_path / "run").rename(moved)
    same.write_bytes(text.read_bytes())
    run_pretraining(
        small(same, moved, resume=True, checkpoint_steps=5, checkpoint_minutes=0.001, device="cpu", quiet=True)
    )
    assert left(moved) == expected


@pytest.mark.parametrize(
    ("given", "compared"),
    [
        ({}, False),
        ({"optimizer": "muon"}, True),
        ({"objective": "document"}, True),
        ({"preset": "small"}, True),  # whose n-grams are moved by rows
    ],
)
def test_a_sharded_run_stays_sharded_where_that_changes_the_optimizer(
    given: dict[str, Any], compared: bool, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert not open_directory(small(text, out, **given), "text", resume=False)
    again = small(text, out, **given, shard=True, resume=True)
    if compared:
        with pytest.raises(UserError, match="without --shard, not with --shard"):
            open_directory(again, "text", resume=True)
    else:
        open_directory(again, "text", resume=True)


def test_a_finished_run_has_nothing_to_resume(text: Path, tmp_path: Path) -> None:
    run_pretraining(small(text, tmp_path / "run"))
    with pytest.raises(UserError, match="is finished: there is nothing to resume"):
        run_pretraining(small(text, tmp_path / "run", resume=True))
    with pytest.raises(UserError, match="exists already"):
        run_pretraining(small(text, tmp_path / "run"))
    run_pretraining(small(text, tmp_path / "run", overwrite=True))


def test_where_there_is_no_run_there_is_nothing_to_resume(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run to resume"):
        run_pretraining(small(text, tmp_path / "none", resume=True))
    assert not (tmp_path / "none").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="holds no run to resume"):
        run_pretraining(small(text, tmp_path / "other", resume=True))
    with pytest.raises(UserError, match=r"'letter.txt', which would be lost"):
        run_pretraining(small(text, tmp_path / "other", overwrite=True))
    assert (tmp_path / "other" / "letter.txt").read_text() == "dear"


def test_a_place_that_was_refused_is_refused_after_a_restart(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun --max-restarts starts the command again, whatever it ended by."""
    out = tmp_path / "other"
    out.mkdir()
    (out / "letter.txt").write_text("dear")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(UserError, match="exists already"):
        run_pretraining(small(text, out))
    assert [each.name for each in out.iterdir()] == ["letter.txt"]
    run_pretraining(small(text, tmp_path / "none"))  # a process died before the directory was made


def test_a_place_where_nothing_was_begun_is_no_run(text: Path, tmp_path: Path) -> None:
    """Killed while the description was written."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".pretrain.json.partial").touch()
    run_pretraining(small(text, tmp_path / "run"))
    assert rehead.load(tmp_path / "run").details["steps"]


def test_a_run_that_was_begun_is_kept_from_a_second_beginning(broken: Path, text: Path) -> None:
    with pytest.raises(UserError, match=r"exists already: .*\(--resume\)"):
        run_pretraining(small(text, broken, objective="masked"))
    assert (broken / "pretrain.json").exists()


@pytest.mark.parametrize(
    ("content", "changes", "said"),
    [
        ("", {}, "no document|empty"),
        ("one line only\n", {"objective": "causal"}, "single document"),
        ("a\nb\nc\n", {}, "tokens to learn from"),
        ("all the letters of a line\n" * 40, {"length": 2048, "batch": 2048}, "fewer than a row of 2,048"),
        ("a\nb\nc\n", {"objective": "masked", "next_sentence": True, "length": 8}, "--length 8 is too short"),
    ],
    ids=["empty", "one document", "a few tokens", "shorter than a row", "too short rows"],
)
def test_text_that_is_too_small_is_said_and_leaves_nothing_behind(
    content: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    file, out = tmp_path / "text.txt", tmp_path / "run"
    file.write_text(content)
    for _ in range(2):  # the second time is no different
        with pytest.raises(UserError, match=said):
            run_pretraining(small(file, out, **changes))
    assert not out.exists() or not list(out.iterdir())


def test_a_run_is_replaced_only_when_the_new_one_can_begin(text: Path, tmp_path: Path) -> None:
    """A corpus that is one document is found out late, after it was encoded."""
    out = tmp_path / "run"
    run_pretraining(small(text, out))
    (tmp_path / "one.txt").write_text("a single document " * 200, encoding="utf-8")
    before = {each.name: each.read_bytes() for each in out.iterdir() if each.is_file()}
    with pytest.raises(UserError, match="single document"):
        run_pretraining(small(tmp_path / "one.txt", out, overwrite=True))
    assert {each.name: each.read_bytes() for each in out.iterdir() if each.is_file()} == before
    assert rehead.load(out).details["steps"]
    run_pretraining(small(text, out, overwrite=True, seed=5))
    assert rehead.load(out).details["seed"] == 5
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nhid": 15}, "nhid=15 is not divisible"),
        ({"mask_probability": 2.0}, "--mask-probability 2"),
        ({"causal_rows": 0.0}, "--causal-rows 0"),
        ({"objective": "masked", "next_sentence": True, "length": 8}, "--length 8 is too short for two sentences"),
        ({"shard": True}, "Start them with torchrun"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        run_pretraining(small(tmp_path / "there-is-no-such-file.txt", tmp_path / "run", **given))
    assert not (tmp_path / "run").exists()
