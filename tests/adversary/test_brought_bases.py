"""Brought bases from strangers: their tokenizers pass the same gate, and what was checked is what answers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rehead.bases.sources import open_brought
from rehead.errors import UserError
from tests.bases.tiny import TEXTS, make_encoder, make_model2vec

MAKERS = {"encoder": make_encoder, "static": make_model2vec}


@pytest.fixture(params=list(MAKERS))
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return MAKERS[request.param](tmp_path / "base")


def test_a_tokenizer_bomb_is_refused(base: Path) -> None:
    file = base / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 16}
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [step] * 8}
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(UserError, match="4,294,967,296 characters of one"):
        _ = open_brought(base).engine


def test_a_tokenizer_with_dropout_answers_alike_and_says_so(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = base / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    tail = ["<s>", "<pad>", "</s>", "<unk>", *"filmbad", "fi", "lm", "film", "ba", "bad"]
    tail = list(dict.fromkeys(tail))
    assert len(tail) <= len(vocabulary)
    merges = [["f", "i"], ["l", "m"], ["fi", "lm"], ["b", "a"], ["ba", "d"]]
    model = {"type": "BPE", "dropout": 0.5, "unk_token": "<unk>", "vocab": {t: n for n, t in enumerate(tail)}}
    tokenizer["model"] = {**model, "merges": merges}
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    engine = open_brought(base).engine
    assert "BPE dropout of 0.5 is switched off" in capsys.readouterr().err
    texts = ["bad film " * 10]
    assert len({engine.encode(texts).tobytes() for _ in range(8)}) == 1


def test_what_was_checked_is_what_answers(base: Path) -> None:
    brought = open_brought(base)
    before = brought.engine.encode(TEXTS).tobytes()
    weights = base / "model.safetensors"
    with weights.open("r+b") as file:  # in place: the same file, as a mapping would see it
        file.seek(-400, os.SEEK_END)
        file.write(os.urandom(400))
    assert brought.engine.encode(TEXTS).tobytes() == before
    weights.write_bytes(b"")
    assert brought.engine.encode(TEXTS).tobytes() == before


def test_files_that_change_before_they_are_read_are_refused(base: Path) -> None:
    brought = open_brought(base)
    brought._engine = None
    config = base / "config.json"
    config.write_text(config.read_text(encoding="utf-8") + " ", encoding="utf-8")
    with pytest.raises(UserError, match="has changed since it was checked"):
        _ = brought.engine
