"""Classifiers that read rows and directions: the model called, the bulk path, and loops that spell it out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rehead.errors import ConfigError
from rehead.model import Classifier, Model, load, save
from rehead.model.accounting import account, check
from rehead.model.heads import ClassifierHead
from rehead.model.ngrams import NO_ROW
from rehead.runs.run import Run
from tests.model.conftest import alive, miniature
from tests.model.test_spread import documents

HEADS = [
    {"pooling": "distinct"},
    {"pooling": "distinct", "unit": True},
    {"pooling": "distinct", "unit": True, "words": True},
    {"pooling": "mean", "unit": True},
    {"pooling": "mean", "words": True},
    {"pooling": "last", "words": True, "unit": True},
]


def classifier(name: str, **dials: Any) -> Model:
    made = alive(miniature(name), Classifier(classes=3, **dials))
    head = made.head
    assert isinstance(head, ClassifierHead)
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        if made.base.ngrams is not None:
            made.base.ngrams.weight[NO_ROW] = 0
        if head.centre is not None:
            head.centre.normal_(generator=chance)
        if head.words is not None:
            head.words.idf.uniform_(1, 5, generator=chance)
    return made


def rows_in_words(made: Model, ids: np.ndarray) -> list[int]:
    """The rows of a document, each once."""
    base, config = made.base, made.config
    rows = set(ids.tolist())
    for n in range(2, min(config.ngrams, len(ids)) + 1):
        assert base.ngrams is not None
        found = base.ngrams.find_rows(torch.from_numpy(ids)[None], n)[0].tolist()
        rows |= {config.ntokens + row for row in found if row != NO_ROW}
    return sorted(rows)


def spelt_out(made: Model, ids: np.ndarray) -> np.ndarray:
    """Score one document, with nothing but loops and numpy after the hidden states."""
    head, base, config = made.head, made.base, made.config
    assert isinstance(head, ClassifierHead)
    rows = rows_in_words(made, ids)
    if head.config.pooling == "distinct":
        vector = np.zeros(config.nhid)
        for row in rows:
            if row < config.ntokens:
                vector += base.embedding.weight[row].detach().numpy() * base.scale
            else:
                assert base.ngrams is not None
                vector += base.ngrams.weight[row - config.ntokens].detach().numpy()
        vector /= max(1, len(rows))
    elif not len(ids):
        vector = np.zeros(config.nhid)
    else:
        with torch.no_grad():
            hidden = base(torch.from_numpy(ids)[None], causal=head.config.causal)[0].numpy()
        vector = hidden[-1] if head.config.pooling == "last" else hidden.mean(0)
    if head.centre is not None:
        apart = vector - head.centre.numpy()
        vector = apart / np.sqrt((apart**2).sum())
    scores = head.linear.weight.detach().numpy() @ vector + head.linear.bias.detach().numpy()
    if head.words is not None and rows:
        idf = head.words.idf.numpy()[rows]
        for share, row in zip(idf / np.sqrt((idf**2).sum()), rows, strict=True):
            scores = scores + share * head.words.weight[row].detach().numpy()
    return scores


@pytest.mark.parametrize("name", ["bag", "small", "lab"])
@pytest.mark.parametrize("dials", HEADS, ids=str)
def test_called_in_bulk_or_spelt_out_it_scores_the_same(name: str, dials: dict[str, Any]) -> None:
    made = classifier(name, **dials)
    ids = documents()
    assert any(not len(each) for each in ids)
    assert any(len(set(each.tolist())) < len(each) for each in ids)
    expected = np.stack([spelt_out(made, each) for each in ids])
    for budget in (40, 16_384):
        np.testing.assert_allclose(score_ids(made, ids, Reading(32), budget), expected, atol=2e-5)
    padded = torch.zeros(len(ids), 20, dtype=torch.int64)
    keep = torch.arange(20) < torch.tensor([[len(each)] for each in ids])
    for row, each in zip(padded, ids, strict=True):
        row[: len(each)] = torch.from_numpy(each)
    with torch.no_grad():
        np.testing.assert_allclose(made(padded, keep), expected, atol=2e-5)


def test_rows_are_found_once_and_not_over_the_end() -> None:
    made = classifier("bag", pooling="distinct")
    ids = torch.tensor([[7, 8, 7, 8, 9], [7, 8, 0, 0, 0]])
    keep = torch.tensor([[True] * 5, [True, True, False, False, False]])
    for row, real, found in zip(ids, keep, different_rows(made.base, ids, keep), strict=True):
        there = found[found != NOTHING].tolist()
        assert there == rows_in_words(made, row[real].numpy())


def test_layers_read_long_documents_in_stretches_and_their_direction_is_of_the_whole() -> None:
    made = classifier("small", pooling="mean", unit=True, words=True)
    ids = np.random.RandomState(1).randint(3, 50, 25).astype(np.int64)
    head = made.head
    assert isinstance(head, ClassifierHead)
    assert head.centre is not None
    assert head.words is not None
    with torch.no_grad():
        parts = [torch.from_numpy(ids[at : at + 10])[None] for at in (0, 10, 20)]
        total = torch.stack([made.base(part, causal=False)[0].sum(0) for part in parts]).sum(0)
        rows = torch.tensor([rows_in_words(made, ids)])
        expected = head.score((total / 25)[None]) + head.words(rows)
    np.testing.assert_allclose(score_ids(made, [ids], Reading(10, "windows")), expected, atol=2e-5)
    cut = score_ids(made, [ids], Reading(10, "head"))
    with torch.no_grad():
        part = head.score(made.base(parts[0], causal=False)[0].mean(0)[None]) + head.words(rows)
    np.testing.assert_allclose(cut, part, atol=2e-5)  # words are those of the whole document


@pytest.mark.parametrize("name", ["bag", "small", "lab"])
def test_the_account_knows_words(name: str) -> None:
    config = miniature(name)
    for head in (Classifier(classes=3, words=True), Classifier(classes=3, words=True, unit=True)):
        made = Model(config, head)
        counted = account(config, head)
        check(counted, made, "classifier")
        assert counted.total("classifier") == sum(each.numel() for each in made.parameters())
    rows = config.ntokens + (config.nbuckets if config.ngrams > 1 else 0)
    without = account(config, dataclasses.replace(head, words=False)).total("classifier")
    assert counted.total("classifier") - without == 3 * rows


def test_such_a_head_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    made = classifier("bag", pooling="distinct", unit=True, words=True)
    save(Run(made, None, ["a", "b", "c"]), tmp_path / "run")
    again = load(tmp_path / "run").model
    assert again.head_config == made.head_config
    np.testing.assert_array_equal(score_ids(again, documents(), Reading()), score_ids(made, documents(), Reading()))


def test_distinct_rows_are_not_pooled_from_hidden_states() -> None:
    made = classifier("bag", pooling="distinct")
    assert isinstance(made.head, ClassifierHead)
    with pytest.raises(ConfigError, match="no mean of hidden states"):
        made.head.pool(torch.zeros(1, 2, 16))
