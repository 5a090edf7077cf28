"""The rows of documents, each once: the quick way finds what the long way finds."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from rehead.model.config import preset
from rehead.model.model import Model

TOKENS = 12


def bases() -> list[Model]:
    """One with n-grams, some of which have no row; one without any."""
    torch.manual_seed(0)
    some = Model(preset("bag", ntokens=TOKENS, nhid=4, nbuckets=16, ngrams=3))
    assert some.base.ngrams is not None
    some.base.ngrams.choose_rows(torch.randint(0, 4, (16 * 8,)))
    return [some, Model(preset("lab", ntokens=TOKENS, nhid=4, nlayers=1, nhead=1))]


@given(st.lists(st.lists(st.integers(0, TOKENS - 1), max_size=9), max_size=5))
def test_distinct_rows_are_those_of_all_n_grams(documents: list[list[int]]) -> None:
    texts = [np.array(each, np.int64) for each in documents]
    for made in bases():
        quick = find_distinct(texts, made.config, rows_of(made.base))
        long = each_once(find_grams(texts, made.config, rows_of(made.base)), made.config)
        assert quick.documents == len(texts)
        assert quick.rows.tolist() == long.rows.tolist()
        assert quick.document.tolist() == long.document.tolist()
