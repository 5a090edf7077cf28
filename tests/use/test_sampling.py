"""Choosing the next token, against the definitions written out one token at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rehead.errors import ConfigError
from rehead.use.sampling import (
    Sampler,
    Sampling,
    SeenNgrams,
    apply_repetition_penalty,
    draw,
    filter_top_k_top_p,
    softmax_at_temperature,
)

V = 12
END = 2


def spelt_out(scores: list[float], temperature: float, top_k: int | None, top_p: float) -> list[float]:
    """The distribution after temperature, then top-k, then top-p."""
    weights = [math.exp(each / temperature) for each in scores]
    chances = [each / sum(weights) for each in weights]
    ranked = sorted(range(len(chances)), key=lambda token: -chances[token])[:top_k]
    left = sum(chances[token] for token in ranked)
    kept, together = [], 0.0
    for token in ranked:
        kept.append(token)
        together += chances[token] / left
        if together >= top_p:
            break
    whole = sum(chances[token] for token in kept)
    return [chances[token] / whole if token in kept else 0.0 for token in range(len(chances))]


@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.05, 5),
    top_k=st.none() | st.integers(1, V + 3),
    top_p=st.floats(0.01, 1),
)
def test_the_distribution_is_the_one_that_is_spelt_out(
    seed: int, temperature: float, top_k: int | None, top_p: float
) -> None:
    scores = torch.randn(2, V, generator=torch.Generator().manual_seed(seed)) * 3
    ours = filter_top_k_top_p(softmax_at_temperature(scores, temperature), top_k, top_p)
    theirs = [spelt_out(row, temperature, top_k, top_p) for row in scores.double().tolist()]
    assert torch.allclose(ours, torch.tensor(theirs, dtype=torch.float64), atol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.7}])
def test_draws_come_as_often_as_they_should(settings: dict[str, float]) -> None:
    """20,000 draws at once; chi-squared beyond its 99.99th percentile for 11 degrees of freedom would be 37.4."""
    sampling, draws = Sampling(**settings), 20_000  # type: ignore[arg-type]
    scores = torch.randn(V, generator=torch.Generator().manual_seed(3)) * 1.5
    sampler = Sampler(sampling, [], n=draws, seed=5, end=END, forbidden=torch.zeros(V, dtype=torch.bool))
    counts = torch.bincount(sampler.sample(scores.expand(draws, V)), minlength=V).tolist()
    expected = spelt_out(scores.tolist(), sampling.temperature, sampling.top_k, sampling.top_p)
    assert all(count == 0 for count, each in zip(counts, expected, strict=True) if each == 0)
    assert sum((count - draws * p) ** 2 / (draws * p) for count, p in zip(counts, expected, strict=True) if p) < 37.4


def test_a_draw_falls_where_the_sum_passes_it() -> None:
    probabilities = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]], dtype=torch.float64)
    for chance, token in [(0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4), (1 - 2**-53, 4), (1.0, 4)]:
        assert draw(probabilities, torch.tensor([chance], dtype=torch.float64)).item() == token


def test_a_temperature_near_zero_is_greedy() -> None:
    scores = torch.tensor([[1.0, 3.0, -math.inf, 2.9]])
    assert softmax_at_temperature(scores, 1e-300).tolist() == [[0, 1, 0, 0]]


def test_of_equal_ones_the_first_is_kept() -> None:
    equal = torch.full((1, 4), 0.25, dtype=torch.float64)
    assert filter_top_k_top_p(equal, 2, 1.0).tolist() == [[0.5, 0.5, 0, 0]]
    assert filter_top_k_top_p(equal, None, 0.25).tolist() == [[1, 0, 0, 0]]


def test_what_was_there_is_penalised_whatever_its_sign() -> None:
    scores, seen = torch.tensor([[4.0, -4.0, 4.0, -4.0]]), torch.tensor([[True, True, False, False]])
    assert apply_repetition_penalty(scores, seen, 2.0).tolist() == [[2, -8, 4, -4]]


def sampler(
    n: int = 1, prompt: tuple[int, ...] = (END, 5, 6), forbidden: tuple[int, ...] = (), **how: float
) -> Sampler:
    never = torch.zeros(V, dtype=torch.bool)
    never[list(forbidden)] = True
    return Sampler(Sampling(**how), prompt, n=n, seed=0, end=END, forbidden=never)  # type: ignore[arg-type]


def test_penalty_counts_prompt_and_text_but_not_the_end_mark() -> None:
    scores = torch.full((1, V), -10.0)
    scores[0, [END, 5, 7]] = torch.tensor([1.5, 3.0, 2.0])
    choosing = sampler(temperature=0.0, repetition_penalty=3.0)
    assert [choosing.sample(scores).item() for _ in range(3)] == [7, END, END]  # 5 was in the prompt: 3 / 3 < 2
    scores[0, END] = 2.5
    assert sampler(temperature=0.0, repetition_penalty=3.0).sample(scores).item() == END  # it begins the prompt, too


@given(tokens=st.lists(st.integers(0, 3), max_size=30), size=st.integers(1, 4))
def test_runs_that_would_repeat(tokens: list[int], size: int) -> None:
    runs = SeenNgrams(size, tokens)
    had = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
    ends = tokens[len(tokens) - size + 1 :]
    again = [each for each in range(4) if len(ends) == size - 1 and (*ends, each) in had]
    assert runs.would_repeat() == again


def test_no_run_comes_twice_and_the_end_may_always_come() -> None:
    choosing = sampler(temperature=0.0, no_repeat_ngram=1, forbidden=(0, 1))
    scores = torch.arange(V).flip(0).float()[None]  # the lower the id, the likelier
    assert [choosing.sample(scores).item() for _ in range(10)] == [END, END, END, END, END, END, END, END, END, END]
    scores[0, END] = -100.0
    assert [choosing.sample(scores).item() for _ in range(9)] == [3, 4, 7, 8, 9, 10, 11, END, END]


def test_samples_do_not_depend_on_how_many_there_are() -> None:
    scores = torch.zeros(1, V)
    five, two = sampler(5), sampler(2)
    for _ in range(20):
        assert five.sample(scores.expand(5, V))[:2].tolist() == two.sample(scores.expand(2, V)).tolist()


def test_a_sample_draws_the_same_when_others_have_ended() -> None:
    scores = torch.zeros(1, V)
    whole, fewer = sampler(3), sampler(3)
    whole.sample(scores.expand(3, V)), fewer.sample(scores.expand(3, V))
    fewer.take_rows(torch.tensor([0, 2]))
    for _ in range(20):
        assert whole.sample(scores.expand(3, V))[[0, 2]].tolist() == fewer.sample(scores.expand(2, V)).tolist()


def test_the_draws_never_change_between_versions() -> None:
    """The same seed gives the same text after an upgrade."""
    assert sampler(3)._uniform().tolist() == [0.7751501139475794, 0.3268187282072087, 0.34895430385807846]
    assert len({*sampler(1000)._uniform().tolist()}) == 1000


def test_what_is_forbidden_never_comes() -> None:
    choosing = sampler(500, forbidden=(3, 4), temperature=50.0)
    scores = torch.zeros(500, V)
    scores[:, 3] = 100.0
    drawn = np.unique(choosing.sample(scores).numpy()).tolist()
    assert drawn == [each for each in range(V) if each not in (3, 4)]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"temperature": -0.1}, "--temperature=-0.1 is out of range"),
        ({"temperature": math.nan}, "--temperature=nan"),
        ({"temperature": math.inf}, "--temperature=inf"),
        ({"top_k": 0}, "--top-k=0 is out of range. Choose 1 or more."),
        ({"top_p": 0.0}, "--top-p=0.0"),
        ({"top_p": 1.1}, "--top-p=1.1"),
        ({"top_p": math.nan}, "--top-p=nan"),
        ({"repetition_penalty": 0.0}, "--repetition-penalty=0.0"),
        ({"no_repeat_ngram": 0}, "--no-repeat-ngram=0"),
    ],
)
def test_numbers_that_make_no_sense(how: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Sampling(**how)  # type: ignore[arg-type]
