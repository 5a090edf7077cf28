"""A brought encoder in training: its Transformer, by transformers, under the head of a classifier.

Every family that `transformers.AutoModel` loads is trained the same way; the BERT family is read by
`rehead.bases.bert` again once it is trained. Pooling, normalisation and `Dense` modules stay as they are.

Shapes: N documents, P pieces, T tokens, W values of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from rehead.bases.encoder import Encoder, batches
from rehead.errors import UserError
from rehead.finetune.trainable import padded
from rehead.views.encoder import EncoderView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

READ_TOKENS = 4_096  # in a batch without a gradient


class EncoderNetwork(nn.Module):
    """The Transformer of a brought encoder."""

    padded = True
    documents = 16

    def __init__(self, view: EncoderView, *, dropout: float | None = None) -> None:
        """Load what a view reads by; `dropout` replaces the probability that its config states."""
        super().__init__()
        brought = view.brought
        self.encoder = encoder = Encoder(brought.root)
        if encoder.model.config.is_encoder_decoder:
            raise UserError(
                f"{brought.source}: the encoder of an encoder-decoder model is read, not trained. Use --freeze base."
            )
        self.network: nn.Module = encoder.model.requires_grad_(True)
        self.name, self.columns, self.pad = brought.name, encoder.width, encoder.pad
        self.cutting, self.standardise = view.cutting, not view.unit
        for module in self.network.modules():
            if dropout is not None and isinstance(module, nn.Dropout):
                module.p = dropout
        self.unused = self._find_unused()

    def _find_unused(self) -> frozenset[str]:
        """Name the parameters that vectors do not depend on, such as BERT's pooler."""
        ids = torch.tensor(self.encoder.token_ids(["a"]))
        self.encoder.vectors(ids, torch.ones_like(ids, dtype=torch.bool)).sum().backward()  # type: ignore[no-untyped-call]
        unused = frozenset(name for name, each in self.network.named_parameters() if each.grad is None)
        self.zero_grad(set_to_none=True)
        return unused

    def tokenize(self, texts: Sequence[str]) -> list[list[Ints]]:
        """Give the pieces of each text, special tokens included."""
        found = self.encoder.cutter.cut(texts, self.cutting)
        pieces: list[list[Ints]] = [[] for _ in texts]
        for document, ids in zip(found.document, found.ids, strict=True):
            pieces[document].append(np.array(ids or [self.pad], np.int64))  # a text without tokens is one of padding
        return pieces

    def cut(self, ids: Sequence[list[Ints]]) -> tuple[Ints, list[Ints]]:
        """Flatten documents, which were cut when they were tokenized."""
        document = np.repeat(np.arange(len(ids)), [len(each) for each in ids])
        return document, [part for each in ids for part in each]

    def vectors(self, parts: Sequence[Ints]) -> NDArray[np.float32]:
        """Encode pieces: (P, W)."""
        vectors = np.zeros((len(parts), self.columns), np.float32)
        for members in batches([len(each) for each in parts], READ_TOKENS):
            vectors[members] = self.encoder.vectors_of([parts[place].tolist() for place in members]).numpy()
        return vectors

    def collate(self, parts: Sequence[Ints]) -> dict[str, Tensor]:
        """Pad pieces."""
        return padded(parts, self.pad)

    def pool(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Encode padded pieces: (P, W)."""
        ids, keep = tensors["ids"], tensors["keep"]
        if len(ids):
            return self.encoder.vectors(ids, keep)
        # This process got no document: read a token that counts for nothing.
        return self.encoder.vectors(ids.new_full((1, 1), self.pad), keep.new_ones(1, 1))[:0]

    def depths(self) -> list[list[nn.Parameter]]:
        """Group its parameters from the top: those of each layer, then those before the layers.

        What comes after the layers, such as a last norm, goes with the uppermost.
        """
        inside = {id(each): number for number, layer in enumerate(self.layer_modules()) for each in layer.parameters()}
        groups: list[list[nn.Parameter]] = [[] for _ in range(len(set(inside.values())))]
        above: list[nn.Parameter] = []
        below: list[nn.Parameter] = []
        for name, each in self.network.named_parameters():
            if name in self.unused:
                continue
            if (number := inside.get(id(each))) is not None:
                groups[-1 - number].append(each)
            else:
                (above if groups and any(groups) else below).append(each)
        if groups:
            groups[0] += above
        return [*groups, below]

    def layer_modules(self) -> Sequence[nn.Module]:
        """Find the layers: the list of modules that is as long as the config says, else the first one."""
        lists = [each for each in self.network.modules() if isinstance(each, nn.ModuleList) and len(each)]
        count = getattr(self.encoder.model.config, "num_hidden_layers", None)
        lists.sort(key=lambda each: len(each) != count)  # stable
        return list(lists[0]) if lists else []

    def row_tables(self) -> list[nn.Embedding]:
        """List none: gradients are dense."""
        return []
