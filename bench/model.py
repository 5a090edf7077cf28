"""The model against its peers, in one run: sides interleaved, best of several.

    python bench/model.py

- `lab` forward and backward against torch.nn.TransformerEncoder of the same shape (which has no embedding to scale
  and no positions to add);
- the fast attention against the spelt-out one, which also returns the weights;
- LayerNorm against RMSNorm, forward and backward, at the width of `small`;
- `rehead --help`, against starting Python alone.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from rehead.model import Base, preset

ROUNDS = 9
BATCH, LENGTH = 16, 256


def best(sides: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of each side: the best of several rounds, the sides taking turns."""
    times = {name: float("inf") for name in sides}
    for _ in range(ROUNDS):
        for name, call in sides.items():
            start = time.perf_counter()
            call()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def report(what: str, times: dict[str, float]) -> None:
    """Print both sides and their ratio."""
    (ours, mine), (peer, theirs) = times.items()
    print(f"{what}: {ours} {1e3 * mine:.1f} ms, {peer} {1e3 * theirs:.1f} ms, ratio {theirs / mine:.2f}")


def main() -> None:
    """Measure and print."""
    torch.manual_seed(0)
    base = Base(preset("lab", ntokens=1000, dropout=0.0))
    layer = nn.TransformerEncoderLayer(200, 2, 200, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    embedding = nn.Embedding(1000, 200)
    ids = torch.randint(1000, (BATCH, LENGTH))
    square = nn.Transformer.generate_square_subsequent_mask(LENGTH)

    report(
        "lab, forward and backward, causal",
        best(
            {
                "rehead": lambda: base(ids, causal=True).sum().backward(),
                "torch.nn.TransformerEncoder": lambda: (
                    encoder(embedding(ids), mask=square, is_causal=True).sum().backward()
                ),
            }
        ),
    )
    base.eval()
    with torch.no_grad():
        report(
            "lab, forward",
            best(
                {
                    "fast attention": lambda: base(ids, causal=False),
                    "with weights": lambda: base.attention(ids, causal=False),
                }
            ),
        )
    x = torch.randn(BATCH * LENGTH, 256, requires_grad=True)
    layer_norm, rms_norm = nn.LayerNorm(256, bias=False), nn.RMSNorm(256)
    report(
        "norm, forward and backward",
        best({"LayerNorm": lambda: layer_norm(x).sum().backward(), "RMSNorm": lambda: rms_norm(x).sum().backward()}),
    )
    report(
        "start",
        best(
            {
                "rehead --help": lambda: subprocess.run(
                    [sys.executable, "-m", "rehead", "--help"], check=True, capture_output=True
                ),
                "python -c pass": lambda: subprocess.run([sys.executable, "-c", "pass"], check=True),
            }
        ),
    )


if __name__ == "__main__":
    main()
