"""Texts → the dense vectors that labelling computes with: first by latent semantic analysis, then of a base, too.

    lsa      words of the user's own text (of short texts, character n-grams as well), reduced to a few hundred
             directions: there after seconds
    base     n-gram vectors of the base that is pretrained meanwhile, or vectors of the bases that were given

Each block has directions of unit length, so that blocks count the same. Texts are read in groups: memory does not grow
with them, but for the vectors.

Shapes: W texts, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rehead.label.blocks import Block
from rehead.model.config import NO_BASE
from rehead.model.model import Model
from rehead.runs.run import Run
from rehead.views import brought_views
from rehead.views.encoded import EncodedTexts
from rehead.views.learnt import LONG
from rehead.views.lsa import LsaView
from rehead.views.neural import neural_view
from rehead.views.view import View
from rehead.views.words import WordsView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.text.tokenizer import Tokenizer

    Floats = NDArray[np.float32]

GROUP = 256  # texts read at once
FITTED = 1_000  # texts that statistics are taken from where a base has none
LEARNT = 20_000  # texts that words and directions are learnt from, at most


class FeatureReader:
    """Reads texts by one view."""

    def __init__(self, view: View, tokenizer: Tokenizer | None) -> None:
        self.view, self.tokenizer = view, tokenizer

    def encoded(self, texts: Sequence[str]) -> EncodedTexts:
        """Wrap texts for the view."""
        return EncodedTexts(texts, self.tokenizer)

    def read(self, texts: Sequence[str]) -> Floats:
        """Give the features of a few texts."""
        found = self.view.transform(self.view.read(self.encoded(texts)))
        return np.nan_to_num(np.asarray(found, np.float32))

    def read_all(self, texts: Iterable[str], count: int, advance: Callable[[int], None]) -> Block:
        """Read all texts; `advance` is told of each group, and may raise to stop."""
        matrix = np.zeros((count, self.view.columns), np.float32)
        group: list[str] = []
        place = 0
        for text in texts:
            group.append(text)
            if len(group) == GROUP:
                matrix[place : place + len(group)] = self.read(group)
                place += len(group)
                group = []
                advance(GROUP)
        if group:
            matrix[place : place + len(group)] = self.read(group)
            advance(len(group))
        return Block(self.view, self.tokenizer, matrix)


def lsa_reader(sample: Sequence[str]) -> FeatureReader:
    """Learn the directions of some texts. Of long ones, character n-grams are not read: they would take long."""
    texts = EncodedTexts(sample)
    model = Model(NO_BASE).eval()
    view = LsaView(model, LsaView.Options())
    if sum(map(len, sample)) > LONG * len(sample):
        words = WordsView(model, WordsView.Options())
        words.learn(texts)
        view.learn(texts, [words])
    else:
        view.learn(texts)
    view.fit(view.read(EncodedTexts(sample[:1])))
    return FeatureReader(view, None)


def base_readers(base: Run, sample: Sequence[str]) -> list[FeatureReader]:
    """Open the dense views of a base: of rehead's own, and of those that others pretrained."""
    views: list[View] = [] if base.model.config.empty else [neural_view(base.model)]
    views += brought_views(base.model)
    readers = [FeatureReader(view, base.tokenizer) for view in views if not view.sparse]
    for reader in readers:
        reader.view.fit(reader.view.read(reader.encoded(sample[:FITTED])))
    return readers
