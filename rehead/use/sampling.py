"""Choosing the next token: what is allowed, how boldly, and which one.

    forbid what must not come → penalise what was there → temperature → top-k → top-p → draw

Draws have no state: the random number of a sample's step is a pure function of (seed, sample, step), so the third
sample is the same whether it is made with two others or with twenty. Probabilities are in float64: their sum over a
large vocabulary then never misses a draw by rounding.

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
from rehead.text.order import number
from rehead.text.random_streams import Stream


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. The defaults draw from the model's own distribution."""

    temperature: float = 1.0
    "Below 1 bolder, above 1 wilder; 0 always takes the likeliest."

    top_k: int | None = None
    "Choose among this many of the likeliest."

    top_p: float = 1.0
    "Choose among the fewest of the likeliest that together have this probability."

    repetition_penalty: float = 1.0
    "Divide the score of a token that was there by this (multiply, where the score is negative)."

    no_repeat_ngram: int | None = None
    "No run of this many tokens comes twice."

    def __post_init__(self) -> None:
        for name, fine, wanted in (
            ("temperature", 0 <= self.temperature < math.inf, "0 (always the likeliest) or more"),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more"),
            ("top_p", 0 < self.top_p <= 1, "more than 0 and at most 1"),
            ("repetition_penalty", 0 < self.repetition_penalty < math.inf, "more than 0; 1 does nothing"),
            ("no_repeat_ngram", self.no_repeat_ngram is None or self.no_repeat_ngram >= 1, "1 or more"),
        ):
            if not fine:
                flag = "--" + name.replace("_", "-")
                raise ConfigError(f"{flag}={getattr(self, name)} is out of range. Choose {wanted}.")


class Chooser:
    """Chooses the next token of each sample, and remembers what each has had."""

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int], *, n: int, seed: int, end: int, forbidden: Tensor
    ) -> None:
        """Begin n samples behind a prompt. `forbidden` (V) is True for what must never come.

        The end mark is neither penalised nor counted as a repetition: a text may always end.
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
        self.runs = [] if size is None else [SeenRuns(size, prompt) for _ in range(n)]

    def choose(self, logits: Tensor) -> Tensor:
        """Choose the next tokens: logits (B, V) → (B)."""
        scores = logits.float().masked_fill(self.forbidden, -math.inf)
        if self.seen is not None:
            scores = penalise(scores, self.seen, self.sampling.repetition_penalty)
        for row, runs in enumerate(self.runs):
            banned = [each for each in runs.would_repeat() if each != self.end]
            scores[row, torch.tensor(banned, dtype=torch.long, device=scores.device)] = -math.inf
        if self.sampling.temperature == 0:
            chosen = scores.argmax(-1)
        else:
            probabilities = soften(scores, self.sampling.temperature)
            probabilities = keep_likeliest(probabilities, self.sampling.top_k, self.sampling.top_p)
            chosen = draw(probabilities, self._chance().to(scores.device))
        self.steps += 1
        if self.seen is not None:
            self.seen.scatter_(1, chosen[:, None], value=True)
            self.seen[:, self.end] = False
        for runs, token in zip(self.runs, chosen.tolist(), strict=False):
            runs.add(token)
        return chosen

    def take_rows(self, rows: Tensor) -> None:
        """Go on with these samples only."""
        self.samples = self.samples[rows.cpu().numpy()]
        if self.seen is not None:
            self.seen = self.seen[rows]
        if self.runs:
            self.runs = [self.runs[row] for row in rows.tolist()]

    def _chance(self) -> Tensor:
        """A number from 0 to 1, exclusive, for each sample at this step: (B)."""
        bits = number(self.seed, Stream.GENERATION, self.samples, self.steps) >> np.uint64(
            11
        )  # as many as a float64 can hold
        return torch.from_numpy(bits.astype(np.float64) * 2.0**-53)


class SeenRuns:
    """The runs of `size` tokens that a text has had so far."""

    def __init__(self, size: int, tokens: Sequence[int]) -> None:
        self.size = size
        self.last: tuple[int, ...] = ()
        self.after: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
        for token in tokens:
            self.add(token)

    def add(self, token: int) -> None:
        """Take up the text's next token."""
        if len(self.last) == self.size - 1:
            self.after[self.last].add(token)
        self.last = (*self.last, token)[max(0, len(self.last) + 2 - self.size) :]

    def would_repeat(self) -> list[int]:
        """Name the tokens that would complete a run that was there before."""
        return sorted(self.after.get(self.last, ())) if len(self.last) == self.size - 1 else []


def penalise(scores: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make tokens that were there less likely, as the CTRL paper does: scores and seen (B, V) → (B, V)."""
    lower = torch.where(scores > 0, scores / penalty, scores * penalty)
    return torch.where(seen, lower, scores)


def soften(scores: Tensor, temperature: float) -> Tensor:
    """Turn scores into probabilities at a temperature: (B, V) → (B, V)."""
    scores = scores.double()
    return ((scores - scores.amax(-1, keepdim=True)) / temperature).softmax(-1)


def keep_likeliest(probabilities: Tensor, top_k: int | None, top_p: float) -> Tensor:
    """Set all but the likeliest to zero and the sum to 1 again: (B, V) → (B, V).

    Top-p looks at what top-k has left, and always leaves one. Of equal ones the lower id comes first.
    """
    if top_k is None and top_p == 1:
        return probabilities
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered[:, top_k:] = 0
    if top_p < 1:
        upto = ordered.cumsum(-1)
        ordered[upto - ordered >= top_p * upto[:, -1:]] = 0
    kept = torch.zeros_like(probabilities).scatter_(1, order, ordered)
    return kept / kept.sum(-1, keepdim=True)


def draw(probabilities: Tensor, chance: Tensor) -> Tensor:
    """Draw a token for each row, given a number from 0 to 1 for each: (B, V), (B) → (B)."""
    upto = probabilities.cumsum(-1)
    whole = upto[:, -1:]
    drawn = torch.searchsorted(upto, chance[:, None] * whole, right=True)  # the first whose sum is above it
    last = (upto < whole).sum(-1, keepdim=True)  # the last with any probability, should rounding go past it
    return torch.minimum(drawn, last)[:, 0]
