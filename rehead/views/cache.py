"""A view's features of a set of texts, kept on disk by content: refitting with other labels reads nothing twice.

An entry is named by the SHA-256 of what decides it: the run's digest, the view with its options, and every text. It is
a directory of .npy files, which are read memory-mapped. Entries appear whole (written beside, then renamed) or not at
all; one that is damaged is read anew. The cache may be deleted at any time, while in use too.

Of a view that takes long (`View.by_text`) the vector of each text is kept, whatever set the text is in: an entry has
the vectors of some texts and the SHA-256 of each, and its name begins with the digest of what decides them all.

Where: `$REHEAD_CACHE`, else `rehead/features` in `$XDG_CACHE_HOME` or `~/.cache`; `REHEAD_CACHE=off` keeps nothing. It
holds what was read of the texts, so only its owner may look into it. Beyond `$REHEAD_CACHE_MB` (2,048) the entries that
have not been used for longest go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rehead.errors import UserError
from rehead.progress import progress
from rehead.views.encoded import EncodedTexts
from rehead.views.view import Raw, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEGABYTES = 2048
VERSION = 2  # of the layout below, and of what views count
ENTRY = re.compile(r"[0-9a-f]{64}|\.writing-\w+")  # names of directories that are ours
USED = "used"  # an empty file, whose time says when the entry was last read


BLOCK = 1_024  # texts whose vectors are kept at once: what is lost if the process ends
KEY = 16  # bytes of a text's SHA-256


def read_cached(view: View, texts: EncodedTexts, digest: str | None, *, quiet: bool = True) -> Raw:
    """Read texts through a view, or take what an earlier call kept. A run without a digest is not kept.

    Where that takes long, there is a progress bar, unless `quiet`.
    """
    root = cache_directory()
    if view.by_text:
        return Raw(_read_by_text(view, texts.texts, root, quiet=quiet), np.arange(len(texts)), len(texts))
    if digest is None or root is None or not len(texts):
        return view.read(texts)
    entry = root / _key(view, texts.texts, digest)
    if (found := _load(entry, len(texts), view.columns)) is not None:
        return found
    limit, raw = cache_bytes(), view.read(texts)
    with contextlib.suppress(OSError):  # a full or read-only disk costs time, not the result
        _store(entry, raw)
        _trim(root, limit, keep=entry)
    return raw


def _read_by_text(view: View, texts: Sequence[str], root: Path | None, *, quiet: bool) -> NDArray[np.float32]:
    """Give the vector of each text (N, W): kept by an earlier call, or read now, a block at a time."""
    stated = json.dumps([VERSION, view.columns, hashlib.sha256(view.state()).hexdigest()])
    prefix = hashlib.sha256(stated.encode()).hexdigest()[:32]
    keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:KEY] for text in texts]
    found: dict[bytes, Any] = {} if root is None else _kept_vectors(root, prefix, set(keys), view.columns)
    new = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
    # About as long texts together: hardly anything is padding, and time passes evenly.
    missing = sorted(new, key=lambda key: -len(new[key]))
    with progress(f"reading texts by {view.name}", len(missing), unit="texts", quiet=quiet or not missing) as bar:
        for begin in range(0, len(missing), BLOCK):
            block = missing[begin : begin + BLOCK]
            vectors = view.read(EncodedTexts([new[key] for key in block])).matrix
            found |= dict(zip(block, vectors, strict=True))
            if root is not None:
                with contextlib.suppress(OSError):
                    limit, rows = cache_bytes(), np.frombuffer(b"".join(block), np.uint8).reshape(-1, KEY)
                    entry = root / (prefix + hashlib.sha256(rows.tobytes()).hexdigest()[:32])
                    _store(entry, Raw(vectors, np.arange(len(block)), len(block)), keys=rows)
                    _trim(root, limit, keep=entry)
            bar.advance(len(block))
    return np.stack([found[key] for key in keys]) if keys else np.zeros((0, view.columns), np.float32)


def _kept_vectors(root: Path, prefix: str, wanted: set[bytes], columns: int) -> dict[bytes, Any]:
    """Find the vectors of texts, by their keys, in all entries of a view."""
    found: dict[bytes, Any] = {}
    for entry in sorted(root.glob(f"{prefix}*")):
        try:
            keys = np.load(entry / "keys.npy", allow_pickle=False)
            good = keys.dtype == np.uint8 and keys.ndim == 2 and keys.shape[1] == KEY
        except (OSError, ValueError, EOFError):
            continue
        kept = _load(entry, len(keys), columns) if good else None
        if kept is not None and len(kept.matrix) == len(keys):
            found |= {
                key: row for each, row in zip(keys, kept.matrix, strict=True) if (key := each.tobytes()) in wanted
            }
    return found


def cache_directory() -> Path | None:
    """Where features are kept; None if they are not."""
    given = os.environ.get("REHEAD_CACHE")
    if given is not None:
        return None if given.lower() in ("", "off", "0", "none") else Path(given)
    with contextlib.suppress(RuntimeError):  # nobody's home
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "rehead" / "features"
    return None


def cache_bytes() -> float:
    """How much is kept at most."""
    given = os.environ.get("REHEAD_CACHE_MB") or MEGABYTES
    try:
        return float(given) * 2**20
    except ValueError:
        raise UserError(f"REHEAD_CACHE_MB={given}: not a number of megabytes.") from None


def _key(view: View, texts: Iterable[str], digest: str) -> str:
    options = dataclasses.asdict(view.options)
    stated = json.dumps([VERSION, digest, view.name, view.unit, options], sort_keys=True)
    sha = hashlib.sha256(stated.encode())
    sha.update(hashlib.sha256(view.state()).digest())
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.hexdigest()


def _load(entry: Path, texts: int, columns: int) -> Raw | None:
    """Map an entry; None where there is none, or it is not what it should be."""
    from scipy import sparse

    try:
        arrays = {file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in entry.glob("*.npy")}
        document = arrays.pop("document")
        if "matrix" in arrays:
            matrix: Any = arrays["matrix"]
            good = matrix.shape == (len(document), columns) and matrix.dtype == np.float32
        else:
            indices, ends = arrays["indices"], arrays["indptr"]
            good = len(ends) == len(document) + 1 and int(ends[-1]) == len(indices)
            data = arrays.get("data", np.ones(len(indices), np.float32))
            matrix = sparse.csr_matrix((data, indices, ends), shape=(len(ends) - 1, columns), copy=False)
        good = good and document.dtype == np.int64 and len(document) >= texts
        with contextlib.suppress(OSError):
            os.utime(entry / USED)
    except (OSError, ValueError, KeyError, IndexError, EOFError):
        return None
    return Raw(matrix, document, texts) if good else None


def _store(entry: Path, raw: Raw, **more: NDArray[np.uint8]) -> None:
    """Write an entry; of two processes that write the same, one wins, and both are right."""
    entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = Path(tempfile.mkdtemp(prefix=".writing-", dir=entry.parent))
    try:
        np.save(beside / "document.npy", raw.document)
        for name, array in more.items():
            np.save(beside / f"{name}.npy", array)
        if isinstance(raw.matrix, np.ndarray):
            np.save(beside / "matrix.npy", raw.matrix)
        else:
            np.save(beside / "indices.npy", raw.matrix.indices)
            np.save(beside / "indptr.npy", raw.matrix.indptr)
            if (raw.matrix.data != 1).any():  # most often ones, wherever there is something
                np.save(beside / "data.npy", raw.matrix.data)
        (beside / USED).touch()
        if entry.exists():  # damaged, or another process was faster
            shutil.rmtree(entry, ignore_errors=True)
        with contextlib.suppress(FileExistsError):
            beside.rename(entry)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _trim(root: Path, limit: float, keep: Path) -> None:
    """Remove the entries that have not been used for longest, until the rest fits. Other directories stay."""
    entries = []
    for entry in root.iterdir():
        if not ENTRY.fullmatch(entry.name):
            continue
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_size for file in entry.iterdir())
            used = (entry / USED).stat().st_mtime if (entry / USED).exists() else entry.stat().st_mtime
            entries.append((entry != keep, -used, entry, size))
    total = 0
    for _, _, entry, size in sorted(entries, key=lambda each: each[:2]):
        total += size
        if total > limit:
            shutil.rmtree(entry, ignore_errors=True)
