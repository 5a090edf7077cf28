"""What is left of a document's scores without some of its tokens, against taking them out one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rehead.model.reading import Reading, class_logits, cut, encode, reads_whole
from rehead.model.words import NOTHING
from rehead.use.without import Groups, sums_rows, vector_scores_blank, vector_scores_without, word_scores_without

from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.model.ngrams import NO_ROW
from rehead.runs.run import Run
from rehead.use import without
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


def blanked(run: Run, ids: np.ndarray[Any, Any], gone: set[int]) -> np.ndarray[Any, Any]:
    """Read a document piece by piece, some of its tokens (by place) being blank, and score its vector."""
    model, reading, head = run.model, Reading.of(run), run.model.head
    assert isinstance(head, ClassifierHead)
    limit, every = reading.limit(model.base), np.arange(len(ids))
    whole = reads_whole(model, reading)
    parts = [every[begin : begin + limit] for begin in range(0, len(ids), limit)] if whole else []
    hidden = []
    for part in parts or cut([every], limit, reading.long)[1]:
        embedded = torch.zeros(1, len(part), model.config.nhid)
        for n in range(1, model.config.ngrams + 1):
            for begin in range(len(part) - n + 1):
                run_ = part[begin : begin + n]
                if not gone & set(run_.tolist()):
                    given = torch.from_numpy(ids[run_])[None]
                    if n == 1:
                        embedded[:, begin] += model.base.embedding(given)[0] * model.base.scale
                    elif model.base.ngrams is not None:
                        added = model.base.ngrams.weight[model.base.ngrams.find_rows(given, n)[0, 0]]
                        places = [begin + n - 1] if model.reads_causally else range(begin, begin + n)
                        for place in places:
                            embedded[:, place] += added / len(places)
        hidden.append(model.base(torch.from_numpy(ids[part])[None], causal=model.reads_causally, embedded=embedded))
    if whole:
        return head.score(torch.cat(hidden, 1).mean(1))[0].numpy()
    return torch.cat([head.score(head.pool(each)) for each in hidden]).mean(0).numpy()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SUMS])
def test_layers_read_with_blanks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, text = classifier(kind), TEXTS[2]
    [ids] = encode(run.tokenizer, [text])  # type: ignore[arg-type]
    token, group = np.array([0, 1, 5, 7, 7, 12, len(ids) - 1]), np.array([0, 0, 1, 1, 2, 2, 3])
    groups = Groups(token, group, 4)
    found = vector_scores_blank(run.model, ids, groups, Reading.of(run))
    with torch.no_grad():
        expected = [blanked(run, ids, set(token[group == each].tolist())) for each in range(-1, 4)]
    assert found == pytest.approx(np.stack(expected), abs=1e-4)
    exact = word_scores_without(run.model, ids, groups)
    assert found[0] + exact[0] == pytest.approx(class_logits(run, None, [text])[0], abs=1e-4)
    assert np.abs(found[1:] - found[0]).max() > 0.01
    monkeypatch.setattr(without, "BATCH", 1)
    assert vector_scores_blank(run.model, ids, groups, Reading.of(run)) == pytest.approx(found, abs=1e-5)
    empty = np.zeros(0, np.int64)
    nothing = vector_scores_blank(run.model, empty, Groups(empty, empty, 0), Reading.of(run))
    assert nothing + word_scores_without(run.model, empty, Groups(empty, empty, 0)) == pytest.approx(
        class_logits(run, None, [""]), abs=1e-4
    )
