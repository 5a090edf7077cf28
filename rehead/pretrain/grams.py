"""The n-grams of documents as rows of one table, and how often each row occurs.

Rows are those of an output table: the tokens first, then the buckets that n-grams of two tokens and more are hashed
into (`rehead.model.ngrams`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from rehead.model.config import ModelConfig
from rehead.model.ngrams import ngram_buckets
from rehead.text.order import shuffled
from rehead.text.store_part import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

COUNT = 20  # what a random choice is for, as part of its key
LARGEST_SAMPLE = 30_000_000  # tokens that are counted at most
THIN = 1e-4
"An n-gram that makes up a larger share of the text than this is thinned out."


class Grams(NamedTuple):
    """The n-grams of some documents, one document after the other: four arrays of the same length."""

    rows: Ints
    "Which row of the table."
    document: Ints
    "Which of the documents, from 0."
    start: Ints
    "Which token of the document is its first."
    size: Ints
    "How many tokens it has."

    def some(self, which: NDArray[np.bool_] | Ints | slice) -> Grams:
        """Keep some of them."""
        return Grams(*(each[which] for each in self))


def find_grams(texts: list[Ints], config: ModelConfig) -> Grams:
    """Find all n-grams of some documents, as long as the model knows them."""
    lengths = np.array([len(each) for each in texts], np.int64)
    ids = np.concatenate(texts) if texts else np.zeros(0, np.int64)
    document = np.repeat(np.arange(len(texts)), lengths)
    start = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found = [Grams(ids, document, start, np.ones_like(ids))]
    for n in range(2, min(config.ngrams, len(ids)) + 1):
        rows = ngram_buckets(torch.from_numpy(ids)[None], n, config.nbuckets)[0].numpy() + config.ntokens
        here = slice(len(rows))
        whole = start[here] + n <= lengths[document[here]]  # not over the end of a document
        found.append(Grams(rows, document[here], start[here], np.full(len(rows), n)).some(whole))
    joined = Grams(*(np.concatenate(each) for each in zip(*found, strict=True)))
    return joined.some(np.argsort(joined.document, kind="stable"))


def count_rows(store: Store, config: ModelConfig, seed: int) -> NDArray[np.float64]:
    """Count how often every row occurs in the documents, or in a sample of a very large corpus: (rows,)."""
    counts = np.zeros(config.ntokens + config.nbuckets, np.int64)
    documents = len(store)
    sampled = min(documents, max(1, int(documents * LARGEST_SAMPLE / max(1, int(store.offsets[-1])))))
    chosen = np.arange(documents)
    if sampled < documents:
        chosen = np.sort(shuffled(np.arange(sampled), documents, seed, COUNT))
    for begin in range(0, sampled, 1000):
        texts = [np.asarray(store[int(each)], np.int64) for each in chosen[begin : begin + 1000]]
        counts += np.bincount(find_grams(texts, config).rows, minlength=len(counts))
    return counts.astype(np.float64)


def kept_share(counts: NDArray[np.float64], ntokens: int) -> NDArray[np.float64]:
    """Say which share of each row's occurrences is kept, so that frequent n-grams do not drown the others: (rows,)."""
    share = counts / max(1.0, float(counts[:ntokens].sum()))
    ratio = THIN / np.maximum(share, 1e-30)
    kept: NDArray[np.float64] = np.minimum(1.0, np.sqrt(ratio) + ratio)
    return kept
