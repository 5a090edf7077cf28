"""The layers of the own Transformer: a document is the mean of its hidden states, or the last of them.

Layers read at most `max_length` tokens at once. A frozen classifier (`unit`) with windows reads a long document in
stretches that do not overlap and averages all hidden states; otherwise each piece is pooled, and scores are averaged.

Texts are read in batches of about the same length, so that little is padding.

Shapes: N texts, P pieces, T tokens, H hidden width, G groups of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from rehead.errors import ConfigError
from rehead.model.config import Pooling
from rehead.model.heads import pool
from rehead.text.long_documents import LongRule, check_cutting, cut_documents, split_long
from rehead.views.encoded import GROUP_TOKENS, EncodedTexts
from rehead.views.leave_out import Groups
from rehead.views.view import DenseView, Raw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

MAX_LENGTH = 256  # tokens read at once, unless told otherwise
CPU_TOKENS = 4096  # in a batch on a CPU: the activations stay in its cache (a fifth faster)
EXPLAIN_TOKENS = 2_048  # in a batch of explaining: more is not faster, and it takes longer to stop


@dataclass(frozen=True, kw_only=True)
class LayersOptions:
    """How the layers read."""

    pooling: Pooling = "mean"
    "How the hidden states become one vector."
    causal: bool = False
    "Read under the square mask (True) or both ways (False)."
    max_length: int | None = None
    "Tokens read at once; None: 256, or what the positions allow."
    long: LongRule = "windows"
    "What is read of a longer document; the scores of several windows are averaged."

    def __post_init__(self) -> None:
        check_cutting(self.max_length, self.long)
        if self.pooling not in ("mean", "last") or type(self.causal) is not bool:
            raise ConfigError(
                f"pooling={self.pooling!r}, causal={self.causal!r}: expected mean or last, true or false."
            )


class LayersView(DenseView):
    """Hidden states of the Transformer."""

    name = "layers"
    about = "the hidden states of the Transformer"
    word_order = True
    of_base = True
    Options = LayersOptions
    options: LayersOptions

    @property
    def max_length(self) -> int:
        """Tokens read at once."""
        given = self.options.max_length
        return min(MAX_LENGTH, self.model.config.maxlen) if given is None else given

    @property
    def whole(self) -> bool:
        """Whether the hidden states of a whole document are averaged, rather than pooled piece by piece."""
        return self.unit and (self.options.pooling, self.options.long) == ("mean", "windows")

    def read(self, texts: EncodedTexts) -> Raw:
        """Pool each document, or each of its pieces."""
        ids = texts.ids
        if self.whole:
            return Raw(self._means(ids), np.arange(len(ids)), len(ids))
        pieces, parts = cut_documents(ids, self.max_length, self.options.long)
        vectors = np.zeros((len(parts), self.columns), np.float32)
        for members, hidden, keep in self._hidden(parts):
            vectors[members] = pool(hidden, keep, self.options.pooling).float().cpu().numpy()
        return Raw(vectors, pieces.document, len(ids))

    def _means(self, ids: Sequence[Ints]) -> NDArray[np.float32]:
        """Average the hidden states of whole documents, read in stretches that do not overlap: (N, H)."""
        stretches = [(text, begin) for text, each in enumerate(ids) for begin in range(0, len(each), self.max_length)]
        parts = [ids[text][begin : begin + self.max_length] for text, begin in stretches]
        owner = np.array([text for text, _ in stretches], np.int64)
        sums = np.zeros((len(ids), self.columns), np.float32)
        for members, hidden, keep in self._hidden(parts):
            total = hidden.masked_fill(~keep[..., None], 0.0).sum(1).float()
            np.add.at(sums, owner[members], total.cpu().numpy())
        means: NDArray[np.float32] = sums / np.array([max(1, len(each)) for each in ids], np.float32)[:, None]
        return means

    def _hidden(self, parts: Sequence[Ints]) -> Iterator[tuple[Ints, Tensor, Tensor]]:
        """Read pieces in padded batches: which ones, their hidden states (n, T, H), and which are real (n, T)."""
        causal, device = self.options.causal, self.model.device
        with self.model.evaluating():
            for members, ids, keep in padded_batches(parts, CPU_TOKENS if device.type == "cpu" else GROUP_TOKENS):
                rows, real = torch.from_numpy(ids).to(device), torch.from_numpy(keep).to(device)
                # Under the square mask no token sees the padding behind it, and rows of one length have none.
                needless = causal or bool(keep.all())
                yield members, self.model.base(rows, None if needless else real, causal=causal), real

    # Training by gradient: what `rehead.finetune.objective` asks of the view under the head.

    def pool(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Pool, with a gradient: (P, H)."""
        ids, keep = tensors["ids"], tensors["keep"]
        if empty := not len(ids):  # this process got no document: read a token that counts for nothing
            ids, keep = ids.new_zeros(1, 1), keep.new_ones(1, 1)
        causal = self.options.causal
        needless = causal or bool(keep.all())  # documents of one length have no padding: 4 % faster without a mask
        hidden = self.model.base(ids, None if needless else keep, causal=causal)
        pooled = pool(hidden, keep, self.options.pooling)
        return pooled[:0] if empty else pooled

    def row_tables(self) -> list[nn.Embedding]:
        """Tables of which a step touches few rows: the n-grams; padded batches have dense gradients for tokens."""
        return [table for first, table in self.model.base.row_tables() if first]

    # Explaining.

    def scores_without(
        self, weight: NDArray[Any], texts: EncodedTexts, groups: Groups, progress: Callable[[], None]
    ) -> Floats:
        """Read again with the embeddings of each group zeroed, only the pieces that the group is in.

        Zeroed tokens keep their positions: closing the gap would shift all that follows and so drown the effect of the
        group itself (docs/experiments/explaining.md). The n-grams that a token of the group is in go with it.
        """
        [ids] = texts.ids
        places = self._places(len(ids))
        if not self.whole:
            found = self._blanked(ids, groups, places, self.options.pooling, progress)
            scored = ((present, self._scores(weight, vectors)) for present, vectors in found)
            return _combined(scored, groups.count) / len(places)
        found = self._blanked(ids, groups, places, "sum", progress)
        sums = _combined(((present, vectors.double().numpy()) for present, vectors in found), groups.count)
        return self._scores(weight, torch.from_numpy(sums / max(1, len(ids))).float())

    def tokens_without(self, texts: EncodedTexts, groups: Groups) -> int:
        """Count the tokens of each piece, as often as it is read: whole, and without each group that is in it."""
        [ids] = texts.ids
        return sum(len(where) * (1 + len(np.unique(groups.at(where).group))) for where in self._places(len(ids)))

    def _places(self, tokens: int) -> list[Ints]:
        """Say which tokens of a document are read together."""
        if not self.whole:
            pieces = split_long(np.array([tokens], np.int64), self.max_length, self.options.long)
            return [pieces.read(piece, np.arange(tokens)) for piece in range(len(pieces.document))]
        limit = self.max_length
        return [np.arange(begin, min(begin + limit, tokens)) for begin in range(0, max(1, tokens), limit)]

    def _blanked(
        self,
        ids: Ints,
        groups: Groups,
        places: list[Ints],
        pooling: Pooling | Literal["sum"],
        progress: Callable[[], None],
    ) -> Iterator[tuple[Ints, Tensor]]:
        """Read pieces whole, then with each group that is in them zeroed: the groups, and 1 + as many vectors."""
        base, causal, device = self.model.base, self.options.causal, self.model.device
        for where in places:
            here = groups.at(where)
            present = np.unique(here.group)
            keep = torch.ones(1 + len(present), len(where), dtype=torch.bool)
            keep[torch.from_numpy(1 + np.searchsorted(present, here.group)), torch.from_numpy(here.token)] = False
            row, vectors = torch.from_numpy(ids[where])[None].to(device), []
            with self.model.evaluating():
                for some in torch.split(keep.to(device), max(1, EXPLAIN_TOKENS // max(1, len(where)))):
                    progress()
                    same = row.expand(len(some), -1)
                    embedded = base.embed(same, some, causal=causal) * some[..., None]
                    hidden = base(same, causal=causal, embedded=embedded)
                    vectors.append(hidden.sum(1) if pooling == "sum" else pool(hidden, None, pooling))
            yield present, torch.cat(vectors).cpu()


def padded_batches(parts: Sequence[Ints], tokens: int) -> Iterator[tuple[Ints, Ints, NDArray[np.bool_]]]:
    """Put pieces of about the same length together: which ones, their ids (n, T), and where these are real (n, T)."""
    lengths = np.array([len(each) for each in parts], np.int64)
    order = np.argsort(lengths, kind="stable")
    begin = 0
    while begin < len(order):
        # As many as fit when padded to the longest of them, which is the last.
        sizes = np.arange(1, len(order) - begin + 1) * np.maximum(lengths[order[begin:]], 1)
        members = order[begin : begin + max(1, int(np.searchsorted(sizes, tokens, side="right")))]
        ids, keep = pad([parts[place] for place in members])
        yield members, ids, keep
        begin += len(members)


def pad(parts: Sequence[Ints]) -> tuple[Ints, NDArray[np.bool_]]:
    """Put pieces into the rows of one array, with padding behind them: ids (n, T), and where these are real (n, T)."""
    lengths = np.array([len(each) for each in parts], np.int64)
    ids = np.zeros((len(lengths), max(1, int(lengths.max(initial=1)))), np.int64)
    for row, part in zip(ids, parts, strict=True):
        row[: len(part)] = part
    return ids, np.arange(ids.shape[1]) < lengths[:, None]


def _combined(parts: Iterable[tuple[Ints, Floats]], count: int) -> Floats:
    """Add up what pieces give, each with the groups that change it: (1 + G, …)."""
    total: Floats | None = None
    for present, found in parts:
        total = np.zeros((1 + count, found.shape[1])) if total is None else total
        total += found[0]
        total[1 + present] += found[1:] - found[0]
    assert total is not None  # noqa: S101 (there is always a piece)
    return total
