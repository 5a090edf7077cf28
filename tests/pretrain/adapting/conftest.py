"""A text in the words of the tiny checkpoints, and one thread."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.bases.tiny import WORDS, make_encoder, make_sentence_encoder
from tests.training.conftest import one_thread, quick

__all__ = ["one_thread", "quick"]


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 documents of two kinds, about 2,000 tokens; every word says which word is likely to follow."""
    draw = random.Random(1)
    lines = []
    for _ in range(150):
        at = draw.randrange(len(WORDS))
        line = []
        for _ in range(draw.randint(5, 20)):
            line.append(WORDS[at])
            at = (at + draw.choice((1, 1, 1, 2))) % len(WORDS)
        lines.append(" ".join(line))
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("bert") / "bert", head="AutoModelForMaskedLM")


@pytest.fixture(scope="session")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence encoder with all that its directory may have."""
    made = make_sentence_encoder(
        tmp_path_factory.mktemp("sentences") / "st", {"pooling_mode_mean_tokens": True}, dense=8, normalize=True
    )
    (made / "LICENSE").write_text("as you like", encoding="utf-8")
    (made / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    return made
