"""What a linear classifier reads of a document: its direction in the base's space, and its exact words.

    direction   the document's vector from the middle of all documents, at the length one, turned onto the axes along
                which the unlabelled documents spread; an axis counts as much as (its spread)^(power − 1). The higher
                the power, the more a few labels follow what the unlabelled text says matters.
    words       its different tokens and n-grams, rare ones the more (idf), at the length one; then each by how unevenly
                it is found in the classes, as naive Bayes measures it (NB-SVM). That is computed from the labels that
                are trained on, so in cross-validation for every fold anew.

Shapes: N documents, P pieces of them, H hidden width, R rows (tokens and n-grams), K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.model.model import Model
from rehead.model.reading import Reading, cut, distinct_rows, is_bag, vectors_of_ids
from rehead.model.spread import rows_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

SHRINK = 0.1  # how far a covariance of few documents is drawn towards one that is the same along all axes
GROUP = 1000  # documents whose words are found at once


@dataclass
class Space:
    """Where documents lie: the middle, the axes of their spread, and how common words are."""

    centre: Floats
    "(H,)"
    axes: Floats
    "An axis in each column, the widest first: (H, H)."
    spread: Floats
    "Along each axis, as a share of the widest: (H,)."
    idf: Floats
    "(R,)"

    def turn(self, power: float) -> Floats:
        """Give the matrix that turns directions onto the axes and scales them: (H, H). The mean square stays 1."""
        scale = self.spread ** (power - 1)
        # A direction's square is spread over the axes as the squares of the spread are.
        mean = float((self.spread**2 * scale**2).sum() / (self.spread**2).sum())
        turned: Floats = self.axes * (scale / mean**0.5)
        return turned


@dataclass
class Features:
    """Documents as a linear classifier reads them."""

    directions: Floats
    "(N, H)"
    words: Any
    "A sparse matrix (N, R) of scipy's."

    def some(self, which: Ints) -> Features:
        """Take some documents."""
        return Features(self.directions[which], self.words[which])

    def __len__(self) -> int:
        return len(self.directions)


@dataclass
class Seen:
    """Documents as a base reads them, before they are seen from anywhere."""

    vectors: Floats
    "Those of the pieces that documents are read in: (P, H)."
    document: Ints
    "Which document each piece is of: (P,)."
    words: Any
    "Which rows each document has, the whole of it: a sparse matrix (N, R) of ones, of scipy's."

    @classmethod
    def by(cls, model: Model, ids: Sequence[Ints], reading: Reading | None = None) -> Seen:
        """Read documents that are encoded."""
        reading = Reading() if reading is None else reading
        base = model.base.eval()
        longest = reading.limit(base)
        if reading.long == "windows" and not is_bag(base):  # one vector of all that layers have read
            document, parts = np.arange(len(ids)), ids
        else:
            pieces, parts = cut(ids, longest, reading.long)
            document = pieces.document
        return cls(vectors_of_ids(model, parts, longest=longest).astype(np.float64), document, _words(model, ids))


@dataclass
class Pool:
    """Documents without labels, encoded; how a base reads them is found out once."""

    ids: Sequence[Ints]
    seen: dict[tuple[int, Reading], Seen] = field(default_factory=dict)
    "By the number of layers that have read them, and how they were cut."

    def by(self, model: Model, reading: Reading) -> Seen:
        """Read them by a base: always the same, but for layers that may be left out."""
        key = (model.config.nlayers, reading)
        if key not in self.seen:
            self.seen[key] = Seen.by(model, self.ids, reading)
        return self.seen[key]


def read_documents(model: Model, ids: Sequence[Ints], reading: Reading | None = None) -> tuple[Features, Space]:
    """Read documents that are encoded, in the space of the base; in that of these documents, if that is unknown."""
    seen = Seen.by(model, ids, reading)
    space = find_space(model, seen)
    return in_space(seen, space), space


def in_space(seen: Seen, space: Space) -> Features:
    """See documents from the middle of a space; the direction of one in pieces is the mean of theirs."""
    apart = seen.vectors - space.centre
    directions = apart / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-12)
    if len(directions) > seen.words.shape[0]:
        begins, counts = np.unique(seen.document, return_index=True, return_counts=True)[1:]
        directions = np.add.reduceat(directions, begins) / counts[:, None]
    weighted = seen.words.multiply(space.idf[None]).tocsr()
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(1))).ravel()
    weighted.data /= np.maximum(np.repeat(lengths, np.diff(weighted.indptr)), 1e-12)
    return Features(directions, weighted)


def find_space(model: Model, seen: Seen) -> Space:
    """Find where documents lie: what the base has kept of its unlabelled text, else what these documents say."""
    kept = model.base.spread
    if kept.known:
        centre, covariance = kept.centre.double().numpy(), kept.covariance.double().numpy()
        frequency, documents = kept.frequency.double().numpy(), float(kept.documents)
    else:
        vectors = seen.vectors
        centre = vectors.mean(0)
        apart = vectors - centre
        covariance = apart.T @ apart / max(1, len(vectors) - 1)
        share = SHRINK + (1 - SHRINK) * covariance.shape[0] / (covariance.shape[0] + len(vectors))
        covariance = (1 - share) * covariance + share * np.eye(len(centre)) * np.trace(covariance) / len(centre)
        frequency, documents = np.asarray(seen.words.sum(0), np.float64).ravel(), float(len(vectors))
    squares, axes = np.linalg.eigh(covariance)
    spread = np.sqrt(np.maximum(squares[::-1], 0))
    spread = np.maximum(spread / max(spread[0], 1e-300), 1e-3) if spread[0] > 0 else np.ones_like(spread)
    return Space(centre, axes[:, ::-1], spread, np.log((1 + documents) / (1 + frequency)) + 1)


def unevenness(words: Any, truth: NDArray[Any], classes: int) -> Floats:  # noqa: ANN401 (scipy's)
    """Measure how unevenly each row is found in the classes: (R,), 0 for rows that are not found at all.

    For two classes it is |log of the ratio of its shares in them|, each row counted once more than it is found; for
    more, the root mean square over the classes of the same, each against all others.
    """
    there = (words > 0).astype(np.float64)
    total = np.asarray(there.sum(0)).ravel()
    squares, count = np.zeros(len(total)), 0
    for label in range(classes):
        members = truth[:, label] > 0 if truth.ndim == 2 else truth == label
        if not members.any() or members.all():
            continue
        inside = np.asarray(there[np.flatnonzero(members)].sum(0)).ravel()
        p, q = inside + 1, total - inside + 1
        squares += np.log(p / p.sum() / (q / q.sum())) ** 2
        count += 1
    uneven: Floats = np.sqrt(squares / max(1, count)) * (total > 0)
    return uneven


def _words(model: Model, ids: Sequence[Ints]) -> Any:  # noqa: ANN401 (scipy's)
    """Find which rows each document has: a sparse matrix (N, R) of ones."""
    from scipy import sparse

    columns, counts = [], []
    for begin in range(0, len(ids), GROUP):
        grams = distinct_rows(model.base, ids[begin : begin + GROUP])
        columns.append(grams.rows)
        counts.append(np.bincount(grams.document, minlength=len(ids[begin : begin + GROUP])))
    rows = np.concatenate(columns) if columns else np.zeros(0, np.int64)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts))]) if counts else np.zeros(1, int)
    return sparse.csr_matrix((np.ones(len(rows)), rows, ends), shape=(len(ids), rows_in(model.config)))
