"""What views read, spelt out with loops: the references that the tests compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from rehead.model import Model
from rehead.model.config import Head, ModelConfig
from rehead.model.heads import ClassifierHead
from rehead.model.ngrams import NO_ROW
from tests.model.conftest import alive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


def documents(count: int = 30) -> list[Ints]:
    """Documents of 0 to 19 tokens, some of which occur twice."""
    chance = np.random.RandomState(0)
    return [chance.randint(3, 50, chance.randint(0, 20)).astype(np.int64) for _ in range(count)]


def living(config: ModelConfig, head: Head | None = None) -> Model:
    """A model whose weights and statistics are all random, except the row of n-grams without one of their own."""
    made = alive(config, head)
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        if made.base.ngrams is not None:
            made.base.ngrams.weight[NO_ROW] = 0
        for name, each in made.named_buffers():
            if name.endswith("shift"):
                each.normal_(generator=chance)
            elif name.endswith("scale"):
                each.uniform_(1, 5, generator=chance)
    return made


def occurrences(made: Model, ids: Ints) -> list[int]:
    """The row of every token and n-gram of a document, as often as it occurs."""
    base, config = made.base, made.config
    rows: list[int] = ids.tolist()
    for n in range(2, min(config.ngrams, len(ids)) + 1):
        assert base.ngrams is not None
        found = base.ngrams.find_rows(torch.from_numpy(ids)[None], n)[0].tolist()
        rows += [config.ntokens + row for row in found if row != NO_ROW]
    return rows


def distinct(made: Model, ids: Ints) -> list[int]:
    """The rows of a document, each once."""
    return sorted(set(occurrences(made, ids)))


def row_vector(made: Model, row: int) -> Floats:
    """The vector of a row: a token's, scaled as the base scales it, or an n-gram's."""
    base, tokens = made.base, made.config.ntokens
    if row < tokens:
        return base.embedding.weight[row].detach().double().numpy() * base.scale
    assert base.ngrams is not None
    return base.ngrams.weight[row - tokens].detach().double().numpy()


def bag_vector(made: Model, ids: Ints, *, each_once: bool = True) -> Floats:
    """The mean of a document's distinct rows; or the sum of all occurrences, per token."""
    rows = distinct(made, ids) if each_once else occurrences(made, ids)
    total = sum((row_vector(made, row) for row in rows), np.zeros(made.config.nhid))
    return total / max(1, len(rows) if each_once else len(ids))


def hidden(made: Model, ids: Ints, *, causal: bool) -> Floats:
    """The hidden states of one document, nothing beside it: (T, H)."""
    if not len(ids):
        return np.zeros((0, made.config.nhid))
    with torch.no_grad():
        return made.base(torch.from_numpy(ids)[None], causal=causal)[0].double().numpy()


def layers_vector(made: Model, ids: Ints, *, pooling: str, causal: bool) -> Floats:
    """The mean of a document's hidden states, or the last of them."""
    states = hidden(made, ids, causal=causal)
    if not len(states):
        return np.zeros(made.config.nhid)
    return states[-1] if pooling == "last" else states.mean(0)


def scores(made: Model, ids: Ints) -> Floats:
    """Score one document that is read whole, view by view."""
    head = made.head
    assert isinstance(head, ClassifierHead)
    total = head.bias.detach().double().numpy()
    for view in head.config.views:
        part, options = head.of(view.name), view.options
        weight = part.weight.detach().double().numpy()
        if view.name == "tokens":
            rows = distinct(made, ids)
            assert part.scale is not None
            idf = part.scale.double().numpy()[rows]
            for share, row in zip(idf / np.sqrt((idf**2).sum()), rows, strict=True):
                total = total + share * weight[row]
            continue
        if view.name == "bag":
            vector = bag_vector(made, ids, each_once=options.get("distinct", True))
        else:
            vector = layers_vector(
                made, ids, pooling=options.get("pooling", "mean"), causal=options.get("causal", False)
            )
        if part.shift is not None:
            apart = vector - part.shift.double().numpy()
            vector = apart / np.sqrt((apart**2).sum())
        total = total + weight @ vector
    return total
