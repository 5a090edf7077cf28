"""The neural views of a base: its n-gram vectors, or the hidden states of its layers; and the statistics it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.model.model import Model
from rehead.views.bag import BagOptions, BagView
from rehead.views.encoded import EncodedTexts
from rehead.views.layers import LayersOptions, LayersView
from rehead.views.rows import RowFinder, row_count
from rehead.views.view import DenseView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SAMPLE_TOKENS = 1 << 18  # whose rows are counted at once


def neural_view(model: Model, name: str | None = None, *, unit: bool = True, **options: Any) -> DenseView:  # noqa: ANN401
    """Make a view of a base's vectors, by default of what its config says it reads.

    For a frozen base it is the direction (`unit`) of the mean hidden state or n-gram vector, unless options say more.
    """
    if (model.config.reads if name is None else name) == "bag":
        return BagView(model, BagOptions(**options), unit=unit)
    return LayersView(model, LayersOptions(**{"causal": model.config.causal, **options}), unit=unit)


def learn_statistics(model: Model, ids: Sequence[Ints], layers_tokens: int | None = None) -> None:
    """Have a base keep the statistics of these documents, for every view that it was trained to give.

    Layers read only the first of the documents, of about `layers_tokens` tokens.
    """
    finder = RowFinder(model.base)
    frequency = np.zeros(row_count(model.base), np.int64)
    for group in EncodedTexts(ids=ids).groups(SAMPLE_TOKENS):
        frequency += np.bincount(group.distinct_rows(finder).row, minlength=len(frequency))
    model.base.learn_frequency(frequency, len(ids))
    for name in model.config.views if model.config.reads == "layers" else ("bag",):
        some = ids
        if name == "layers" and layers_tokens is not None:
            some = ids[: int(np.searchsorted(np.cumsum([len(each) for each in ids]), layers_tokens)) + 1]
        model.base.learn_vectors(name, neural_view(model, name).read(EncodedTexts(ids=some)).matrix)
