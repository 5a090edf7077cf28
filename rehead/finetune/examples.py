"""Documents as a linear classifier sees them: the features of each view, and the labels where there are some.

Shapes: N documents, W columns of a view, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.runs.run import Run
from rehead.views.cache import read_cached
from rehead.views.encoded import EncodedTexts
from rehead.views.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


@dataclass
class Examples:
    """Some documents, labelled or not."""

    views: Sequence[View]
    "What read them, with the statistics that the features are scaled by."
    features: Mapping[str, Any]
    "By view: an array, or a sparse matrix, (N, W)."
    truth: NDArray[Any]
    "The class of each, (N,), or a table of yes and no, (N, K), if multilabel; empty if the documents are unlabelled."
    classes: int
    balanced: bool = False
    "Whether all classes count the same, however many documents they have."

    def take(self, which: Ints) -> Examples:
        """Select some documents."""
        features = {name: each[which] for name, each in self.features.items()}
        return replace(self, features=features, truth=self.truth[which])

    def only(self, views: Sequence[View]) -> Examples:
        """Keep some of the views."""
        return replace(self, views=views, features={view.name: self.features[view.name] for view in views})

    def __len__(self) -> int:
        return int(self.features[self.views[0].name].shape[0])

    @property
    def multilabel(self) -> bool:
        """Whether documents may have several labels, or none."""
        return self.truth.ndim == 2


def read_examples(
    run: Run,
    views: Sequence[View],
    texts: Sequence[str],
    truth: NDArray[Any],
    classes: int,
    *,
    balanced: bool,
    quiet: bool = True,
) -> Examples:
    """Read labelled documents through views; what these scale by is found here."""
    features, encoded = {}, EncodedTexts(texts, run.tokenizer)
    for view in views:
        raw = read_cached(view, encoded, run.digest, quiet=quiet)
        view.fit(raw)
        features[view.name] = view.transform(raw)
    return Examples(views, features, truth, classes, balanced)


def read_unlabelled(run: Run, like: Examples, texts: Sequence[str], *, quiet: bool = True) -> Examples:
    """Read documents without labels through the views, and with the statistics, of labelled ones."""
    encoded = EncodedTexts(texts, run.tokenizer)
    features = {view.name: view.transform(read_cached(view, encoded, run.digest, quiet=quiet)) for view in like.views}
    return replace(like, features=features, truth=np.zeros((0, *like.truth.shape[1:]), like.truth.dtype))
