"""`rehead lab`, with everything made tiny: what it writes, what it refuses, and that it goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rehead.cli import main
from rehead.compare.results import from_json
from rehead.lab import data, plan, pretraining
from rehead.lab.data import prompt_of, with_masks
from rehead.lab.facts import LabFacts
from rehead.lab.options import LabOptions
from rehead.locks import locked
from rehead.pretrain.options import PretrainOptions
from tests.compare.conftest import quick, reviews

__all__ = ["quick"]

TINY = ["--minutes", "0.5", "--vocab", "300", "--nhid", "8", "--nlayers", "1", "--seeds", "1", "--labels", "10,20"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretraining, "LENGTH", 16)
    monkeypatch.setattr(pretraining, "BATCH", 64)
    monkeypatch.setattr(pretraining, "WRITTEN_TOKENS", 3)
    monkeypatch.setattr(pretraining, "pretraining_minutes", lambda minutes, runs: 0.02)
    monkeypatch.setattr(plan, "LENGTHS", (16,))
    texts = reviews(200, seed=3).texts
    (tmp_path / "text.txt").write_text("\n".join(texts), encoding="utf-8")
    rows = reviews(80, seed=1)
    lines = [f"{text},{label[0]}" for text, label in zip(rows.texts, rows.labels, strict=True)]
    (tmp_path / "labelled.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    return tmp_path


def words(*more: str) -> list[str]:
    return ["lab", "--text", "text.txt", "--labelled", "labelled.csv", "--out", "lab", *TINY, *more]


@pytest.mark.usefixtures("quick")
def test_from_texts_to_page_and_on_after_an_interruption(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = pretraining.pretrain_watched

    def stopping(options: PretrainOptions, name: str, *rest: Any) -> None:
        if name == "hybrid":
            raise KeyboardInterrupt
        original(options, name, *rest)

    monkeypatch.setattr(pretraining, "pretrain_watched", stopping)
    assert main(words("--sentence", "a lovely film with a superb end")) == 130
    made = Path("lab/causal/model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(pretraining, "pretrain_watched", original)
    capsys.readouterr()
    assert main(words("--sentence", "another sentence", "--resume")) == 2
    assert "another --sentence" in capsys.readouterr().err
    assert main(words("--sentence", "a lovely film with a superb end", "--resume")) == 0
    out, err = capsys.readouterr()
    assert Path("lab/causal/model.safetensors").stat().st_mtime_ns == made
    assert [line[:2] for line in out.splitlines()[:5]] == ["1.", "2.", "3.", "4.", "5."]
    assert "left)" in err
    facts = from_json(LabFacts, json.loads(Path("lab/lab.json").read_text(encoding="utf-8")))
    assert [each.name for each in facts.pretraining] == ["causal", "masked", "hybrid", "next-sentence"]
    assert facts.head.changed_bytes == 0
    assert facts.counting.checked
    by_name = {each.name: each for each in facts.pretraining}
    assert {each.objective.partition(":")[0] for each in facts.pretraining} == {"bag"}
    assert len({each.parameters for each in facts.pretraining}) <= 2  # next-sentence is not part of the run's model
    causal, masked, hybrid = (by_name[name].snapshots[-1] for name in ("causal", "masked", "hybrid"))
    assert causal.written is not None
    assert causal.filled is None
    assert masked.written is None
    assert masked.filled is not None
    assert hybrid.written is not None
    assert hybrid.filled is not None
    kinds = [each.kind for each in facts.comparison.methods]
    assert kinds == ["scratch", *["pretrained"] * 4]
    page = Path("lab/lab.html").read_text(encoding="utf-8")
    assert "a lovely film" in page
    assert main(words("--sentence", "a lovely film with a superb end", "--resume")) == 2
    assert "complete" in capsys.readouterr().err
    begun: list[str] = []

    def begin(options: PretrainOptions, watch: object) -> None:
        begun.append(options.out.name)
        if len(begun) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(pretraining, "run_pretraining", begin)
    assert main(words("--overwrite")) == 130
    assert main(words("--resume")) != 0  # nothing was made here, so it ends later
    assert begun[:5] == ["causal", "masked", "masked", "hybrid", "next-sentence"], "the replaced lab's are not taken"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--resume", "--overwrite"], "Give one"),
        (["--minutes", "0"], "--minutes 0: must be 0.5 or more"),
        (["--seeds", "0"], "--seeds 0"),
        (["--labels", "2"], "--labels"),
        (["--sentence", " "], "--sentence is empty"),
        (["--nhid", "7"], "nhid"),
        (["--resume"], "no lab to resume"),
    ],
)
def test_what_it_refuses(place: Path, more: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(*more)) == 2
    assert said in capsys.readouterr().err
    assert not Path("lab/causal").exists()


def test_text_and_labels_come_together(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "--text", "text.txt", "--out", "lab"]) == 2
    assert "--text is given without --labelled" in capsys.readouterr().err


def test_what_is_there_is_kept(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("lab").mkdir()
    Path("lab/mine.txt").write_text("keep me", encoding="utf-8")
    assert main(words("--overwrite")) == 2
    assert "'mine.txt', which would be lost" in capsys.readouterr().err


def test_a_second_lab_is_told_who_has_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("lab/causal").mkdir(parents=True)
    with locked(Path("lab")):
        assert main(words("--overwrite")) == 2
    assert "is being written by process" in capsys.readouterr().err
    assert Path("lab/causal").exists()


@pytest.mark.parametrize(("processor", "precision"), [({"avx512_bf16": True}, "bfloat16"), ({}, "auto")])
def test_layers_are_trained_in_bfloat16_where_the_processor_has_it(
    place: Path, processor: dict[str, bool], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: processor)
    options = LabOptions(out=Path("lab"), text=["text.txt"], labelled=["labelled.csv"])
    assert pretraining.pretraining_options(options, data.locate(options), "masked").precision == precision


def test_the_fifth_that_is_measured_on_is_counted(place: Path) -> None:
    options = LabOptions(out=Path("lab"), text=["text.txt"], labelled=["labelled.csv"])
    assert data.count_measured(options, data.locate(options)) == 16
    assert data.count_measured(LabOptions(out=Path("lab")), data.locate(LabOptions(out=Path("lab")))) == data.MEASURED


def test_masks_stand_for_the_longest_word_of_each_half() -> None:
    assert with_masks("a lovely film, with a superb end") == ("a [MASK] film, with a [MASK] end", ["lovely", "superb"])
    assert with_masks("film") == ("[MASK]", ["film"])
    assert prompt_of("a lovely film with a superb end") == "a lovely"


def test_a_sentence_is_taken_from_the_labelled_texts(place: Path) -> None:
    options = LabOptions(out=Path("lab"), text=["text.txt"], labelled=["labelled.csv"])
    texts = data.locate(options)
    sentence = data.choose_sentence(options, texts)
    assert sentence
    assert sentence in " ".join(Path("labelled.csv").read_text().split())
    assert data.training_sizes(options, texts) == (12, 51)
