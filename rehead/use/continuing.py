"""Writing on: from a prompt's tokens to the tokens that follow, one step at a time, several samples at once.

The prompt is read once, whatever the number of samples; then every sample is a row of one batch, and leaves it when it
ends. With the cache a new token passes the layers once. Without it (for teaching, and for the test that both write the
same) all tokens pass again at every step.

A model reads no more than a window of tokens at once, the longest it was trained on: learned positions end there, and
the others lead where it has never been. When the text is longer, its beginning is let go, half a window at a time. The
half that stays is then read again from position 0, so letting go costs one more pass per token, and never more.

Shapes: B samples that go on, T time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rehead.model.cache import Cache
from rehead.model.model import Model
from rehead.use.sampling import Chooser


def window_begin(length: int, window: int) -> int:
    """Say from which token on a text of this length is read: 0 as long as it fits, then whole halves of the window."""
    half = max(1, window // 2)
    return max(0, -(-(length - window) // half) * half)


@torch.no_grad()
def continuations(
    model: Model, prompt: Sequence[int], chooser: Chooser, *, tokens: int, window: int, cached: bool = True
) -> Iterator[list[tuple[int, int]]]:
    """Write on behind a prompt of at least one token; give each step's (sample, token), for the samples that go on.

    A sample ends with the chooser's end mark, which is given too, or after this many tokens.
    """
    device = model.device
    ids = torch.tensor([list(prompt)], dtype=torch.long, device=device)  # (1, T); from the first step on (B, T)
    samples = torch.arange(len(chooser.samples), device=device)
    cache, begin = Cache(), 0
    for step in range(tokens):
        before, begin = begin, window_begin(ids.shape[1], window)
        if not cached:
            hidden = model.base(ids[:, begin:], causal=True)
        elif step == 0 or begin != before:
            cache = Cache()
            hidden = model.base.read_on(ids[:, begin:], cache)
        else:
            hidden = model.base.read_on(ids[:, -1:], cache)
        logits = _scores(model, hidden[:, -1])  # (B, V)
        if step == 0:
            every = torch.zeros_like(samples)
            ids, logits = ids[every], logits[every]
            cache.take_rows(every)
        chosen = chooser.choose(logits)  # (B)
        yield list(zip(samples.tolist(), chosen.tolist(), strict=True))
        ids = torch.cat((ids, chosen[:, None]), 1)
        going = (chosen != chooser.end).nonzero()[:, 0]
        if len(going) == 0:
            return
        if len(going) < len(samples):
            samples, ids = samples[going], ids[going]
            cache.take_rows(going)
            chooser.take_rows(going)


def _scores(model: Model, hidden: Tensor) -> Tensor:
    """Score the tokens that may follow: hidden (B, H) → (B, V)."""
    assert model.head is not None  # noqa: S101 (the caller has looked)
    logits: Tensor = model.token_logits(hidden)
    return logits
