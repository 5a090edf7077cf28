"""Writing on, against a loop that reads everything again for every token."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rehead.model import Model
from rehead.use.autoregressive import generate_tokens, window_begin
from rehead.use.sampling import Sampler, Sampling
from tests.model.conftest import alive, miniature
from tests.model.test_cache import SHAPES

END, V = 2, 50
PROMPT = [END, 7, 8, 9, 30]
UNENDING = torch.zeros(V, dtype=torch.bool)
UNENDING[END] = True


def writer(shape: str, **changes: Any) -> Model:
    config = miniature(**{**SHAPES[shape], **changes})
    return alive(config, config.language_model())


def written(
    model: Model,
    n: int = 1,
    tokens: int = 20,
    cached: bool = True,
    forbidden: torch.Tensor = UNENDING,
    prompt: list[int] = PROMPT,
    **how: Any,
) -> list[list[int]]:
    sampler = Sampler(Sampling(**how), prompt, n=n, seed=1, end=END, forbidden=forbidden)
    samples: list[list[int]] = [[] for _ in range(n)]
    for step in generate_tokens(model, prompt, sampler, tokens=tokens, window=model.config.maxlen, cached=cached):
        for sample, token in step:
            samples[sample].append(token)
    return samples


@torch.no_grad()
def naive_greedy(model: Model, tokens: int, window: int) -> list[int]:
    """All tokens again at every step; when they are too many, half a window is let go. No token comes twice.

    (A model of random weights would soon write the same one for ever.)
    """
    text, begin = list(PROMPT), 0
    for _ in range(tokens):
        while len(text) - begin > window:
            begin += window // 2
        scores = model(torch.tensor([text[begin:]]), causal=True)[0, -1]
        scores[text] = -torch.inf  # the end mark, with which the prompt begins, among them
        text.append(int(scores.argmax()))
    return text[len(PROMPT) :]


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_against_the_naive_loop(shape: str) -> None:
    """The window of 20 is passed several times."""
    model = writer(shape, maxlen=20)
    naive = naive_greedy(model, 40, window=20)
    for cached in (True, False):
        assert written(model, tokens=40, cached=cached, temperature=0.0, no_repeat_ngram=1) == [naive]


@pytest.mark.parametrize("shape", SHAPES)
def test_sampling_is_the_same_without_the_cache(shape: str) -> None:
    model = writer(shape)
    free = torch.zeros(V, dtype=torch.bool)
    how: dict[str, Any] = {"temperature": 2.0, "top_p": 0.9, "repetition_penalty": 1.2}
    with_cache = written(model, 4, 40, forbidden=free, **how)
    assert with_cache == written(model, 4, 40, cached=False, forbidden=free, **how)
    assert len({tuple(each) for each in with_cache}) == 4


@pytest.mark.parametrize("prompt", [1, 31, 32, 33, 80])
def test_prompts_around_the_window(prompt: int) -> None:
    model = writer("lab, learned")
    ids = torch.randint(3, V, (prompt,), generator=torch.Generator().manual_seed(0)).tolist()
    assert written(model, 2, 5, prompt=ids) == written(model, 2, 5, prompt=ids, cached=False)


@pytest.mark.parametrize("window", [1, 2, 3, 7, 32])
def test_the_window_holds_the_last_tokens(window: int) -> None:
    begins = [window_begin(length, window) for length in range(1, 200)]
    for length, begin in enumerate(begins, 1):
        assert length - begin <= window
        assert length - begin >= min(length, window - max(1, window // 2) + 1)
    assert begins == sorted(begins)
    assert begins[:window] == [0] * window


def passes(model: Model, **how: Any) -> list[int]:
    """Count how many tokens pass the first layer at every step."""
    counts: list[int] = []
    hook = model.base.layers[0].register_forward_hook(
        lambda module, given, out: counts.append(out.shape[0] * out.shape[1])
    )
    written(model, **how)
    hook.remove()
    return counts


def test_a_token_costs_one_pass_however_long_the_text() -> None:
    model = writer("small", maxlen=1000)
    assert passes(model, tokens=60) == [len(PROMPT)] + [1] * 59
    assert passes(model, tokens=60, cached=False) == [len(PROMPT) + step for step in range(60)]


def test_samples_share_the_prompts_pass() -> None:
    assert passes(writer("small", maxlen=1000), n=3, tokens=4) == [len(PROMPT), 3, 3, 3]


def test_sliding_costs_no_more_than_a_second_pass() -> None:
    counts = passes(writer("small", maxlen=16), tokens=150)
    assert sum(counts) <= 2 * (len(PROMPT) + 150)


def test_samples_that_have_ended_leave_the_batch() -> None:
    model = writer("lab")
    free = torch.zeros(V, dtype=torch.bool)
    samples = written(model, 6, 60, forbidden=free, temperature=3.0)
    ends = sorted(len(each) for each in samples)
    assert ends[0] < 60, "none has ended"
    assert len(set(ends)) > 2
    for each in samples:
        assert END not in each[:-1]
        assert each[-1] == END or len(each) == 60
    counts = passes(model, n=6, tokens=60, forbidden=free, temperature=3.0)
    fits = [step for step in range(1, 20) if len(PROMPT) + step <= 32]  # before the window slides
    assert [counts[step] for step in fits] == [sum(len(each) > step for each in samples) for step in fits]


def test_the_model_needs_no_gradients() -> None:
    model = writer("small")
    written(model, tokens=3)
    assert torch.is_grad_enabled()
    assert all(each.grad is None for each in model.parameters())
