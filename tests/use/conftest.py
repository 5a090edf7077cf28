"""Small runs that have really learnt something: a few dozen steps on a text that says the same things again."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

from rehead.model import Model
from rehead.runs.run import Run, save
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
from tests.model.conftest import miniature

# What is hidden in "a … apple" can only be told by what comes after it.
SENTENCES = ["a red apple fell.", "a green pear fell.", "a yellow lemon rolled.", "le café était bon. 🎬"]
TIME = 24


@functools.cache
def fruit_tokenizer() -> Tokenizer:
    texts = [Document(each, "fruit.txt", n) for n, each in enumerate(SENTENCES * 10, 1)]
    return Tokenizer.train(texts, vocab=310, quiet=True)


@functools.cache
def trained(objective: str, name: str = "small") -> Run:
    """Train for a moment, with the loss written out: next token, hidden token at its place, or one place before."""
    tokenizer = fruit_tokenizer()
    config = miniature(name, ntokens=tokenizer.vocab_size, nhid=32, dropout=0.0, maxlen=2 * TIME)
    torch.manual_seed(0)
    model = Model(config, config.language_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    documents = [[*tokenizer.encode(each), tokenizer.eos] for each in SENTENCES]
    for step in range(120 if objective == "hybrid" else 60):
        order = torch.randint(len(documents), (16, 20)).tolist()
        rows = [[tokenizer.eos, *(token for each in row for token in documents[each])][: TIME + 1] for row in order]
        ids = torch.tensor(rows)  # (B, T + 1)
        hide = torch.zeros_like(ids, dtype=torch.bool)
        if objective != "causal" and not (objective == "hybrid" and step % 2):
            hide[:, 1:] = torch.rand(ids[:, 1:].shape) < 0.2
            hide &= ids != tokenizer.eos
        given = ids.masked_fill(hide, tokenizer.mask or 0)
        if not hide.any():
            loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        elif objective == "hybrid":
            loss = torch.nn.functional.cross_entropy(model(given, causal=False)[:, :-1][hide[:, 1:]], ids[hide])
        else:
            loss = torch.nn.functional.cross_entropy(model(given, causal=False)[hide], ids[hide])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return Run(model.eval(), tokenizer, details={"objective": objective})


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Write a run once; give its path."""

    @functools.cache
    def path(objective: str, name: str = "small") -> str:
        return str(save(trained(objective, name), tmp_path_factory.mktemp("runs") / objective))

    return path
