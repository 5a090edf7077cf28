"""A tokenized corpus on disk: encoded once, then memory-mapped.

    STORE/
      ids.bin        ids of all documents, an end-of-text token after each: uint16, or uint32 for a large vocabulary
      offsets.bin    int64; document i is ids[offsets[i] : offsets[i + 1]], including the end-of-text token
      store.json     format version, fingerprint of source and tokenizer, counts, sizes and sha256 of the files

A store is written atomically. It is reused if its fingerprint matches and the SHA-256 of its files is right (checking
takes a second per gigabyte); otherwise it is rebuilt. If several processes need the same store, one builds it while the
others wait for a lock.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rehead.disk import atomic_directory, read_checksummed_json, sha256, write_checksummed_json
from rehead.errors import DamagedError, UserError
from rehead.progress import progress
from rehead.text.documents import describe_skipped
from rehead.text.encoding import encode_stream
from rehead.text.readers import Texts
from rehead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.uint16] | NDArray[np.uint32]

FORMAT = 1
IDS, OFFSETS, DESCRIPTION = "ids.bin", "offsets.bin", "store.json"


class TokenStore:
    """A tokenized corpus: `store[i]` are the ids of a document, `store.ids` those of all documents, concatenated."""

    def __init__(self, directory: Path, description: dict[str, Any]) -> None:
        """Memory-map the files; use `TokenStore.open` instead."""
        import numpy as np

        self.directory = directory
        self.description = description
        self.fingerprint: str = description["fingerprint"]
        self.vocab_size: int = description["vocab_size"]
        self.eos: int = description["end_mark"]
        self.ids: Ids = np.memmap(directory / IDS, dtype=description["dtype"], mode="r")
        "The ids of all documents, each followed by the end-of-text token. (tokens,)"
        self.offsets: NDArray[np.int64] = np.memmap(directory / OFFSETS, dtype=np.int64, mode="r")
        "Start of document i in `ids`. (documents + 1,)"

    @classmethod
    def open(cls, directory: str | Path, *, check: bool = False) -> TokenStore:
        """Open a store; refuse a truncated one. With `check`, verify the SHA-256 of its files."""
        directory = Path(directory)
        description = _read_description(directory)
        for name, file in description["files"].items():
            path = directory / name
            size = path.stat().st_size if path.is_file() else None
            if size != file["bytes"]:
                found = "is missing" if size is None else f"has {size:,} bytes instead of {file['bytes']:,}"
                raise DamagedError(f"{path} {found}. Delete {directory} and encode the text again.")
            if check and sha256(path) != file["sha256"]:
                raise DamagedError(f"{path} has changed since it was written. Delete {directory} and encode again.")
        return cls(directory, description)

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.offsets) - 1

    def __getitem__(self, document: int) -> Ids:
        """Ids of a document, without the end-of-text token."""
        if not 0 <= document < len(self):
            raise IndexError(f"document {document} of {len(self)}")
        return self.ids[self.offsets[document] : self.offsets[document + 1] - 1]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of ids of each document, without the end-of-text token: (documents,)."""
        import numpy as np

        return np.diff(self.offsets) - 1

    def at(self, positions: NDArray[np.int64], documents: NDArray[np.int64]) -> Ids:
        """Ids at some positions of the concatenated corpus; `documents` gives the document of each position."""
        return self.ids[positions]


def build_store(texts: Texts, tokenizer: Tokenizer, directory: str | Path, *, quiet: bool = False) -> TokenStore:
    """Open the store of these texts in `directory`; build it if it is missing, stale or damaged."""
    directory = Path(directory)
    wanted = _fingerprint(texts, tokenizer)
    found, stale = _usable(directory, wanted)
    if found is not None:
        return found
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _build_lock(directory) as locked:
            found, _ = _usable(directory, wanted)  # another process may have built it meanwhile
            if found is not None:
                return found
            if stale and not quiet:
                print(f"encoding again: {stale}", file=sys.stderr)
            if locked:
                for left_over in directory.parent.glob(f".{directory.name}.*.partial"):  # of a process that was killed
                    shutil.rmtree(left_over, ignore_errors=True)
            with atomic_directory(directory, replace=(IDS, OFFSETS, DESCRIPTION)) as made:
                _write(texts, tokenizer, made, wanted, quiet=quiet)
            if texts.skipped and not quiet:
                print(f"skipped: {describe_skipped(texts.skipped)}", file=sys.stderr)
            return TokenStore.open(directory)
    except OSError as error:
        raise UserError(f"{directory} cannot be written: {error.strerror or error}.") from error


def _fingerprint(texts: Texts, tokenizer: Tokenizer) -> str:
    parts = (FORMAT, texts.fingerprint(), tokenizer.fingerprint(), tokenizer.eos)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _usable(directory: Path, wanted: str) -> tuple[TokenStore | None, str]:
    """Open the store if it exists and is current; otherwise return the reason why not ("" if it does not exist)."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return None, ""
    if not (directory / DESCRIPTION).is_file():
        raise DamagedError(f"{directory} exists and is not a token store. Choose another directory, or remove it.")
    try:
        found = TokenStore.open(directory, check=True)
    except DamagedError as error:
        return None, str(error)
    if found.fingerprint != wanted:
        return None, f"{directory} was made from other text or with another tokenizer"
    return found, ""


def _read_description(directory: Path) -> dict[str, Any]:
    path = directory / DESCRIPTION
    if not path.is_file():
        raise DamagedError(f"{directory} is not a token store: it has no {DESCRIPTION}.")
    try:
        description = read_checksummed_json(path)
    except DamagedError:
        raise DamagedError(f"{path} is damaged. Delete {directory} and encode the text again.") from None
    if description.get("format") != FORMAT:
        found = description.get("format")
        raise DamagedError(f"{path} has format {found}; this version reads {FORMAT}. Encode again.")
    return description


def _write(texts: Texts, tokenizer: Tokenizer, directory: Path, fingerprint: str, *, quiet: bool) -> None:
    import numpy as np

    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    tokens = documents = 0
    with (
        _HashedFile(directory / IDS) as ids_file,
        _HashedFile(directory / OFFSETS) as offsets_file,
        progress("encoding", texts.total_bytes, unit="B", quiet=quiet) as bar,
    ):
        offsets_file.write(np.zeros(1, np.int64))
        for ids, ends, bytes_read in encode_stream(texts, tokenizer, dtype):
            ids_file.write(ids)
            offsets_file.write(tokens + ends)
            tokens, documents = tokens + len(ids), documents + len(ends)
            bar.update(bytes_read)
    if not documents:
        raise UserError("There are no documents to encode.")
    description = {
        "format": FORMAT,
        "fingerprint": fingerprint,
        "documents": documents,
        "tokens": tokens,
        "vocab_size": tokenizer.vocab_size,
        "end_mark": tokenizer.eos,
        "dtype": np.dtype(dtype).name,
        "files": {IDS: ids_file.description(), OFFSETS: offsets_file.description()},
    }
    write_checksummed_json(directory / DESCRIPTION, description)


class _HashedFile:
    """A file whose SHA-256 is computed while it is written."""

    def __init__(self, path: Path) -> None:
        self.file: BinaryIO = path.open("wb")
        self.digest = hashlib.sha256()
        self.bytes = 0

    def __enter__(self) -> _HashedFile:
        return self

    def write(self, array: NDArray[Any]) -> None:
        data = array.data.cast("B")
        self.file.write(data)
        self.digest.update(data)
        self.bytes += len(data)

    def __exit__(self, *failed: object) -> None:
        self.file.close()

    def description(self) -> dict[str, int | str]:
        return {"bytes": self.bytes, "sha256": self.digest.hexdigest()}


@contextmanager
def _build_lock(directory: Path) -> Iterator[bool]:
    """Hold an exclusive file lock, which the system releases when the process ends; yield whether locks exist."""
    try:
        import fcntl
    except ImportError:  # Windows: every process builds its own, and the last to finish wins
        yield False
        return
    with directory.with_name(f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield True
