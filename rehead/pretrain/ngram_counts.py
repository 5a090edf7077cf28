"""N-gram counts of a corpus: which n-grams get a row of the table, and how often each row occurs.

`rehead.views.rows` finds the rows of a document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rehead.model.base import Base
from rehead.text.order import shuffled
from rehead.text.random_streams import Stream
from rehead.text.store_subset import Store
from rehead.views.rows import RowFinder, assign_ngram_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAX_SAMPLE_TOKENS = 30_000_000  # a larger corpus is sampled
SUBSAMPLE_THRESHOLD = 1e-4
"Subsample n-grams with a higher relative frequency than this, as word2vec does."


def choose_ngrams(base: Base, store: Store, seed: int) -> None:
    """Assign the rows of an untrained model's n-gram table to the most frequent n-grams of the corpus."""
    assign_ngram_rows(base, _sample(store, seed))


def count_rows(store: Store, base: Base, seed: int) -> NDArray[np.float64]:
    """Count the occurrences of every row in the corpus, or in a sample of a very large one: (rows,)."""
    finder = RowFinder(base)
    counts = np.zeros(finder.count, np.int64)
    for texts in _sample(store, seed):
        counts += np.bincount(finder.find(texts).row, minlength=len(counts))
    return counts.astype(np.float64)


def _sample(store: Store, seed: int) -> Iterator[list[Ints]]:
    """Yield the documents, or a sample of a very large corpus, a thousand at a time."""
    documents = len(store)
    sampled = min(documents, max(1, int(documents * MAX_SAMPLE_TOKENS / max(1, int(store.offsets[-1])))))
    chosen = np.arange(documents)
    if sampled < documents:
        chosen = np.sort(shuffled(np.arange(sampled), documents, seed, Stream.NGRAM_COUNT))
    for begin in range(0, sampled, 1000):
        yield [np.asarray(store[int(each)], np.int64) for each in chosen[begin : begin + 1000]]


def keep_probabilities(counts: NDArray[np.float64], ntokens: int) -> NDArray[np.float64]:
    """Probability of keeping an occurrence of each row when frequent n-grams are subsampled (word2vec): (rows,)."""
    share = counts / max(1.0, float(counts[:ntokens].sum()))
    ratio = SUBSAMPLE_THRESHOLD / np.maximum(share, 1e-30)
    kept: NDArray[np.float64] = np.minimum(1.0, np.sqrt(ratio) + ratio)
    return kept
