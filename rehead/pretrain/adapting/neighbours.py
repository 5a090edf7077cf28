"""Which texts an encoder finds alike, before it is adapted: the pairs that contrastive training pulls together.

Encoding all texts once costs about a sixth of an epoch of training. Of a long corpus a sample is taken, bounded by work
and not by time, so that the result does not depend on the machine.

Shapes: N texts, Q held-out texts, K neighbours, W values of a vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rehead.bases.encoder import BATCH_TOKENS, Encoder, batches
from rehead.progress import progress
from rehead.text.order import shuffled
from rehead.text.random_streams import Stream
from rehead.text.store_subset import StoreSubset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float32]

WORK = 1e13  # multiply-adds: some minutes on two cores
CHUNK = 1_024  # texts that are compared with all others at once


def sample_texts(store: StoreSubset, length: int, work: int, seed: int) -> Ints:
    """Choose which texts are used: all, or as many as the encoder reads within the bound. In the order of the store."""
    order = shuffled(np.arange(len(store)), len(store), seed, Stream.CONTRAST_SAMPLE)
    spent = np.cumsum(np.minimum(store.lengths[order], length), dtype=np.float64) * work
    return np.sort(order[: max(1, int(np.searchsorted(spent, WORK, side="right")))])


def encode_ids(encoder: Encoder, ids: Sequence[list[int]], *, quiet: bool) -> Floats:
    """Encode token ids, special ones included, to vectors of length one: (N, W)."""
    vectors = np.zeros((len(ids), encoder.width), np.float32)
    with progress("finding similar texts", len(ids), unit="texts", quiet=quiet) as bar:
        for members in batches([len(each) for each in ids], BATCH_TOKENS):
            vectors[members] = encoder.vectors_of([ids[place] for place in members]).numpy()
            bar.advance(len(members))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors


def nearest(queries: Floats, vectors: Floats, count: int, *, own: bool = False) -> tuple[Ints, Floats]:
    """Find the texts nearest to each query, the nearest first, and their cosines: (Q, K) both.

    With `own`, the queries are the texts themselves, and none is its own neighbour.
    """
    found, cosines = np.zeros((len(queries), count), np.int64), np.zeros((len(queries), count), np.float32)
    for begin in range(0, len(queries), CHUNK):
        scores = queries[begin : begin + CHUNK] @ vectors.T
        if own:
            scores[np.arange(len(scores)), np.arange(begin, begin + len(scores))] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        found[begin : begin + CHUNK], cosines[begin : begin + CHUNK] = order, np.take_along_axis(scores, order, 1)
    return found, cosines
