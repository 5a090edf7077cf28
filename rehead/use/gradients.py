"""What every token adds to a score that layers give: the slope of the score along the token's embedding, times that.

It is the first-order estimate of what the score would lose if the embedding were zero, for all tokens at once: a
document is read forwards and backwards once. How faithful that is, and what else was tried: docs/explaining.md.

Shapes: T tokens of a document, P pieces of it, L tokens of the longest piece, H hidden width, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rehead.model.heads import ClassifierHead
from rehead.model.model import Model
from rehead.model.reading import Reading, reads_whole, vectors_of_ids
from rehead.text.long_documents import cut_long

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

BATCH = 4096  # tokens whose way through the layers is kept in memory at once


def token_shares(model: Model, ids: Ints, slope: Floats, reading: Reading) -> Floats:
    """Give what each token adds to slope · scores by the document's vector, slope being (K,): (T,).

    The model is to be in evaluation mode.
    """
    shares = np.zeros(len(ids))
    if not len(ids):
        return shares
    limit = reading.limit(model.base)
    if whole := reads_whole(model, reading):
        places = [np.arange(begin, min(begin + limit, len(ids))) for begin in range(0, len(ids), limit)]
    else:
        pieces = cut_long(np.array([len(ids)], np.int64), limit, reading.long)
        places = [pieces.read(piece, np.arange(len(ids))) for piece in range(len(pieces.document))]
    with torch.enable_grad():
        gain = _of_whole(model, ids, slope, limit) if whole else _of_pieces(model, slope, len(places))
        at_once = max(1, BATCH // len(places[0]))  # the first piece is a longest one
        for begin in range(0, len(places), at_once):
            some = places[begin : begin + at_once]
            found = _shares(model, [ids[where] for where in some], gain)
            for where, row in zip(some, found, strict=True):
                np.add.at(shares, where, row[: len(where)])
    return shares


Gain = Callable[[Tensor, Tensor], Tensor]
"Hidden states (P, L, H), and which of them are real (P, L) → what they add to the score."


def _of_pieces(model: Model, slope: Floats, pieces: int) -> Gain:
    """The scores of the pieces are averaged."""
    head, along = model.head, torch.from_numpy(slope).float()
    assert isinstance(head, ClassifierHead)  # noqa: S101 (for the type checker)
    return lambda hidden, keep: head.score(head.pool(hidden, keep)).sum(0) @ along / pieces


def _of_whole(model: Model, ids: Ints, slope: Floats, limit: int) -> Gain:
    """The mean of all hidden states is scored, so each of them has the same slope."""
    assert isinstance(model.head, ClassifierHead)  # noqa: S101 (for the type checker)
    mean = torch.from_numpy(vectors_of_ids(model, [ids], longest=limit)).requires_grad_()
    [every] = torch.autograd.grad(model.head.score(mean)[0] @ torch.from_numpy(slope).float(), mean)  # (1, H)
    return lambda hidden, keep: (hidden * keep[..., None]).sum((0, 1)) @ every[0] / len(ids)


def _shares(model: Model, parts: list[Ints], gain: Gain) -> Floats:
    """Follow some pieces through the layers and back: (P, L)."""
    lengths = np.array([len(each) for each in parts])
    keep = np.arange(lengths.max()) < lengths[:, None]
    rows = np.zeros(keep.shape, np.int64)
    rows[keep] = np.concatenate(parts)
    ids, real = torch.from_numpy(rows), torch.from_numpy(keep)
    causal = model.reads_causally
    with torch.no_grad():
        embedded = model.base.embed(ids, real, causal=causal)  # (P, L, H)
    embedded.requires_grad_()
    total = gain(model.base(ids, real, causal=causal, embedded=embedded), real)
    [slope] = torch.autograd.grad(total, embedded)
    shares: Floats = (slope * embedded.detach()).sum(-1).double().numpy()
    return shares
