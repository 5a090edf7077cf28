"""A small corpus, its tokenizer and its two parts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from rehead.text.readers import Texts
from rehead.text.store import build_store
from rehead.text.store_subset import StoreSubset, hold_out
from rehead.text.tokenizer import Tokenizer

WORDS = ["the", "a", "film", "book", "was", "is", "very", "good", "bad", "great", "awful", "not", "plot", "end"]


class Corpus(NamedTuple):
    file: Path
    tokenizer: Tokenizer
    train: StoreSubset
    valid: StoreSubset


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    file = folder / "text.txt"
    draw = random.Random(1)
    lines = [" ".join(draw.choice(WORDS) for _ in range(draw.randint(5, 60))) for _ in range(120)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.train(Texts(file), vocab=320, quiet=True)
    store = build_store(Texts(file), tokenizer, folder / "tokens", quiet=True)
    return Corpus(file, tokenizer, *hold_out(store, 0.1, 10_000, seed=0))
