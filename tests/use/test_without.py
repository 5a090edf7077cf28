"""What is left of a document's scores without some of its tokens, against taking them out one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.model.ngrams import NO_ROW
from rehead.model.reading import Reading, class_logits, cut, encode
from rehead.model.run import Run
from rehead.model.words import NOTHING
from rehead.use.without import Groups, sums_rows, vector_scores_without, word_scores_without
from tests.use.classifiers import KINDS, TEXTS, classifier

NONE = -1  # where a token was
SUMS = [kind for kind in KINDS if sums_rows(classifier(kind).model)]


def scores_without(run: Run, ids: np.ndarray[Any, Any], groups: Groups) -> np.ndarray[Any, Any]:
    return vector_scores_without(run.model, ids, groups, Reading.of(run)) + word_scores_without(run.model, ids, groups)


def rows_left(model: Model, ids: list[int]) -> list[int]:
    """The rows of tokens and n-grams, none of which goes over a token that is gone."""
    base, rows = model.base, [each for each in ids if each != NONE]
    for n in range(2, model.config.ngrams + 1):
        for begin in range(len(ids) - n + 1):
            run = ids[begin : begin + n]
            if NONE not in run and base.ngrams is not None:
                row = int(base.ngrams.find_rows(torch.tensor([run]), n)[0, 0])
                rows += [row + model.config.ntokens] if row != NO_ROW else []
    return rows


def vector(model: Model, row: int) -> torch.Tensor:
    if row < model.config.ntokens:
        return model.base.embedding.weight[row] * model.base.scale
    assert model.base.ngrams is not None
    return model.base.ngrams.weight[row - model.config.ntokens]


def pooled(model: Model, ids: list[int]) -> torch.Tensor:
    """One piece, some of whose tokens are gone, as one vector."""
    rows = rows_left(model, ids)
    count = sum(row < model.config.ntokens for row in rows)
    if model.head_config.pooling == "distinct":  # type: ignore[union-attr]
        rows = sorted(set(rows))
        count = len(rows)
    return sum((vector(model, row) for row in rows), torch.zeros(model.config.nhid)) / max(1, count)


def reference(run: Run, ids: np.ndarray[Any, Any], gone: set[int]) -> np.ndarray[Any, Any]:
    """Score a document some of whose tokens (by place) are gone."""
    model, reading = run.model, Reading.of(run)
    head = model.head
    assert isinstance(head, ClassifierHead)
    left = np.array([NONE if place in gone else each for place, each in enumerate(ids)], np.int64)
    with torch.no_grad():
        _, parts = cut([left], reading.limit(model.base), reading.long)
        scores = head.score(torch.stack([pooled(model, part.tolist()) for part in parts])).mean(0)
        if head.words is not None:
            rows = sorted(set(rows_left(model, left.tolist()))) or [NOTHING]
            scores = scores + head.words(torch.tensor([rows]))[0]
    return scores.numpy()


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize("text", [TEXTS[2], TEXTS[-1]], ids=["short", "long"])
def test_it_is_what_reading_again_would_give(kind: str, text: str) -> None:
    run = classifier(kind)
    [ids] = encode(run.tokenizer, [text])  # type: ignore[arg-type]
    chance = np.random.RandomState(0)
    # Some tokens are in no group, some in two; group 5 is everything.
    token, group = chance.randint(0, len(ids), 30), chance.randint(0, 5, 30)
    token, group = np.append(token, np.arange(len(ids))), np.append(group, np.full(len(ids), 5))
    found = scores_without(run, ids, Groups(token, group, 6))
    members: list[set[int]] = [set(), *(set(token[group == each].tolist()) for each in range(6))]
    expected = np.stack([reference(run, ids, each) for each in members])
    assert found == pytest.approx(expected, abs=2e-4, rel=1e-4)
    assert found[0] == pytest.approx(class_logits(run, None, [text])[0], abs=2e-4, rel=1e-4)
    assert np.abs(found[1:] - found[0]).max() > 0.01


@pytest.mark.parametrize("kind", SUMS)
def test_an_empty_document_has_nothing_to_lose(kind: str) -> None:
    run = classifier(kind)
    empty = np.zeros(0, np.int64)
    found = scores_without(run, empty, Groups(empty, empty, 0))
    assert found == pytest.approx(class_logits(run, None, [""]), abs=1e-5)


def test_a_word_that_also_stands_elsewhere_is_not_missed_where_each_counts_once() -> None:
    run = classifier("distinct, words")
    [ids] = encode(run.tokenizer, ["good good"])  # type: ignore[arg-type]
    [once] = encode(run.tokenizer, ["good"])  # type: ignore[arg-type]
    rows = rows_left(run.model, ids.tolist())
    groups = Groups(np.arange(len(ids)), np.repeat([0, 1], [len(once), len(ids) - len(once)]), 2)
    found = scores_without(run, ids, groups)
    assert len(set(rows)) < len(rows)
    assert found[2] == pytest.approx(class_logits(run, None, ["good"])[0], abs=1e-5)


def test_kinds_that_sum_rows_are_those_without_layers_that_read() -> None:
    assert len(SUMS) == 7
    assert "identity layers" in SUMS
    assert "bag, last" not in SUMS
    assert not any(kind.startswith(("layers", "lab")) for kind in SUMS)
