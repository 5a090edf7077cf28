"""The counts against scikit-learn's own vectorizers."""

from __future__ import annotations

import numpy as np
import pytest

from rehead.compare.ngrams import TOKEN, NgramCounter, frequent_columns

TEXTS = [
    "A small film, and a SMALL\u00a0budget!\n\tA film.",
    "Ὀδυσσεύς ΟΔΥΣΣΕΎΣ naïve İstanbul",
    "酒店很好，服务很好。",
    "ภาพยนตร์ดีมาก",
    "",
    "a",
]
OTHERS = ["small films", "酒店不好", "", "an unseen zzz"]


def test_counts_are_those_of_scikit_learn() -> None:
    from sklearn.feature_extraction.text import CountVectorizer

    counter = NgramCounter(characters=True)
    found = counter.fit_transform(TEXTS), counter.transform(OTHERS)
    references = (
        CountVectorizer(ngram_range=(1, 2), token_pattern=TOKEN),
        CountVectorizer(analyzer="char_wb", ngram_range=(2, 5)),
    )
    for block, (ours, reference) in enumerate(zip((counter.words, counter.characters), references, strict=True)):
        reference.fit(TEXTS)
        assert ours.get_feature_names_out().tolist() == reference.get_feature_names_out().tolist()
        for counts, texts in zip(found, (TEXTS, OTHERS), strict=True):
            assert np.array_equal(counts[block].toarray(), reference.transform(texts).toarray())


def test_words_alone() -> None:
    counter = NgramCounter(characters=False)
    assert [block.shape[0] for block in counter.fit_transform(TEXTS)] == [len(TEXTS)]
    assert [block.shape[0] for block in counter.transform(OTHERS)] == [len(OTHERS)]


@pytest.mark.parametrize(("min_df", "kept"), [(1, ["a", "a b", "b", "c"]), (2, ["a"]), (3, [])])
def test_document_frequency_counts_documents(min_df: int, kept: list[str]) -> None:
    counter = NgramCounter(characters=False)
    (counts,) = counter.fit_transform(["a b", "a", "c"])
    assert counter.words.get_feature_names_out()[frequent_columns(counts, min_df)].tolist() == kept
