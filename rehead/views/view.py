"""A view: one way of reading a document, which turns texts into features for a linear classifier.

    view.learn(texts)              what can be learnt from all text at hand, if anything: a vocabulary, principal axes
    raw = view.read(texts)         what the view sees of each text; the expensive part, cached on disk (`views.cache`)
    view.fit(raw)                  statistics that features are scaled by: those of the base's unlabelled text, if known
    features = view.transform(raw)   (texts, columns), dense or sparse: what the linear head multiplies

A view that reads long documents in pieces gives a row for each piece; `transform` averages them, so the score of a
document is the mean of the scores of its pieces. A new view is a subclass in a file of its own, listed in
`rehead/views/__init__.py`; nothing above this package knows which views there are.

Shapes: N texts, P pieces of them, W columns, K classes, G groups of words.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch

from rehead.model.config import ViewConfig, from_dict
from rehead.model.heads import unit_vectors
from rehead.model.model import Model
from rehead.views.encoded import EncodedTexts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.views.leave_out import Groups

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

SHRINKAGE = 0.1  # least share of the identity in a covariance that is estimated from few documents
CHARACTERS_PER_TOKEN = 4  # about, in most languages


class Raw(NamedTuple):
    """What a view sees of some texts."""

    matrix: Any
    "Dense (P, W) of float32, or a sparse csr matrix (N, W)."
    document: Ints
    "Which text each row is of, ascending: (P,)."
    texts: int
    "How many texts there are."


class View(ABC):
    """One way of reading documents. Subclasses say how to read; statistics and scaling are shared by kind."""

    name: str
    "What a run's config calls it; also the key of its weights."
    sparse: ClassVar[bool]
    "Whether features are a sparse matrix."
    about: ClassVar[str]
    "What it reads of a text, in a few words, for people."
    word_order: ClassVar[bool] = False
    "Whether it matters where in the text a word stands."
    of_base: ClassVar[bool] = False
    "Whether it reads the base of the run, and so its tokens."
    learns: ClassVar[bool] = False
    "Whether `learn` must be called before `read`; other views come with what the base has learnt."
    by_text: ClassVar[bool] = False
    "Whether a text gets one vector, by `state` alone, and so dearly that the cache keeps the vector of each text."
    Options: ClassVar[type[Any]]
    "A frozen dataclass of what a run's config states about this view."
    terms: int = 0
    "Number of n-grams of the text whose hashes it keeps in the head."

    def __init__(self, model: Model, options: Any, *, unit: bool = True) -> None:  # noqa: ANN401 (see `Options`)
        self.model, self.options, self.unit = model, options, unit

    @classmethod
    def from_config(cls, model: Model, config: ViewConfig) -> View:
        """Make the view that a classifier's config describes."""
        return cls(model, from_dict(cls.Options, dict(config.options)), unit=config.unit)

    @property
    @abstractmethod
    def columns(self) -> int:
        """Number of features: W."""

    def config(self) -> ViewConfig:
        """Describe this view as a run's config does."""
        options = dataclasses.asdict(self.options)
        return ViewConfig(
            name=self.name,
            columns=self.columns,
            sparse=self.sparse,
            unit=self.unit,
            terms=self.terms,
            options=options,
        )

    def learn(self, texts: EncodedTexts, beside: Sequence[View] = ()) -> None:  # noqa: B027 (most have nothing to learn)
        """Learn from all text at hand, labelled or not; `beside`: views that have learnt from it already."""

    def state(self) -> bytes:
        """What was learnt, as far as it decides the result of `read`: for the cache."""
        return b""

    @abstractmethod
    def read(self, texts: EncodedTexts) -> Raw:
        """Read texts."""

    @abstractmethod
    def fit(self, raw: Raw) -> None:
        """Find the statistics that `transform` scales by: the base's, or those of these texts."""

    @abstractmethod
    def load_statistics(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the statistics that a classifier's head has kept."""

    def damaged_statistics(self, tensors: Mapping[str, torch.Tensor]) -> str | None:
        """Say what is wrong with statistics that are of the right shapes and finite; None if nothing is."""
        return None

    @abstractmethod
    def statistics(self) -> dict[str, Floats]:
        """Give the statistics that a classifier's head keeps, by the names of its tensors."""

    @abstractmethod
    def transform(self, raw: Raw) -> Any:  # noqa: ANN401 (an array or a sparse matrix)
        """Scale what was read into features: (N, W), in the precision of the statistics."""

    @abstractmethod
    def scores_without(
        self, weight: NDArray[Any], texts: EncodedTexts, groups: Groups, progress: Callable[[], None]
    ) -> Floats:
        """Score one text whole, then without each group of its tokens: (1 + G, K), without the bias.

        `progress` is called between batches; an exception it raises ends the work.
        """

    def tokens_without(self, texts: EncodedTexts, groups: Groups) -> int:
        """Count the tokens that `scores_without` reads, so that its cost is known before; 0 if it reads nothing again.

        A view that does not say so is taken to read the text once more for every group.
        """
        return (1 + groups.count) * count_tokens(texts)


class DenseView(View):
    """A view whose features are one vector per document: its direction from the mean document, at unit length."""

    sparse = False
    shift: Floats
    "The mean document, which is subtracted: (W,)."
    components: Floats
    "Principal axes of the documents, one per column, the widest first: (W, W)."
    deviations: Floats
    "Standard deviation along each, as a share of the widest: (W,)."

    @property
    def columns(self) -> int:
        """Width of the hidden states."""
        return self.model.config.nhid

    def fit(self, raw: Raw) -> None:
        """Use the mean and covariance that the base has kept of its unlabelled text, else those of these documents."""
        kept = self.model.base.statistics.of(self.name)
        if kept is not None:
            mean, covariance = (each.double().numpy() for each in kept)
        else:
            mean, covariance = shrunk_covariance(raw.matrix.astype(np.float64))
        self._fit(mean, covariance)

    def _fit(self, mean: Floats, covariance: Floats) -> None:
        variances, axes = np.linalg.eigh(covariance)
        deviations = np.sqrt(np.maximum(variances[::-1], 0))
        widest = deviations.max(initial=0.0)
        self.shift, self.components = mean, axes[:, ::-1]
        self.deviations = np.maximum(deviations / max(widest, 1e-300), 1e-3) if widest > 0 else np.ones_like(deviations)

    def rescaling(self, power: float) -> Floats:
        """Give the matrix (W, W) that rotates features onto the principal axes and scales these by deviation^(power−1).

        The higher the power, the more a few labels follow the directions in which unlabelled documents differ most. The
        mean square of the features stays 1.
        """
        scale = self.deviations ** (power - 1)
        # The square of a unit vector is spread over the axes as the variances are.
        mean = float((self.deviations**2 * scale**2).sum() / (self.deviations**2).sum())
        rescaled: Floats = self.components * (scale / mean**0.5)
        return rescaled

    def load_statistics(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the mean document."""
        if self.unit:
            self.shift = tensors["shift"].cpu().numpy()

    def statistics(self) -> dict[str, Floats]:
        """Give the mean document."""
        return {"shift": self.shift} if self.unit else {}

    def transform(self, raw: Raw) -> Any:  # noqa: ANN401
        """Give the direction of each document, or its vector as it is (`unit=False`); pieces are averaged."""
        vectors = raw.matrix
        if self.unit:
            given = torch.from_numpy(np.asarray(vectors, self.shift.dtype))
            vectors = unit_vectors(given, torch.from_numpy(self.shift)).numpy()
        if len(vectors) == raw.texts:
            return vectors
        begins, counts = np.unique(raw.document, return_index=True, return_counts=True)[1:]
        return np.add.reduceat(vectors, begins) / counts[:, None].astype(vectors.dtype)

    def _scores(self, weight: NDArray[Any], vectors: torch.Tensor) -> Floats:
        """Score vectors (M, W) as if each were a document: (M, K)."""
        raw = Raw(vectors.numpy(), np.arange(len(vectors)), len(vectors))
        scores: Floats = self.transform(raw).astype(np.float64) @ weight.T.astype(np.float64)
        return scores


class SparseView(View):
    """A view whose features are counts of things in a large vocabulary, weighted by idf, at unit length."""

    sparse = True
    scale: Floats
    "Inverse document frequency of each column: (W,)."

    def load_statistics(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the idf."""
        self.scale = tensors["scale"].cpu().numpy()

    def statistics(self) -> dict[str, Floats]:
        """Give the idf."""
        return {"scale": self.scale}

    def transform(self, raw: Raw) -> Any:  # noqa: ANN401
        """Weight by idf and bring each document to unit length."""
        from scipy import sparse

        matrix = raw.matrix
        weighted = matrix.data * self.scale[matrix.indices]
        lengths = np.sqrt(np.add.reduceat(np.append(weighted**2, 0), np.minimum(matrix.indptr[:-1], len(weighted))))
        per_document = np.diff(matrix.indptr)
        lengths[per_document == 0] = 0
        weighted /= np.maximum(np.repeat(lengths, per_document), 1e-12)
        return sparse.csr_matrix((weighted, matrix.indices, matrix.indptr), shape=matrix.shape)


def shrunk_covariance(vectors: Floats) -> tuple[Floats, Floats]:
    """Estimate mean (W,) and covariance (W, W) of documents (N, W), with more of the identity the fewer there are."""
    mean = vectors.mean(0)
    apart = vectors - mean
    covariance = apart.T @ apart / max(1, len(vectors) - 1)
    share = SHRINKAGE + (1 - SHRINKAGE) * len(mean) / (len(mean) + len(vectors))
    return mean, (1 - share) * covariance + share * np.eye(len(mean)) * np.trace(covariance) / len(mean)


def count_tokens(texts: EncodedTexts) -> int:
    """Count the tokens of one text; where it has no ids, since other tokenizers read it, estimate them."""
    [text], [ids] = texts.texts, texts.ids
    return max(len(ids), len(text) // CHARACTERS_PER_TOKEN)
