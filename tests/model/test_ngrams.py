from __future__ import annotations

import pytest
import torch

from rehead.model.ngrams import FACTOR, PRIME, NGrams, ngram_slots
from tests.model.conftest import alive, miniature


def naive(ids: list[int], longest: int, table: torch.Tensor, causal: bool) -> torch.Tensor:
    """One n-gram at a time, hashed with Python's own integers."""
    out = torch.zeros(len(ids), table.shape[1])
    for n in range(2, longest + 1):
        for start in range(len(ids) - n + 1):
            state = n
            for token in ids[start : start + n]:
                state = (state * FACTOR + token + 1) % PRIME
            vector = table[state % len(table)]
            if causal:
                out[start + n - 1] += vector
            else:
                for place in range(n):
                    out[start + place] += vector / n
    return out


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 2, 3, 11])
def test_against_one_at_a_time(causal: bool, length: int) -> None:
    torch.manual_seed(0)
    ngrams = NGrams(3, 101, 4)
    torch.nn.init.normal_(ngrams.weight)
    ids = torch.randint(2**31 - 1, (2, length))
    with torch.no_grad():
        ours = ngrams(ids, None, causal)
        for row in range(2):
            assert torch.allclose(ours[row], naive(ids[row].tolist(), 3, ngrams.weight, causal), atol=1e-6)


def test_the_sum_over_a_document_is_the_same_both_ways() -> None:
    model = alive(miniature("bag", ngrams=3))
    ids = torch.randint(50, (2, 9))
    with torch.no_grad():
        causal, both = (model.base(ids, causal=causal).sum(1) for causal in (True, False))
    assert torch.allclose(causal, both, atol=1e-5)


def test_a_run_over_padding_does_not_count() -> None:
    """Not even where the document goes on behind it."""
    ngrams = NGrams(3, 101, 4)
    torch.nn.init.ones_(ngrams.weight)
    counts = ngrams(torch.tensor([[1, 2, 3, 4]]), torch.tensor([[True, False, True, True]]), True)[0, :, 0]
    assert counts.tolist() == [0, 0, 0, 1]  # the last pair alone


def test_buckets_are_spread() -> None:
    """All bigrams of 300 tokens over 2**16 rows: as many rows hit as when each is drawn at random, or more."""
    first, second = torch.meshgrid(torch.arange(300), torch.arange(300), indexing="ij")
    pairs = torch.stack((first.flatten(), second.flatten()), 1)
    hit = ngram_slots(pairs, 2, 2**16).unique().numel()
    expected = 2**16 * (1 - (1 - 2**-16) ** 90_000)
    assert hit > 0.98 * expected


def test_orders_do_not_share_by_construction() -> None:
    """A bigram and the trigram that prefixes it with token 0 are hashed apart."""
    pair, triple = torch.tensor([[5, 9]]), torch.tensor([[0, 5, 9]])
    assert ngram_slots(pair, 2, 2**20).item() != ngram_slots(triple, 3, 2**20).item()


def test_rows_go_to_the_slots_met_most_often() -> None:
    ngrams = NGrams(2, 4, 1)
    assert ngrams.choose_rows(torch.tensor([0, 5, 1, 9, *[0] * 26, 7, 3])) == 3
    assert ngrams.rows.nonzero().flatten().tolist() == [1, 3, 30]  # the fourth, met 3 times, finds no row left
    assert ngrams.rows[[1, 3, 30]].tolist() == [3, 1, 2]
    assert NGrams(2, 8, 1).choose_rows(torch.tensor([1, 2, *[0] * 62])) == 1  # what is met once gets none


def test_an_n_gram_without_a_row_adds_nothing_and_learns_nothing() -> None:
    ngrams = NGrams(2, 8, 3)
    torch.nn.init.normal_(ngrams.weight)
    with torch.no_grad():
        ngrams.weight[0] = 0.0
    ids = torch.tensor([[1, 2, 3]])
    counts = torch.zeros(64)
    counts[ngram_slots(ids, 2, 64)[0, 1]] = 2  # the pair (2, 3) alone
    ngrams.choose_rows(counts)
    out = ngrams(ids, None, True)
    assert not out[0, :2].any()
    assert torch.equal(out[0, 2], ngrams.weight[1])
    out.sum().backward()
    assert ngrams.weight.grad is not None
    assert ngrams.weight.grad.any(1).nonzero().flatten().tolist() == [1]


@pytest.mark.parametrize(("wrong", "fits"), [(7.0, True), (8.0, False), (-1.0, False), (0.5, False)])
def test_rows_that_there_are_not_are_seen(wrong: float, fits: bool) -> None:
    ngrams = NGrams(2, 8, 3)
    ngrams.rows[5] = wrong
    assert ngrams.rows_fit() == fits
