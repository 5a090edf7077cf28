"""Single-threaded computing, for small work: on a busy machine, two threads take up to three times as long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_core() -> Iterator[None]:
    """Set torch to one thread, for a token to generate or documents to read without layers."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
