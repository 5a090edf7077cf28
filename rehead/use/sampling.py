"""Sampling the next token from a model's logits.

    mask forbidden tokens → repetition penalty → no-repeat n-grams → temperature → top-k → top-p → draw

Draws are stateless: the random number of a sample's step is a pure function of (seed, sample, step), so the third
sample is the same whether it is generated with two others or with twenty. Probabilities are float64, so that the
cumulative sum over a large vocabulary is exact enough for the draw.

Shapes: B samples, V vocabulary.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rehead.errors import ConfigError
from rehead.text.order import random_bits
from rehead.text.random_streams import Stream


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters. The defaults sample from the model's own distribution."""

    temperature: float = 1.0
    "Divides the logits: below 1 the distribution is sharper, above 1 flatter; 0 is greedy decoding."

    top_k: int | None = None
    "Sample from the k most probable tokens only."

    top_p: float = 1.0
    "Nucleus sampling: sample from the smallest set of most probable tokens with this total probability."

    repetition_penalty: float = 1.0
    "Divides the logit of tokens that occurred before (multiplies it, if negative)."

    no_repeat_ngram: int | None = None
    "No n-gram of this many tokens is generated twice."

    def __post_init__(self) -> None:
        for name, valid, allowed in (
            ("temperature", 0 <= self.temperature < math.inf, "0 (greedy) or more"),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more"),
            ("top_p", 0 < self.top_p <= 1, "more than 0 and at most 1"),
            ("repetition_penalty", 0 < self.repetition_penalty < math.inf, "more than 0; 1 disables it"),
            ("no_repeat_ngram", self.no_repeat_ngram is None or self.no_repeat_ngram >= 1, "1 or more"),
        ):
            if not valid:
                flag = "--" + name.replace("_", "-")
                raise ConfigError(f"{flag}={getattr(self, name)} is out of range. Choose {allowed}.")


class Sampler:
    """Samples the next token of each row of a batch, and keeps what the penalties need to know of each."""

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int], *, n: int, seed: int, end: int, forbidden: Tensor
    ) -> None:
        """Start n samples after a prompt. `forbidden` (V) is True for tokens that are never generated.

        The end-of-text token is exempt from both penalties, so that a text may always end.
        """
        self.sampling, self.seed, self.end, self.forbidden = sampling, seed, end, forbidden
        self.samples = np.arange(n)
        self.steps = 0
        self.seen: Tensor | None = None  # (B, V)
        if sampling.repetition_penalty != 1:
            self.seen = torch.zeros(n, len(forbidden), dtype=torch.bool, device=forbidden.device)
            self.seen[:, torch.tensor(prompt, dtype=torch.long)] = True
            self.seen[:, end] = False
        size = sampling.no_repeat_ngram
        self.ngrams = [] if size is None else [SeenNgrams(size, prompt) for _ in range(n)]

    def sample(self, logits: Tensor) -> Tensor:
        """Sample the next tokens: logits (B, V) → (B)."""
        scores = logits.float().masked_fill(self.forbidden, -math.inf)
        if self.seen is not None:
            scores = apply_repetition_penalty(scores, self.seen, self.sampling.repetition_penalty)
        for row, ngrams in enumerate(self.ngrams):
            banned = [each for each in ngrams.would_repeat() if each != self.end]
            scores[row, torch.tensor(banned, dtype=torch.long, device=scores.device)] = -math.inf
        if self.sampling.temperature == 0:
            chosen = scores.argmax(-1)
        else:
            probabilities = softmax_at_temperature(scores, self.sampling.temperature)
            probabilities = filter_top_k_top_p(probabilities, self.sampling.top_k, self.sampling.top_p)
            chosen = draw(probabilities, self._uniform().to(scores.device))
        self.steps += 1
        if self.seen is not None:
            self.seen.scatter_(1, chosen[:, None], value=True)
            self.seen[:, self.end] = False
        for ngrams, token in zip(self.ngrams, chosen.tolist(), strict=False):
            ngrams.add(token)
        return chosen

    def take_rows(self, rows: Tensor) -> None:
        """Keep these samples only."""
        self.samples = self.samples[rows.cpu().numpy()]
        if self.seen is not None:
            self.seen = self.seen[rows]
        if self.ngrams:
            self.ngrams = [self.ngrams[row] for row in rows.tolist()]

    def _uniform(self) -> Tensor:
        """Draw from [0, 1) for each sample at this step: (B)."""
        bits = random_bits(self.seed, Stream.GENERATION, self.samples, self.steps)
        bits = bits >> np.uint64(11)  # 53 bits, the precision of float64
        return torch.from_numpy(bits.astype(np.float64) * 2.0**-53)


class SeenNgrams:
    """The n-grams of `size` tokens in a text so far."""

    def __init__(self, size: int, tokens: Sequence[int]) -> None:
        self.size = size
        self.last: tuple[int, ...] = ()
        self.after: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
        for token in tokens:
            self.add(token)

    def add(self, token: int) -> None:
        """Append a token to the text."""
        if len(self.last) == self.size - 1:
            self.after[self.last].add(token)
        self.last = (*self.last, token)[max(0, len(self.last) + 2 - self.size) :]

    def would_repeat(self) -> list[int]:
        """Return the tokens that would complete an n-gram seen before."""
        return sorted(self.after.get(self.last, ())) if len(self.last) == self.size - 1 else []


def apply_repetition_penalty(scores: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Lower the scores of tokens seen before, as in the CTRL paper: scores and seen (B, V) → (B, V)."""
    lower = torch.where(scores > 0, scores / penalty, scores * penalty)
    return torch.where(seen, lower, scores)


def softmax_at_temperature(scores: Tensor, temperature: float) -> Tensor:
    """Softmax of scores divided by the temperature: (B, V) → (B, V)."""
    scores = scores.double()
    return ((scores - scores.amax(-1, keepdim=True)) / temperature).softmax(-1)


def filter_top_k_top_p(probabilities: Tensor, top_k: int | None, top_p: float) -> Tensor:
    """Keep the most probable tokens and renormalise: (B, V) → (B, V).

    Top-p applies to what top-k has kept, and always keeps one token. Ties are broken by the lower id.
    """
    if top_k is None and top_p == 1:
        return probabilities
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered[:, top_k:] = 0
    if top_p < 1:
        cumulative = ordered.cumsum(-1)
        ordered[cumulative - ordered >= top_p * cumulative[:, -1:]] = 0
    kept = torch.zeros_like(probabilities).scatter_(1, order, ordered)
    return kept / kept.sum(-1, keepdim=True)


def draw(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Draw a token for each row by inverting its CDF at a uniform number: (B, V), (B) → (B)."""
    cumulative = probabilities.cumsum(-1)
    total = cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, uniform[:, None] * total, right=True)  # the first whose CDF is above it
    last = (cumulative < total).sum(-1, keepdim=True)  # the last with any probability, in case of rounding
    return torch.minimum(drawn, last)[:, 0]
