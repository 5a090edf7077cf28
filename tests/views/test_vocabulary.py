"""Vocabularies of n-grams, against counting with dictionaries and with scikit-learn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from rehead.text.text_ngrams import HASH_BITS, TextNgrams, code_points, word_ngrams
from rehead.views import vocabulary
from rehead.views.vocabulary import (
    Vocabulary,
    count_ngrams,
    damaged_keys,
    find_keys,
    from_floats,
    learn_vocabulary,
    to_floats,
)
from tests.finetune.sets import reviews


def ngrams(documents: list[list[int]]) -> TextNgrams:
    """N-grams that have these hashes, text by text."""
    key = np.array([each for some in documents for each in some], np.int64)
    document = np.repeat(np.arange(len(documents)), [len(each) for each in documents])
    return TextNgrams(key, document, np.zeros_like(key), np.ones_like(key))


def in_groups(documents: list[list[int]], size: int) -> list[tuple[TextNgrams, int]]:
    parts = [documents[begin : begin + size] for begin in range(0, len(documents), size)]
    return [(ngrams(each), len(each)) for each in parts]


def reference(documents: list[list[int]], limit: int) -> dict[int, int]:
    """N-grams of two documents or more; of those that are equally frequent, the smaller hashes first."""
    counts = Counter(key for each in documents for key in set(each))
    common = [(-count, key) for key, count in counts.items() if count >= min(2, len(documents))]
    return {key: -count for count, key in sorted(common)[:limit]}


@given(
    st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=8),
    st.integers(1, 14),
    st.integers(1, 4),
    st.sampled_from([0, 5, 1 << 22]),
)
def test_the_most_frequent_are_kept(documents: list[list[int]], limit: int, size: int, merged: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "MERGED", merged)  # counted at once, or group by group
        found = learn_vocabulary(in_groups(documents, size), limit)
    assert dict(zip(found.keys.tolist(), found.frequency.tolist(), strict=True)) == reference(documents, limit)
    assert found.documents == len(documents)
    assert (np.diff(found.keys) > 0).all()


def test_ngrams_of_a_single_document_tell_nothing_unless_there_is_no_other() -> None:
    assert learn_vocabulary(in_groups([[1, 2, 2], [2, 3, 3]], 2), 9).keys.tolist() == [2]
    assert learn_vocabulary(in_groups([[1, 2, 2]], 1), 9).keys.tolist() == [1, 2]
    assert learn_vocabulary([], 9).keys.tolist() == []


def test_idf_is_that_of_scikit_learn() -> None:
    found = Vocabulary(np.array([1, 2, 3]), np.array([2, 5, 10]), 10).idf()
    np.testing.assert_allclose(found, [np.log(11 / 3) + 1, np.log(11 / 6) + 1, 1.0])


def test_counts_are_those_of_scikit_learn() -> None:
    """Whole words and pairs of words; columns are in the order of the hashes."""
    texts = [*reviews(30).texts, "", "nothing known"]

    def analyzer(text: str) -> list[str]:
        words = text.split()
        pairs = zip(["^", *words], [*words, "$"], strict=True)
        return words + [f"{left} {right}" for left, right in pairs]

    counter = CountVectorizer(analyzer=analyzer, min_df=2)
    expected = counter.fit_transform(texts[:30])
    found = word_ngrams(code_points(texts[:30]))
    learnt = learn_vocabulary([(found, 30)], 10**6)
    assert len(learnt.keys) == expected.shape[1]
    counts = count_ngrams(learnt.keys, word_ngrams(code_points(texts)), len(texts))
    assert counts.shape == (len(texts), len(learnt.keys))
    assert counts.has_sorted_indices
    damped = counter.transform(texts).astype(np.float64)
    damped.data = 1 + np.log(damped.data)
    assert columns(counts) == columns(damped)
    assert counts[-1].nnz == counts[-2].nnz == 0


def columns(matrix: Any) -> list[tuple[float, ...]]:
    """The columns of a sparse matrix, sorted: those of another order are the same."""
    return sorted(map(tuple, matrix.toarray().T.astype(np.float64).round(6).tolist()))


def test_counts_without_texts_or_without_a_vocabulary() -> None:
    none, keys = np.zeros(0, np.int64), np.array([3, 5])
    assert count_ngrams(keys, ngrams([]), 0).shape == (0, 2)
    assert count_ngrams(keys, ngrams([[], [9]]), 2).nnz == 0
    assert count_ngrams(none, ngrams([[3], []]), 2).shape == (2, 0)
    assert count_ngrams(keys, ngrams([[], [5, 5, 3], []]), 3).toarray() == pytest.approx(
        np.array([[0, 0], [1, 1 + np.log(2)], [0, 0]])
    )


@given(st.sets(st.integers(0, 30)), st.lists(st.integers(0, 30)))
def test_a_key_is_found_where_it_is(keys: set[int], wanted: list[int]) -> None:
    known = sorted(keys)
    place, there = find_keys(np.array(known, np.int64), np.array(wanted, np.int64))
    assert there.tolist() == [each in keys for each in wanted]
    assert [known[at] for at, yes in zip(place.tolist(), there, strict=True) if yes] == [
        each for each in wanted if each in keys
    ]


@given(st.lists(st.integers(0, (1 << HASH_BITS) - 1), unique=True))
def test_hashes_come_back_from_float32_as_they_were(keys: list[int]) -> None:
    given = np.array(sorted(keys), np.int64)
    pairs = to_floats(given)
    assert pairs.dtype == np.float32
    assert pairs.shape == (len(keys), 2)
    assert from_floats(pairs).tolist() == given.tolist()
    assert damaged_keys(pairs) is None


@pytest.mark.parametrize("key", [0, 1, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, (1 << 48) - 1])
def test_the_extremes_come_back(key: int) -> None:
    assert from_floats(to_floats(np.array([key]))).tolist() == [key]


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([[0, 5], [0, 4]], "order"),
        ([[0, 5], [0, 5]], "order"),
        ([[1, 0], [0, 1]], "order"),
        ([[0, 0.5]], "halves"),
        ([[-1, 0]], "halves"),
        ([[0, 1 << 24]], "halves"),
        ([[1e30, 0]], "halves"),
    ],
)
def test_hashes_that_could_not_be_looked_up_are_seen(pairs: list[list[float]], said: str) -> None:
    assert said in str(damaged_keys(np.array(pairs, np.float32)))
