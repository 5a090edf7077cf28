"""`Brought`: a base that others pretrained, as files with their digests; and the engine that reads texts by it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rehead.disk import sha256
from rehead.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rehead.bases.pieces import Cutting


class Engine(Protocol):
    """What turns texts into vectors. Loading one checks all that it reads."""

    width: int
    "Number of values of a vector."
    parameters: int
    "Number of all parameters."
    work: int
    "Multiply-adds per token, about; 0 where it is next to nothing."
    max_length: int | None
    "Tokens of a text that are read; None: all."
    precision: str
    "Number format that it computes in: float32, unless the user asks for another."

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts, cut to `max_length`; special tokens are included."""

    def encode(self, texts: Sequence[str], how: Cutting = ...) -> NDArray[np.float32]:
        """Encode texts: (N, W). Of a text that is too long, what `how` says is read: its beginning, by default."""


@dataclass
class Brought:
    """A base that others pretrained, on disk."""

    name: str
    "The view that reads it: encoder:NAME or static:NAME."
    root: Path
    "The directory of its files."
    files: Mapping[str, str]
    "Path inside the directory → SHA-256."
    source: str
    "Where it came from, as the user said it."
    license: str | None = None
    "What its own README states, or the package that carries it."
    linked: bool = False
    "Whether a run refers to these files where they are, instead of carrying them."
    holder: object = None
    "Keeps a temporary directory alive, for tables that were converted."
    _engine: Engine | None = field(default=None, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """The view: encoder or static."""
        return self.name.partition(":")[0]

    @property
    def digest(self) -> str:
        """SHA-256 of the names and contents of all files."""
        return hashlib.sha256(json.dumps(dict(self.files), sort_keys=True).encode()).hexdigest()

    @property
    def engine(self) -> Engine:
        """What encodes texts, loaded into memory when it is first needed."""
        if self._engine is None:
            engine = _open(self.kind, self.root)
            self._check_unchanged()
            self._engine = engine
        return self._engine

    def _check_unchanged(self) -> None:
        """Require that the files are still those whose digests were taken, once they are in memory."""
        for name, digest in self.files.items():
            if sha256(self.root / name) != digest:
                raise UserError(f"{self.root / name} has changed since it was checked. Load it again.")

    def __getstate__(self) -> dict[str, Any]:
        """A pickle refers to the files where they are, and holds those of a temporary directory.

        The engine is loaded again.
        """
        kept = None if self.holder is None else {name: (self.root / name).read_bytes() for name in self.files}
        return {**self.__dict__, "_engine": None, "holder": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Write what a temporary directory held into another one."""
        self.__dict__.update(state)
        if isinstance(kept := self.holder, dict):
            self.holder = made = tempfile.TemporaryDirectory(prefix="rehead-")
            self.root = Path(made.name)
            for name, data in kept.items():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                (self.root / name).write_bytes(data)

    def __deepcopy__(self, memo: object) -> Brought:
        return self  # nothing here changes

    def describe(self) -> dict[str, Any]:
        """Describe it for the details of a run."""
        facts = {"view": self.name, "source": self.source, "digest": self.digest, "license": self.license}
        return facts | {"parameters": self.engine.parameters, "max_length": self.engine.max_length}


def _open(kind: str, root: Path) -> Engine:
    if kind == "encoder":
        return open_encoder(root)
    from rehead.bases.static import StaticTable

    return StaticTable(root)


def open_encoder(root: Path) -> Engine:
    """Load an encoder: the BERT family by our own forward pass, all others by transformers."""
    from rehead.bases.packed import PackedEncoder, packed_shape

    if (shape := packed_shape(root)) is not None:
        return PackedEncoder(root, shape)
    from rehead.bases.encoder import Encoder

    return Encoder(root)
