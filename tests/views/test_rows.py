"""The rows of documents: the quick way, the long way, and by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from rehead.model.config import preset
from rehead.model.model import Model
from rehead.views.rows import RowFinder
from tests.model.conftest import alive, miniature
from tests.views.by_hand import occurrences

TOKENS = 12


def bases() -> list[Model]:
    """One with n-grams, some of which have no row; one without any."""
    torch.manual_seed(0)
    some = Model(preset("bag", ntokens=TOKENS, nhid=4, nbuckets=16, ngrams=3))
    assert some.base.ngrams is not None
    some.base.ngrams.choose_rows(torch.randint(0, 4, (16 * 8,)))
    return [some, Model(preset("lab", ntokens=TOKENS, nhid=4, nlayers=1, nhead=1))]


@given(st.lists(st.lists(st.integers(0, TOKENS - 1), max_size=9), max_size=5))
def test_rows_are_those_of_each_document_alone(documents: list[list[int]]) -> None:
    texts = [np.array(each, np.int64) for each in documents]
    for made in bases():
        finder = RowFinder(made.base)
        every, once = finder.find(texts), finder.find_distinct(texts)
        assert once.documents == len(texts)
        assert once.counts.tolist() == [len(set(occurrences(made, each))) for each in texts]
        for place, ids in enumerate(texts):
            expected = occurrences(made, ids)
            assert Counter(every.row[every.document == place].tolist()) == Counter(expected)
            assert once.row[once.document == place].tolist() == sorted(set(expected))


def test_a_row_counts_once_in_a_document() -> None:
    finder = RowFinder(alive(miniature("bag")).base)
    twice = [np.array([5, 6, 5, 6]), np.array([5]), np.array([], np.int64)]
    found = finder.find_distinct(twice)
    tokens = found.row < finder.ntokens
    assert list(zip(found.document[tokens].tolist(), found.row[tokens].tolist(), strict=True)) == [
        (0, 5),
        (0, 6),
        (1, 5),
    ]
    pairs = set(zip(found.document.tolist(), found.row.tolist(), strict=True))
    assert len(pairs) == len(found.row)
