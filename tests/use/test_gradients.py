"""What each token adds to a score that layers give, against small steps along its embedding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rehead.model.heads import ClassifierHead
from rehead.model.reading import Reading, class_logits, cut, encode, reads_whole
from rehead.use import gradients
from rehead.use.gradients import token_shares
from tests.use.classifiers import KINDS, TEXTS, classifier

SLOPE = np.array([1.0, -0.7, -0.3])
STEP = 0.02


def weakened(kind: str, ids: np.ndarray[tuple[int], np.dtype[np.int64]], token: int, by: float) -> float:
    """The score with a token's embedding weaker by a share, wherever the token is read."""
    run = classifier(kind)
    model, reading, head = run.model, Reading.of(run), run.model.head
    assert isinstance(head, ClassifierHead)
    limit, every = reading.limit(model.base), np.arange(len(ids))
    if whole := reads_whole(model, reading):
        parts = [every[begin : begin + limit] for begin in range(0, len(ids), limit)]
    else:
        _, parts = cut([every], limit, reading.long)
    hidden = []
    with torch.no_grad():
        for part in parts:
            given = torch.from_numpy(ids[part])[None]
            embedded = model.base.embed(given, causal=model.reads_causally)
            embedded[:, torch.from_numpy(part == token)] *= 1 - by
            hidden.append(model.base(given, causal=model.reads_causally, embedded=embedded))
        if whole:
            scores = head.score(torch.cat(hidden, 1).mean(1))[0]
        else:
            scores = torch.cat([head.score(head.pool(each)) for each in hidden]).mean(0)
    return float(scores.double().numpy() @ SLOPE)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind][1]["pooling"] != "distinct"])
def test_a_share_is_what_a_weaker_token_costs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = classifier(kind)
    [ids] = encode(run.tokenizer, [TEXTS[2]])  # type: ignore[arg-type]
    found = token_shares(run.model, ids, SLOPE, Reading.of(run))
    expected = [
        (weakened(kind, ids, token, -STEP) - weakened(kind, ids, token, STEP)) / (2 * STEP) for token in range(len(ids))
    ]
    assert np.abs(found).max() > 0.01
    assert found == pytest.approx(np.array(expected), abs=0.03 * np.abs(found).max())
    monkeypatch.setattr(gradients, "BATCH", 1)  # piece by piece
    assert token_shares(run.model, ids, SLOPE, Reading.of(run)) == pytest.approx(found, abs=1e-5)


def test_of_a_linear_score_the_shares_are_the_whole() -> None:
    run = classifier("bag")
    head = run.model.head
    assert isinstance(head, ClassifierHead)
    text = TEXTS[-1]
    [ids] = encode(run.tokenizer, [text])  # type: ignore[arg-type]
    bias = head.linear.bias.detach().double().numpy() @ SLOPE
    shares = token_shares(run.model, ids, SLOPE, Reading.of(run))
    assert shares.sum() + bias == pytest.approx(class_logits(run, None, [text])[0] @ SLOPE, abs=1e-4)


def test_a_model_is_left_as_it_was_and_an_empty_text_has_no_shares() -> None:
    run = classifier("layers")
    assert token_shares(run.model, np.zeros(0, np.int64), SLOPE, Reading.of(run)).tolist() == []
    [ids] = encode(run.tokenizer, [TEXTS[2]])  # type: ignore[arg-type]
    with torch.no_grad():  # as in a server
        token_shares(run.model, ids, SLOPE, Reading.of(run))
    assert not run.model.training
    assert all(each.grad is None for each in run.model.parameters())
