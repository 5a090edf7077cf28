"""What it costs to open a run by reading its weights into memory, beside mapping the file: time and memory.

    python bench/load.py runs/base

Both sides check the digest of the whole file and look at every number once, as loading does; the file is in the page
cache. `private` is memory that belongs to the process alone; a mapped file is shared by all processes that map it, but
whoever changes the file changes the model.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open
from sides import best

from rehead.disk import sha256
from rehead.runs.run import WEIGHTS
from rehead.runs.weights import read_weights


def main() -> None:
    """Open the weights in both ways, in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    file = given.run / WEIGHTS
    digest = sha256(file)

    def mapped() -> list[torch.Tensor]:
        if sha256(file) != digest:
            raise SystemExit(f"{file} has changed.")
        with safe_open(file, framework="pt") as tensors:
            found = [tensors.get_tensor(name) for name in tensors.keys()]  # noqa: SIM118
        return [each for each in found if each.isfinite().all()]

    def read() -> list[torch.Tensor]:
        weights = read_weights(file, digest)
        return [each for each in map(weights.tensor, weights.entries) if each.isfinite().all()]

    sides: dict[str, Callable[[], list[torch.Tensor]]] = {"mapped": mapped, "read": read}
    seconds = best(sides, given.rounds)
    print(f"{file.stat().st_size / 1e6:,.0f} MB; best of {given.rounds} rounds in turn, on one core")
    for name, side in sides.items():
        gc.collect()
        before = _private()
        held = side()
        print(f"{name:8} {seconds[name]:6.2f} s  private {_private() - before:7,.0f} MB")
        del held


def _private() -> float:
    """Memory of this process that is not a file's, in MB."""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("RssAnon"))
    return int(line.split()[1]) / 1000


if __name__ == "__main__":
    main()
