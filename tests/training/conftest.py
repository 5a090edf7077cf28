"""A small text, one thread, and nothing that takes time, for runs that are over in a second."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import rehead.disk
import rehead.pretrain.run
import rehead.runs.run

WORDS = "the a film book was is very good bad great awful not never story plot actor music end scene and but so"


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty documents, about 3,000 tokens."""
    draw = random.Random(1)
    file = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [" ".join(draw.choice(WORDS.split()) for _ in range(draw.randint(5, 40))) for _ in range(60)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiny matrices: a second thread would only wait, here and in the processes that are started."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the pictures, and waiting for the disk: both take longer than the run. Only a power cut would tell."""
    monkeypatch.setattr(rehead.pretrain.run, "_draw", lambda out, say: None)
    monkeypatch.setattr(rehead.disk, "fsync", lambda path: None)
    monkeypatch.setattr(rehead.runs.run, "fsync", lambda path: None)
