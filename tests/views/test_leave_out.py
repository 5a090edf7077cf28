"""A document's scores without some of its tokens, against taking these out one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rehead.model.heads import unit_vectors
from rehead.model.model import Model
from rehead.model.ngrams import NO_ROW
from rehead.runs.run import Run
from rehead.runs.scoring import class_logits, classifier_head, open_views
from rehead.text.long_documents import cut_documents
from rehead.views import layers
from rehead.views.bag import BagView
from rehead.views.encoded import EncodedTexts
from rehead.views.layers import LayersView
from rehead.views.leave_out import Groups
from rehead.views.tokens import TokensView
from rehead.views.view import View
from tests.use.classifiers import KINDS, TEXTS, WITHOUT_LAYERS, classifier

Array = np.ndarray[Any, Any]
NONE = -1  # where a token was
EMPTY = np.zeros(0, np.int64)
NO_GROUPS = Groups(EMPTY, EMPTY, 0)


def view_scores(run: Run, view: View, ids: Array, groups: Groups) -> Array:
    """What one view scores: whole, then without each group."""
    weight = classifier_head(run.model).of(view.name).weight.detach().numpy()
    return view.scores_without(weight, EncodedTexts(ids=[ids]), groups, lambda: None)


def scores_without(run: Run, ids: Array, groups: Groups) -> Array:
    """What all views score, with the bias."""
    bias = classifier_head(run.model).bias.detach().numpy()
    found: Array = sum((view_scores(run, view, ids, groups) for view in open_views(run.model)), bias)
    return found


def encode(run: Run, text: str) -> Array:
    return EncodedTexts([text], run.tokenizer).ids[0]


def rows_left(model: Model, ids: list[int]) -> list[int]:
    """The rows of tokens and n-grams, none of which covers a token that is gone."""
    base, rows = model.base, [each for each in ids if each != NONE]
    for n in range(2, model.config.ngrams + 1):
        for begin in range(len(ids) - n + 1):
            run = ids[begin : begin + n]
            if NONE not in run and base.ngrams is not None:
                row = int(base.ngrams.find_rows(torch.tensor([run]), n)[0, 0])
                rows += [row + model.config.ntokens] if row != NO_ROW else []
    return rows


def row_vector(model: Model, row: int) -> torch.Tensor:
    if row < model.config.ntokens:
        return model.base.embedding.weight[row] * model.base.scale
    assert model.base.ngrams is not None
    return model.base.ngrams.weight[row - model.config.ntokens]


def bag_reference(run: Run, view: BagView, left: Array) -> Array:
    """Average the rows of each piece that are left, and score the pieces."""
    model, vectors = run.model, []
    for part in cut_documents([left], view.max_length, view.options.long)[1]:
        rows = rows_left(model, part.tolist())
        count = sum(row < model.config.ntokens for row in rows)
        if view.options.distinct:
            rows = sorted(set(rows))
            count = len(rows)
        total = sum((row_vector(model, row) for row in rows), torch.zeros(model.config.nhid))
        vectors.append(total / max(1, count))
    return score_vectors(run, view, torch.stack(vectors))


def tokens_reference(run: Run, left: Array) -> Array:
    """Add up the weights of the distinct rows that are left, times idf, at unit length."""
    head, rows = classifier_head(run.model).of("tokens"), sorted(set(rows_left(run.model, left.tolist())))
    assert head.scale is not None
    idf = head.scale[rows]
    length = idf.square().sum().sqrt().clamp_min(1e-12)
    found: Array = ((idf / length)[:, None] * head.weight[rows]).sum(0).numpy()
    return found


def score_vectors(run: Run, view: View, vectors: torch.Tensor) -> Array:
    """The mean score of some vectors (P, H), without the bias."""
    head = classifier_head(run.model).of(view.name)
    if head.shift is not None:
        vectors = unit_vectors(vectors, head.shift)
    found: Array = (vectors @ head.weight.T).mean(0).numpy()
    return found


def layers_reference(run: Run, view: LayersView, ids: Array, gone: set[int]) -> Array:
    """Read a document piece by piece, the embeddings of some tokens (by place) being zero, and score its vector."""
    model, causal, every = run.model, view.options.causal, np.arange(len(ids))
    limit = view.max_length
    parts = [every[begin : begin + limit] for begin in range(0, len(ids), limit)] if view.whole else []
    hidden = []
    for part in parts or cut_documents([every], limit, view.options.long)[1]:
        embedded = torch.zeros(1, len(part), model.config.nhid)
        for n in range(1, model.config.ngrams + 1):
            for begin in range(len(part) - n + 1):
                places = part[begin : begin + n]
                if gone & set(places.tolist()):
                    continue
                given = torch.from_numpy(ids[places])[None]
                if n == 1:
                    embedded[:, begin] += model.base.embedding(given)[0] * model.base.scale
                elif model.base.ngrams is not None:
                    added = model.base.ngrams.weight[model.base.ngrams.find_rows(given, n)[0, 0]]
                    receiving = [begin + n - 1] if causal else range(begin, begin + n)
                    for place in receiving:
                        embedded[:, place] += added / len(receiving)
        hidden.append(model.base(torch.from_numpy(ids[part])[None], causal=causal, embedded=embedded)[0])
    if view.whole:
        return score_vectors(run, view, torch.cat(hidden).mean(0, keepdim=True))
    last = view.options.pooling == "last"
    return score_vectors(run, view, torch.stack([each[-1] if last else each.mean(0) for each in hidden]))


def reference(run: Run, ids: Array, gone: set[int]) -> Array:
    """Score a document some of whose tokens (by place) are gone."""
    left = np.array([NONE if place in gone else each for place, each in enumerate(ids)], np.int64)
    with torch.no_grad():
        total: Array = classifier_head(run.model).bias.numpy()
        for view in open_views(run.model):
            if isinstance(view, TokensView):
                total = total + tokens_reference(run, left)
            elif isinstance(view, BagView):
                total = total + bag_reference(run, view, left)
            else:
                assert isinstance(view, LayersView)
                total = total + layers_reference(run, view, ids, gone)
    return total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [TEXTS[2], TEXTS[-1]], ids=["short", "long"])
def test_scores_are_those_of_reading_again(kind: str, text: str) -> None:
    run = classifier(kind)
    ids = encode(run, text)
    chance = np.random.RandomState(0)
    # Some tokens are in no group, some in two; group 5 is everything.
    token, group = chance.randint(0, len(ids), 30), chance.randint(0, 5, 30)
    token, group = np.append(token, np.arange(len(ids))), np.append(group, np.full(len(ids), 5))
    found = scores_without(run, ids, Groups(token, group, 6))
    members: list[set[int]] = [set(), *(set(token[group == each].tolist()) for each in range(6))]
    expected = np.stack([reference(run, ids, each) for each in members])
    assert found == pytest.approx(expected, abs=2e-4, rel=1e-4)
    assert found[0] == pytest.approx(class_logits(run, [text])[0], abs=2e-4, rel=1e-4)
    assert np.abs(found[1:] - found[0]).max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_document_has_nothing_to_lose(kind: str) -> None:
    run = classifier(kind)
    assert scores_without(run, EMPTY, NO_GROUPS) == pytest.approx(class_logits(run, [""]), abs=1e-4)


def test_a_repeated_word_is_not_missed_where_distinct_ones_count() -> None:
    run = classifier("distinct, tokens")
    ids, once = encode(run, "good good"), encode(run, "good")
    rows = rows_left(run.model, ids.tolist())
    groups = Groups(np.arange(len(ids)), np.repeat([0, 1], [len(once), len(ids) - len(once)]), 2)
    found = scores_without(run, ids, groups)
    assert len(set(rows)) < len(rows)
    assert found[2] == pytest.approx(class_logits(run, ["good"])[0], abs=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WITHOUT_LAYERS])
def test_layers_score_the_same_in_batches_of_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = classifier(kind)
    ids = encode(run, TEXTS[2])
    groups = Groups(np.array([0, 1, 5, 7, 7, 12, len(ids) - 1]), np.array([0, 0, 1, 1, 2, 2, 3]), 4)
    [view] = [each for each in open_views(run.model) if each.name == "layers"]
    found = view_scores(run, view, ids, groups)
    monkeypatch.setattr(layers, "EXPLAIN_TOKENS", 1)
    assert view_scores(run, view, ids, groups) == pytest.approx(found, abs=1e-5)
