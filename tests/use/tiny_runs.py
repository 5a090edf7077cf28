"""The smallest runs, over five words, and what a command prints about them."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers

from rehead.cli import main
from rehead.runs.run import Run
from rehead.text.tokenizer import Tokenizer
from tests.model.conftest import alive, miniature


def tiny_tokenizer() -> Tokenizer:
    words = ["<s>", "<pad>", "</s>", "<unk>", "[MASK]", "a", "truly", "good", "film"]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return Tokenizer(inner)


def a_run(name: str = "lab", **changes: Any) -> Run:
    """A classifier with random weights."""
    config = miniature(name, nlayers=min(1, miniature(name).nlayers), nhid=8, ntokens=12, **changes)
    return Run(alive(config, config.classifier(2)), tiny_tokenizer(), ["negative", "positive"], {"seed": 7})


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    """Run a command in this process; give what it printed."""
    assert main(arguments) == code
    captured = capsys.readouterr()
    return captured.out, captured.err
