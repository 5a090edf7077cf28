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

import torch
from sides import best
from torch import nn

from rehead.model import Base, preset

ROUNDS = 9
BATCH, LENGTH = 16, 256


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
            },
            ROUNDS,
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
                },
                ROUNDS,
            ),
        )
    x = torch.randn(BATCH * LENGTH, 256, requires_grad=True)
    layer_norm, rms_norm = nn.LayerNorm(256, bias=False), nn.RMSNorm(256)
    report(
        "norm, forward and backward",
        best(
            {"LayerNorm": lambda: layer_norm(x).sum().backward(), "RMSNorm": lambda: rms_norm(x).sum().backward()},
            ROUNDS,
        ),
    )
    report(
        "start",
        best(
            {
                "rehead --help": lambda: subprocess.run(
                    [sys.executable, "-m", "rehead", "--help"], check=True, capture_output=True
                ),
                "python -c pass": lambda: subprocess.run([sys.executable, "-c", "pass"], check=True),
            },
            ROUNDS,
            elsewhere=True,
        ),
    )


if __name__ == "__main__":
    main()
