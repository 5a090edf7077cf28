"""Latent semantic analysis: documents as vectors in which words and character n-grams of one company lie together.

TF-IDF of words and of character n-grams, side by side, is reduced to its principal directions over all text at hand,
labelled or not, by a truncated singular value decomposition. It takes seconds, and on short texts, where there is
little for an objective to predict, these vectors separate classes better than those that are trained by gradient: with
100 labelled questions 61 % against 51 % (docs/experiments/any-text.md). On long documents it is the other way round.

Shapes: N texts, V n-grams of the vocabulary, R width of the vectors, K classes, G groups of words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rehead.errors import ConfigError
from rehead.model.config import ViewConfig, from_dict
from rehead.model.model import Model
from rehead.views.characters import CharactersView
from rehead.views.encoded import EncodedTexts
from rehead.views.leave_out import Groups
from rehead.views.sparse_matrix import SparseMatrix
from rehead.views.text_view import NoOptions, TextView, weighted_without
from rehead.views.view import DenseView, Raw, View
from rehead.views.vocabulary import damaged_keys, from_floats, to_floats
from rehead.views.words import WordsView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

WIDTH = 256
ENTRIES = 6_000_000  # n-grams of all documents together; of more text, a sample is read
WORDS, CHARACTERS = 30_000, 50_000  # most n-grams of either kind
SAMPLED = 1_000  # documents by which it is estimated how large a sample has to be
FEW = 1_000  # documents, up to which the decomposition is exact, which takes a fifth of the time
ITERATIONS = 3  # of the randomised decomposition
OVERSAMPLING = 10
NEGLIGIBLE = 1e-12  # square of a singular value, relative to the largest


class _Words(WordsView):
    limit = WORDS


class _Characters(CharactersView):
    limit = CHARACTERS


class LsaView(DenseView):
    """Words and character n-grams, reduced to a few hundred directions."""

    name = "lsa"
    about = "its words and character n-grams, by latent semantic analysis"
    Options = NoOptions
    learns = True

    def __init__(self, model: Model, options: Any, *, unit: bool = True, terms: int = 0, columns: int = 0) -> None:  # noqa: ANN401
        super().__init__(model, options, unit=unit)
        self.terms, self._columns = terms, columns
        self.kinds: tuple[TextView, ...] = (_Words(model, NoOptions()), _Characters(model, NoOptions()))

    @classmethod
    def from_config(cls, model: Model, config: ViewConfig) -> LsaView:
        """Make the view that a classifier's config describes; its vocabulary and table are among the statistics."""
        if not config.terms:
            raise ConfigError("view 'lsa' has terms=0: without n-grams there is nothing to read.")
        options = from_dict(cls.Options, dict(config.options))
        return cls(model, options, unit=config.unit, terms=config.terms, columns=config.columns)

    @property
    def columns(self) -> int:
        """Width of the vectors."""
        return self._columns

    def learn(self, texts: EncodedTexts, beside: Sequence[View] = ()) -> None:
        """Learn vocabulary and idf, then the principal directions of the documents.

        With views of words or characters `beside` it, their most common n-grams are taken, and no others.
        """
        given = {view.kind: view for view in beside if isinstance(view, TextView)}
        for kind in self.kinds:
            if kind.kind in given:
                kind.take_common(given[kind.kind])
            elif not given:
                kind.learn(texts)
        self.terms = sum(kind.terms for kind in self.kinds)
        matrix = self._sample(texts)
        self.table = principal_directions(matrix, min(WIDTH, self.terms, matrix.shape[0]))
        self._columns = self.table.shape[1]
        vectors = self._project(matrix).astype(np.float64)
        self.mean, apart = vectors.mean(0), vectors - vectors.mean(0)
        self.covariance = apart.T @ apart / max(1, len(vectors) - 1)

    def _sample(self, texts: EncodedTexts) -> Any:  # noqa: ANN401 (a sparse matrix of scipy's)
        """Read texts, in an order of chance, until there are enough n-grams: (documents, V)."""
        from scipy import sparse

        order = np.random.RandomState(0).permutation(len(texts))
        parts, entries, begin = [], 0, 0
        while begin < len(order) and entries < ENTRIES:
            size = SAMPLED if not begin else max(1, min(len(order), int(begin * (ENTRIES / max(1, entries) - 1)) + 1))
            some = [texts.texts[each] for each in order[begin : begin + size].tolist()]
            parts.append(self._weighted(EncodedTexts(some)))
            entries += parts[-1].nnz
            begin += size
        return sparse.vstack(parts).tocsr() if parts else self._weighted(texts)

    def state(self) -> bytes:
        """What decides the result of `read`: vocabulary, idf and directions."""
        return b"".join(kind.state() + kind.scale.tobytes() for kind in self.kinds) + self.table.tobytes()

    def _weighted(self, texts: EncodedTexts) -> Any:  # noqa: ANN401 (a sparse matrix of scipy's)
        """TF-IDF of either kind, at unit length, side by side: (N, V)."""
        from scipy import sparse

        return sparse.hstack([kind.transform(kind.read(texts)) for kind in self.kinds]).tocsr()

    def _project(self, matrix: Any) -> NDArray[np.float32]:  # noqa: ANN401 (a sparse matrix of scipy's)
        """Sum the rows of the table, weighted: (N, V) → (N, R)."""
        found: NDArray[np.float32] = SparseMatrix(matrix)(torch.from_numpy(self.table)).numpy()
        return found

    def read(self, texts: EncodedTexts) -> Raw:
        """Give the vector of each text."""
        return Raw(self._project(self._weighted(texts)), np.arange(len(texts)), len(texts))

    def fit(self, raw: Raw) -> None:
        """Use mean and covariance of the documents that the directions were learnt from."""
        self._fit(self.mean, self.covariance)

    def load_statistics(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the mean document, the vocabulary, its idf, and the directions."""
        super().load_statistics(tensors)
        scale, keys, kind = tensors["scale"].cpu().numpy(), tensors["keys"], tensors["kind"].cpu().numpy()
        self.table = tensors["table"].cpu().numpy()
        first = int((kind == 0).sum())
        for each, some in zip(self.kinds, (slice(0, first), slice(first, None)), strict=True):
            each.keys, each.scale = from_floats(keys[some].cpu().numpy()), scale[some]
            each.terms = len(each.keys)

    def damaged_statistics(self, tensors: Mapping[str, torch.Tensor]) -> str | None:
        """Find hashes that could not be looked up, or whose kind is not known."""
        kind, keys = tensors["kind"].cpu().numpy(), tensors["keys"].cpu().numpy()
        if not ((kind == 0) | (kind == 1)).all() or (np.diff(kind) < 0).any():
            return "kind is not 0 for words and then 1 for characters"
        for each in (0, 1):
            if wrong := damaged_keys(keys[kind == each]):
                return f"keys {wrong}"
        return None

    def statistics(self) -> dict[str, Floats]:
        """Give the mean document, the vocabulary, its idf, and the directions."""
        words, characters = self.kinds
        return {
            **super().statistics(),
            "keys": np.concatenate([to_floats(kind.keys) for kind in self.kinds]),
            "kind": np.repeat([0.0, 1.0], [words.terms, characters.terms]),
            "scale": np.concatenate([kind.scale for kind in self.kinds]),
            "table": self.table,
        }

    def tokens_without(self, texts: EncodedTexts, groups: Groups) -> int:
        """Count no token: what a group takes away is subtracted."""
        return 0

    def scores_without(
        self, weight: NDArray[Any], texts: EncodedTexts, groups: Groups, progress: Callable[[], None]
    ) -> Floats:
        """Take away the rows of the n-grams that have a character in a group of words: nothing is counted again."""
        words = self.kinds[0].terms
        vectors = sum(
            weighted_without(kind, texts, groups).summed(table)
            for kind, table in zip(self.kinds, (self.table[:words], self.table[words:]), strict=True)
        )
        return self._scores(weight, torch.from_numpy(np.asarray(vectors, np.float32)))


def _orthonormal(matrix: torch.Tensor, precision: torch.dtype = torch.float32) -> torch.Tensor:
    """Make the columns of a tall matrix (M, R) orthonormal, by the Cholesky factor of their inner products.

    Ten times as fast as a QR decomposition. In single precision they are only nearly so, which is enough to go on from:
    the space that they span is the same.
    """
    matrix = matrix.to(precision)
    inner = (matrix.T @ matrix).double()
    small = 1e-12 if precision == torch.float64 else 1e-6  # what rounding may have taken
    inner += small * inner.trace().clamp_min(1e-300) * torch.eye(len(inner), dtype=inner.dtype)
    factor = torch.linalg.cholesky(inner).to(precision)
    solved: torch.Tensor = torch.linalg.solve_triangular(factor, matrix.T, upper=False)
    return solved.T.float().contiguous()


def principal_directions(matrix: Any, width: int) -> NDArray[np.float32]:  # noqa: ANN401 (a sparse matrix of scipy's)
    """Find the right singular vectors of a sparse matrix (N, V), the widest first: (V, R)."""
    if not width:
        return np.zeros((matrix.shape[1], 0), np.float32)
    right = (_exact if matrix.shape[0] <= FEW else _by_iteration)(matrix, width)
    right = right * torch.sign(right.sum(0) + 1e-30)  # signs are free: fix them
    found: NDArray[np.float32] = right.contiguous().numpy()
    return found


def _exact(matrix: Any, width: int) -> torch.Tensor:  # noqa: ANN401 (a sparse matrix of scipy's)
    """Find them by the inner products of few documents."""
    inner = matrix.astype(np.float64)
    squares, left = torch.linalg.eigh(torch.from_numpy((inner @ inner.T).toarray()))
    left = left[:, -width:].flip(1) / _lengths(squares)[-width:].flip(0)
    return SparseMatrix(matrix.T.tocsr())(left.float())


def _by_iteration(matrix: Any, width: int) -> torch.Tensor:  # noqa: ANN401 (a sparse matrix of scipy's)
    """Find them by randomised subspace iteration (Halko, Martinsson and Tropp 2011)."""
    random = np.random.RandomState(0)
    count = min(width + OVERSAMPLING, *matrix.shape)
    rows, columns = SparseMatrix(matrix), SparseMatrix(matrix.T.tocsr())
    basis = torch.from_numpy(random.standard_normal((matrix.shape[1], count)).astype(np.float32))
    for _ in range(ITERATIONS):
        basis = _orthonormal(columns(rows(basis)))
    image = columns(_orthonormal(rows(basis), torch.float64))  # (V, count): its left singular vectors
    squares, turns = torch.linalg.eigh(image.double().T @ image.double())
    right: torch.Tensor = (image.double() @ turns) / _lengths(squares)
    return right.flip(1)[:, :width].float()


def _lengths(squares: torch.Tensor) -> torch.Tensor:
    """Singular values from their squares, the largest last; infinite where there is no direction, only rounding."""
    found: torch.Tensor = torch.where(squares > NEGLIGIBLE * squares[-1], squares, torch.inf).sqrt()
    return found
