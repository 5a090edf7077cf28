"""What a generated token costs, in one run: sides interleaved, best of several.

    python bench/generate.py

A fresh `small` continues a prompt, always with the likeliest token:

- with the cache against reading everything again;
- early in a text against late, with the cache;
- on one core against all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from rehead.model import Model, preset
from rehead.use.autoregressive import generate_tokens
from rehead.use.sampling import Sampler, Sampling

ROUNDS, TOKENS, END = 5, 20, 2


def milliseconds(model: Model, prompt: int, *, cached: bool = True, threads: int = 1) -> float:
    """Time of a token behind a prompt of this length: the best of a few, the one that reads the prompt left out."""
    torch.set_num_threads(threads)
    forbidden = torch.arange(model.config.ntokens) == END
    ids = [END, *range(5, 4 + prompt)]
    sampler = Sampler(Sampling(temperature=0.0), ids, n=1, seed=0, end=END, forbidden=forbidden)
    times, start = [], time.perf_counter()
    for _ in generate_tokens(model, ids, sampler, tokens=TOKENS, window=model.config.maxlen, cached=cached):
        now = time.perf_counter()
        times.append(now - start)
        start = now
    return 1e3 * min(times[1:])


def report(what: str, sides: dict[str, Callable[[], float]]) -> None:
    """Print two sides and their ratio."""
    times = dict.fromkeys(sides, float("inf"))
    for _ in range(ROUNDS):
        for name, measure in sides.items():
            times[name] = min(times[name], measure())
    (first, mine), (second, theirs) = times.items()
    print(f"{what}: {first} {mine:.2f} ms, {second} {theirs:.2f} ms, ratio {theirs / mine:.2f}", flush=True)


def main() -> None:
    """Measure and print."""
    torch.manual_seed(0)
    config = preset("small", maxlen=1024)
    model, cores = Model(config, config.language_model()).eval(), torch.get_num_threads()
    for prompt in (100, 400):
        sides = {
            "with the cache": lambda prompt=prompt: milliseconds(model, prompt),
            "without": lambda prompt=prompt: milliseconds(model, prompt, cached=False),
        }
        report(f"a token behind {prompt}", sides)
    report("with the cache", {each: lambda n=n: milliseconds(model, n) for each, n in _LENGTHS.items()})
    sides = {"one core": lambda: milliseconds(model, 100), f"{cores}": lambda: milliseconds(model, 100, threads=cores)}
    report("a token behind 100", sides)


_LENGTHS = {"behind 50": 50, "behind 800": 800}

if __name__ == "__main__":
    main()
