"""Autoregressive generation: from a prompt's tokens to the tokens that follow, for several samples as one batch.

The prompt is read once for all samples; then every sample is a row of the batch, and leaves it when it ends. With the
key/value cache, each step runs the layers on the new token only. Without it (for teaching, and for the test that both
generate the same) each step reads all tokens again.

The context is limited to the longest sequence that the model was trained on: learned positions end there, and the
others do not extrapolate. A longer text loses its beginning, half a window at a time; the remaining half is then read
again from position 0, so this costs at most one more pass per token.

Shapes: B samples still running, T time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rehead.model.cache import KeyValueCache
from rehead.model.model import Model
from rehead.use.sampling import Sampler


def window_begin(length: int, window: int) -> int:
    """Return where the context of a text of this length begins: 0 while it fits, then multiples of half a window."""
    half = max(1, window // 2)
    return max(0, -(-(length - window) // half) * half)


@torch.no_grad()
def generate_tokens(
    model: Model, prompt: Sequence[int], sampler: Sampler, *, tokens: int, window: int, cached: bool = True
) -> Iterator[list[tuple[int, int]]]:
    """Continue a prompt of at least one token; yield each step's (sample, token) pairs, for the samples still running.

    A sample ends with the sampler's end-of-text token, which is yielded as well, or after this many tokens.
    """
    device = model.device
    ids = torch.tensor([list(prompt)], dtype=torch.long, device=device)  # (1, T); from the first step on (B, T)
    samples = torch.arange(len(sampler.samples), device=device)
    cache, begin = KeyValueCache(), 0
    for step in range(tokens):
        before, begin = begin, window_begin(ids.shape[1], window)
        if not cached:
            hidden = model.base(ids[:, begin:], causal=True)
        elif step == 0 or begin != before:
            cache = KeyValueCache()
            hidden = model.base.forward_cached(ids[:, begin:], cache)
        else:
            hidden = model.base.forward_cached(ids[:, -1:], cache)
        logits = _next_token_logits(model, hidden[:, -1])  # (B, V)
        if step == 0:
            every = torch.zeros_like(samples)
            ids, logits = ids[every], logits[every]
            cache.take_rows(every)
        chosen = sampler.sample(logits)  # (B)
        yield list(zip(samples.tolist(), chosen.tolist(), strict=True))
        ids = torch.cat((ids, chosen[:, None]), 1)
        running = (chosen != sampler.end).nonzero()[:, 0]
        if len(running) == 0:
            return
        if len(running) < len(samples):
            samples, ids = samples[running], ids[running]
            cache.take_rows(running)
            sampler.take_rows(running)


def _next_token_logits(model: Model, hidden: Tensor) -> Tensor:
    """Apply the language-model head: hidden (B, H) → (B, V)."""
    assert model.head is not None  # noqa: S101 (checked by the caller)
    logits: Tensor = model.token_logits(hidden)
    return logits
