"""What is trained under the head of a classifier: a base of our own, by one of its neural views, or a brought encoder.

`Trainable` is all that the objective (`rehead.finetune.objective`) asks of it. Here is that of our own bases; that of
encoders is in `rehead.finetune.encoder_network`.

Shapes: N documents, P pieces of documents, T tokens, H width of a vector.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rehead.model.model import Model
from rehead.runs.scoring import classifier_head
from rehead.text.long_documents import cut_documents
from rehead.views import make_view
from rehead.views.bag import BagView
from rehead.views.encoded import EncodedTexts
from rehead.views.layers import LayersView, pad
from rehead.views.rows import RowFinder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Trainable(Protocol):
    """A network that gives documents vectors, with a gradient."""

    name: str
    "The view of the head that reads it."
    columns: int
    "Width of a vector: H."
    padded: bool
    "Whether documents of about the same length are padded to the longest."
    standardise: bool
    "Whether the head is given standardised vectors."
    documents: int
    "Documents in a step, unless the user says."
    pad: int
    "The token of padding."

    def cut(self, ids: Sequence[Any]) -> tuple[Ints, list[Ints]]:
        """Cut tokenized documents into the pieces that are read at once: which document each is of (P,), their ids."""

    def vectors(self, parts: Sequence[Ints]) -> NDArray[np.float32]:
        """Give the vector of each piece, without a gradient: (P, H)."""

    def collate(self, parts: Sequence[Ints]) -> dict[str, Tensor]:
        """Make the tensors of some pieces that `pool` takes."""

    def pool(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Give the vector of each piece, with a gradient: (P, H)."""

    def depths(self) -> list[list[nn.Parameter]]:
        """Group its parameters from the top: those of each layer, then the embeddings."""

    def layer_modules(self) -> Sequence[nn.Module]:
        """List the layers."""

    def row_tables(self) -> list[nn.Embedding]:
        """List the tables of which a step touches few rows."""


class OwnNetwork:
    """A base of our own, by the neural view that the head of its model states."""

    documents = 32

    def __init__(self, model: Model, pad: int = 0, *, pretrained: bool = True) -> None:
        config = classifier_head(model).config.neural
        if config is None:
            raise TypeError("fine-tuning by gradient needs a classifier head on a neural view")
        view = make_view(model, config)
        assert isinstance(view, BagView | LayersView)  # noqa: S101 (the neural views)
        self.view: BagView | LayersView = view
        self.model, self.name, self.columns, self.pad = model, view.name, view.columns, pad
        self.padded = isinstance(view, LayersView)
        mean = isinstance(view, BagView) or view.options.pooling == "mean"
        # A head that reads directions has unit vectors already. Random post-norm layers need a learning rate at which
        # standardised states would jump.
        self.standardise = mean and not view.unit and (pretrained or model.config.norm == "pre")

    @functools.cached_property
    def _finder(self) -> RowFinder:
        return RowFinder(self.model.base)

    def cut(self, ids: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
        """Cut documents as the view does."""
        pieces, parts = cut_documents(ids, self.view.max_length, self.view.options.long)
        return pieces.document, parts

    def vectors(self, parts: Sequence[Ints]) -> NDArray[np.float32]:
        """Read pieces by the view."""
        vectors: NDArray[np.float32] = self.view.read(EncodedTexts(ids=parts)).matrix
        return vectors

    def collate(self, parts: Sequence[Ints]) -> dict[str, Tensor]:
        """Find the rows of pieces, or pad them."""
        return self.view.collate(self._finder, parts) if isinstance(self.view, BagView) else padded(parts)

    def pool(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Pool by the view."""
        return self.view.pool(tensors)

    def depths(self) -> list[list[nn.Parameter]]:
        """Group the parameters of the base."""
        return self.model.base.parameters_by_depth()

    def layer_modules(self) -> Sequence[nn.Module]:
        """List the layers of the base."""
        return self.model.base.layer_modules()

    def row_tables(self) -> list[nn.Embedding]:
        """List the tables of tokens and n-grams, as the view trains them."""
        return self.view.row_tables()


def padded(parts: Sequence[Ints], token: int = 0) -> dict[str, Tensor]:
    """Put pieces into one tensor, padded with a token: ids (P, T), and where these are real (P, T)."""
    ids, keep = pad(parts)
    return {"ids": torch.from_numpy(np.where(keep, ids, token)), "keep": torch.from_numpy(keep)}
