"""What a classifier would say of a document if some of its tokens were not there: one document, many groups of tokens.

Where a document is a sum of rows (its different tokens and n-grams, or all of them), nothing is read again: the rows of
a group are subtracted from the sum, which is exact. A row that also stands elsewhere in the document stays.

Layers have to read again, with the embeddings of the group blank: the pieces of a long document that the group is in,
many variants of a piece at once. Blank tokens keep their places, since a gap that closed would shift all that stands
behind it, and so drown what the group itself did (docs/explaining.md).

Either way the n-grams that a token of the group is in go with it, and no others come.

Shapes: G groups, T tokens, H hidden width, K classes. Results have 1 + G rows: the first is the whole document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rehead.model.base import Base
from rehead.model.config import Classifier
from rehead.model.grams import Grams, find_grams, rows_of
from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.model.reading import Reading, is_bag, reads_whole
from rehead.text.long_documents import cut_long

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

BATCH = 2_048  # tokens that layers read at once: more is not faster, and it takes longer to stop


class Groups:
    """Groups of a document's tokens, as pairs of a token and a group. A token may be in several, or in none."""

    def __init__(self, token: Ints, group: Ints, count: int) -> None:
        _, first = np.unique(token * max(1, count) + group, return_index=True)
        self.token, self.group, self.count = token[first], group[first], count

    def at(self, places: Ints) -> Groups:
        """Give the groups of some of the tokens, in this order, as if these were the document."""
        begin, end = np.searchsorted(self.token, places), np.searchsorted(self.token, places, side="right")
        which = _ranges(begin, end)
        return Groups(np.repeat(np.arange(len(places)), end - begin), self.group[which], self.count)


def sums_rows(model: Model) -> bool:
    """Tell whether a document's vector is a sum of rows, each of which can be taken out: no layer reads."""
    pooling = model.head_config.pooling if isinstance(model.head_config, Classifier) else None
    return pooling == "distinct" or (is_bag(model.base) and pooling == "mean")


def vector_scores_without(model: Model, ids: Ints, groups: Groups, reading: Reading) -> Floats:
    """Score a document by its vector, as it is and without each of the groups: (1 + G, K). See `sums_rows`."""
    head = model.head
    assert isinstance(head, ClassifierHead)  # noqa: S101 (for the type checker)
    once = head.config.pooling == "distinct"
    scores = np.zeros((1 + groups.count, head.linear.out_features))
    pieces = cut_long(np.array([len(ids)], np.int64), reading.limit(model.base), reading.long)
    for piece in range(len(pieces.document)):
        where = pieces.read(piece, np.arange(len(ids)))
        rows, counted, entry, group = _gone(model.base, ids[where], groups.at(where), once=once)
        sums = torch.cat((torch.zeros(1, model.config.nhid), _sums(model.base, rows[entry], group, groups.count)))
        sums = _sums(model.base, rows, np.zeros_like(rows), 1) - sums  # (1 + G, H)
        left = counted.sum() - np.append(0, np.bincount(group, weights=counted[entry], minlength=groups.count))
        sums[left == 0] = 0.0  # and not what rounding leaves
        scores += _scored(head, sums / torch.from_numpy(np.maximum(left, 1)).to(sums)[:, None])
    return scores / len(pieces.document)


def vector_scores_blank(
    model: Model, ids: Ints, groups: Groups, reading: Reading, look: Callable[[], None] = lambda: None
) -> Floats:
    """Score a document by its vector, as layers read it: as it is, and with each of the groups blank: (1 + G, K).

    `look` is called before each batch; what it raises ends the work.
    """
    head, limit = model.head, reading.limit(model.base)
    assert isinstance(head, ClassifierHead)  # noqa: S101 (for the type checker)
    if not reads_whole(model, reading):
        pieces = cut_long(np.array([len(ids)], np.int64), limit, reading.long)
        places = [pieces.read(piece, np.arange(len(ids))) for piece in range(len(pieces.document))]
        return _changed(
            ((here, _scored(head, vectors)) for here, vectors in _blanked(model, ids, groups, places, head.pool, look)),
            groups.count,
        ) / len(places)
    # The mean of all hidden states is scored, whatever piece they were read in.
    places = [np.arange(begin, min(begin + limit, len(ids))) for begin in range(0, max(1, len(ids)), limit)]
    found = _blanked(model, ids, groups, places, lambda hidden: hidden.sum(1), look)
    sums = _changed(((here, vectors.double().numpy()) for here, vectors in found), groups.count)
    return _scored(head, torch.from_numpy(sums / max(1, len(ids))).float())


def word_scores_without(model: Model, ids: Ints, groups: Groups) -> Floats:
    """Score a document by its exact words, as it is and without those of each group: (1 + G, K). None: zeros."""
    head = model.head
    assert isinstance(head, ClassifierHead)  # noqa: S101 (for the type checker)
    if head.words is None:
        return np.zeros((1 + groups.count, head.linear.out_features))
    rows, _, entry, group = _gone(model.base, ids, groups, once=True)
    which = torch.from_numpy(rows)
    idf = head.words.idf[which].double().numpy()
    weight = head.words.weight.detach()[which].double().numpy() * idf[:, None]  # (rows, K)
    scores, square = np.tile(weight.sum(0), (1 + groups.count, 1)), np.full(1 + groups.count, (idf**2).sum())
    np.subtract.at(scores, 1 + group, weight[entry])
    np.subtract.at(square, 1 + group, idf[entry] ** 2)
    left = len(rows) - np.append(0, np.bincount(group, minlength=groups.count))
    given: Floats = np.where(left[:, None] > 0, scores, 0.0) / np.sqrt(np.maximum(square, 1e-24))[:, None]
    return given


def _gone(base: Base, ids: Ints, groups: Groups, *, once: bool) -> tuple[Ints, Ints, Ints, Ints]:
    """Find which entries of a sum of rows go with which group.

    Gives the entries' rows; whether each counts in the mean; and pairs of an entry and a group that takes it away.
    Entries are the different rows (`once`), each of which goes if all that it stands for goes; else every token and
    n-gram there is, of which tokens are counted.
    """
    grams = find_grams([ids], base.config, rows_of(base))
    gram, group = _touched(grams, groups)
    if not once:
        return grams.rows, (grams.size == 1).astype(np.int64), gram, group
    rows, entry, count = np.unique(grams.rows, return_inverse=True, return_counts=True)
    pairs, times = np.unique(entry[gram] * max(1, groups.count) + group, return_counts=True)
    entry, group = np.divmod(pairs, max(1, groups.count))
    gone = times == count[entry]
    return rows, np.ones_like(rows), entry[gone], group[gone]


def _touched(grams: Grams, groups: Groups) -> tuple[Ints, Ints]:
    """Find the n-grams that have a token in a group: pairs of an n-gram and a group, each once."""
    begin = np.searchsorted(groups.token, grams.start)
    end = np.searchsorted(groups.token, grams.start + grams.size)
    gram, group = np.repeat(np.arange(len(begin)), end - begin), groups.group[_ranges(begin, end)]
    pairs = np.unique(gram * max(1, groups.count) + group)
    first, second = np.divmod(pairs, max(1, groups.count))
    return first, second


def _sums(base: Base, rows: Ints, group: Ints, count: int) -> Tensor:
    """Add up the embeddings of rows, by group: (count, H)."""
    total = torch.zeros(count, base.config.nhid)
    tokens = rows < base.config.ntokens
    tables = [(base.embedding.weight, tokens, 0, base.scale)]
    if base.ngrams is not None:
        tables.append((base.ngrams.weight, ~tokens, base.config.ntokens, 1.0))
    for weight, which, first, scale in tables:
        vectors = weight.detach()[torch.from_numpy(rows[which] - first)]
        total.index_add_(0, torch.from_numpy(group[which]), vectors, alpha=scale)
    return total


def _blanked(
    model: Model,
    ids: Ints,
    groups: Groups,
    places: list[Ints],
    pool: Callable[[Tensor], Tensor],
    look: Callable[[], None],
) -> Iterator[tuple[Ints, Tensor]]:
    """Read pieces as they are, and with each group that is in them blank: the groups, and 1 + as many vectors."""
    causal = model.reads_causally
    for where in places:
        here = groups.at(where)
        present = np.unique(here.group)
        there = torch.ones(1 + len(present), len(where), dtype=torch.bool)
        there[torch.from_numpy(1 + np.searchsorted(present, here.group)), torch.from_numpy(here.token)] = False
        rows, vectors = torch.from_numpy(ids[where])[None], []
        with torch.no_grad():
            for some in torch.split(there, max(1, BATCH // max(1, len(where)))):
                look()
                same = rows.expand(len(some), -1)
                embedded = model.base.embed(same, some, causal=causal) * some[..., None]
                vectors.append(pool(model.base(same, causal=causal, embedded=embedded)))
        yield present, torch.cat(vectors)


def _changed(parts: Iterable[tuple[Ints, Floats]], count: int) -> Floats:
    """Add up what pieces give, each with the groups that change it: (1 + G, …)."""
    total: Floats | None = None
    for present, found in parts:
        total = np.zeros((1 + count, found.shape[1])) if total is None else total
        total += found[0]
        total[1 + present] += found[1:] - found[0]
    assert total is not None  # noqa: S101 (there is always a piece)
    return total


def _scored(head: ClassifierHead, vectors: Tensor) -> Floats:
    with torch.no_grad():
        scores: Floats = head.score(vectors).double().numpy()
    return scores


def _ranges(begin: Ints, end: Ints) -> Ints:
    """Put ranges of whole numbers behind one another."""
    count = end - begin
    before = np.cumsum(count) - count
    joined: Ints = np.arange(int(count.sum())) + np.repeat(begin - before, count)
    return joined
