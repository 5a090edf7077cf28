from __future__ import annotations

import numpy as np
import pytest
import tokenizers

from rehead.pretrain.masking import Masking
from rehead.text.tokenizer import SPECIALS, Tokenizer

MASK, NEVER, VOCAB = 4, (0, 1, 2, 3, 4), 1000
ROWS, TIME = 400, 100


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    draw = np.random.default_rng(0)
    ids = draw.integers(5, VOCAB, (ROWS, TIME))
    ids[:, ::10] = 2
    return ids


def test_bert_s_shares(ids: np.ndarray) -> None:
    masking = Masking(MASK, NEVER, VOCAB, 0.3)
    hidden = masking.apply(ids, np.arange(ROWS), seed=1)
    words = ids >= 5
    assert not hidden.chosen[~words].any(), "a mark is never hidden"
    share = hidden.chosen[words].mean()
    assert share == pytest.approx(0.3, abs=0.01)
    read, were = hidden.ids[hidden.chosen], ids[hidden.chosen]
    assert (read == MASK).mean() == pytest.approx(0.8, abs=0.015)
    assert (read == were).mean() == pytest.approx(0.1, abs=0.015)
    others = read[(read != MASK) & (read != were)]
    assert len(others) / len(read) == pytest.approx(0.1, abs=0.015)
    assert not np.isin(others, NEVER).any()
    assert len(np.unique(others)) > 0.5 * min(VOCAB, len(others)), "words of all kinds are put in their place"
    assert (hidden.ids[~hidden.chosen] == ids[~hidden.chosen]).all()


def test_no_mark_is_hidden_or_put_in_a_words_place_and_no_number_that_is_no_token() -> None:
    names = {**{name: n for n, name in enumerate(SPECIALS)}, "good": 5, "film": 6, "[SPEAKER]": 7, "very": 10}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(names, "<unk>"))
    inner.add_special_tokens(["[SPEAKER]"])
    masking = Masking.of(Tokenizer(inner), 0.5)
    ids = np.tile(np.array([7, 5, 6, 10]), (500, 5))
    hidden = masking.apply(ids, np.arange(len(ids)), seed=1)
    assert not hidden.chosen[ids == 7].any()
    assert set(np.unique(hidden.ids)) == {masking.mask, 5, 6, 7, 10}
    assert (hidden.ids[ids != 7] != 7).all()


def test_chance_depends_on_the_seed_and_the_place_alone(ids: np.ndarray) -> None:
    masking = Masking(MASK, NEVER, VOCAB, 0.3)
    places = np.arange(1000, 1000 + ROWS)
    whole = masking.apply(ids, places, seed=1)
    part = masking.apply(ids[100:200], places[100:200], seed=1)
    assert (part.ids == whole.ids[100:200]).all()
    assert (part.chosen == whole.chosen[100:200]).all()
    assert (masking.apply(ids, places, seed=2).chosen != whole.chosen).any()
    assert (masking.apply(ids, places + 1, seed=1).chosen != whole.chosen).any()


def test_choosing_replacing_and_words_are_drawn_apart(ids: np.ndarray) -> None:
    """Were they one draw, tokens chosen with a small number would all be masked."""
    few = Masking(MASK, NEVER, VOCAB, 0.05).apply(ids, np.arange(ROWS), seed=1)
    assert (few.ids[few.chosen] == MASK).mean() == pytest.approx(0.8, abs=0.03)
