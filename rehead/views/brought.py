"""What the views of bases that others pretrained share: the vectors of an engine (`rehead.bases`).

Such a view is named after its base, `encoder:all-MiniLM-L6-v2`: a classifier may read several.

Shapes: N texts, W columns, K classes, G groups of words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rehead.bases.brought import Brought
from rehead.bases.pieces import HEAD, Cutting
from rehead.errors import ConfigError, UserError, short_repr
from rehead.model.model import Model
from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups
from rehead.views.view import DenseView, Raw, shrunk_covariance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

EXPLAINED = 64  # texts at once in explaining: it can be stopped between


@dataclass(frozen=True, kw_only=True)
class BroughtOptions:
    """Which base is read."""

    base: str
    "Its name among the bases of the run."


class BroughtView(DenseView):
    """The vectors of a base that others pretrained."""

    Options = BroughtOptions
    options: BroughtOptions
    by_text = True
    known: tuple[Floats, Floats] | None = None
    "Mean and covariance of texts, if they were given."

    def __init__(self, model: Model, options: BroughtOptions, *, unit: bool = True) -> None:
        super().__init__(model, options, unit=unit)
        self.name = f"{type(self).name}:{options.base}"
        if self.name not in model.brought:
            raise ConfigError(f"view {short_repr(self.name)}: the run has no such base.")

    @property
    def brought(self) -> Brought:
        """The base that it reads by."""
        return self.model.brought[self.name]

    @property
    def cutting(self) -> Cutting:
        """What is read of a long text."""
        return HEAD

    @property
    def max_tokens(self) -> int | None:
        """Tokens of a text that are read, at most; None: all."""
        return self.brought.engine.max_length

    @property
    def columns(self) -> int:
        """Number of values of a vector."""
        return self.brought.engine.width

    def state(self) -> bytes:
        """What decides the vectors: the files, and the precision if it is not the usual one."""
        precision = self.brought.engine.precision
        return f"{self.brought.digest}{'' if precision == 'float32' else precision}".encode()

    def learn_statistics(self, raw: Raw) -> None:
        """Take the mean and covariance of these texts, for `fit`."""
        self.known = shrunk_covariance(raw.matrix.astype(np.float64))

    def fit(self, raw: Raw) -> None:
        """Use the mean and covariance of the texts that it was given before, else those of these."""
        self._fit(*(self.known or shrunk_covariance(raw.matrix.astype(np.float64))))

    def read(self, texts: EncodedTexts) -> Raw:
        """Encode each text."""
        return Raw(self._encode(texts.texts), np.arange(len(texts)), len(texts))

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = self.brought.engine.encode(texts, self.cutting)
        if not np.isfinite(vectors).all():
            raise UserError(f"{self.brought.source}: the vectors of texts are no numbers: its weights are too large.")
        return vectors

    def scores_without(
        self, weight: NDArray[Any], texts: EncodedTexts, groups: Groups, progress: Callable[[], None]
    ) -> Floats:
        """Encode the text again without the words of each group."""
        [text] = texts.texts
        given = [text, *texts_without(text, groups)]
        found = []
        for begin in range(0, len(given), EXPLAINED):
            progress()
            found.append(torch.from_numpy(self._encode(given[begin : begin + EXPLAINED])))
        return self._scores(weight, torch.cat(found))


def texts_without(text: str, groups: Groups) -> list[str]:
    """Give the text without the words of each group in turn."""
    spans: list[list[tuple[int, int]]] = [[] for _ in range(groups.count)]
    for span, group in groups.words:
        spans[group].append(span)
    found = []
    for each in spans:
        place, parts = 0, []
        for begin, end in sorted(each):
            parts.append(text[place:begin])
            place = end
        found.append("".join([*parts, text[place:]]))
    return found
