"""Computing on one core, where work is too small to share: on a busy machine two take up to three times as long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_core() -> Iterator[None]:
    """Have torch compute on one core: a generated token, or documents that are sums of rows."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
