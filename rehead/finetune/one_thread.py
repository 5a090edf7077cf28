"""Linear algebra on one thread: the solvers of linear classifiers are a row of small products.

Where BLAS spreads each of these over the cores, the threads wait for one another longer than they compute: on two free
cores the search for a linear classifier of 1,600 reviews took 19 seconds, and takes 10 on one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_inside = 0
_limit: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Have BLAS of numpy and scipy use one thread; afterwards, when nobody is inside any more, as many as before."""
    global _inside, _limit
    import sklearn.linear_model  # noqa: F401 (loads the libraries that are to be limited)
    from threadpoolctl import threadpool_limits

    with _lock:
        if _inside == 0:
            _limit = threadpool_limits(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.restore_original_limits()
