"""Directories that appear whole or not at all, and files that are looked at before they are believed.

Writing: everything goes into a hidden directory beside the target, is flushed to the disk, and is renamed into place;
a crash leaves the old state and a hidden left-over, never half a directory.

Reading: a name out of a file is never a path. It has to be a plain name, of a regular file, whose real place is
inside the directory it was named in; JSON has to be the JSON that the standard describes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from rehead.errors import DamagedError, UserError

JSON_BYTES = 256 * 2**20  # no file of ours comes near; a larger one is a mistake, or an attack on the memory


@contextlib.contextmanager
def whole_directory(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield an empty directory to fill; when the block ends without an error it becomes `path`, in one step."""
    if not overwrite:
        refuse_existing(path)
    parent = path.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    filling = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=parent))
    try:
        yield filling
        filling.chmod(0o777 & ~_umask())  # mkdtemp's 0700 would lock out everybody whom the user lets in
        for each in (*filling.rglob("*"), filling):
            flush(each)
        _swap(filling, path)
        flush(parent)
    except BaseException:
        shutil.rmtree(filling, ignore_errors=True)
        raise


def refuse_existing(path: Path) -> None:
    """Stop before work is lost: `path` must not exist, or be an empty directory."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        raise UserError(f"{path} exists already. Choose another name, or allow overwriting (--overwrite).")


def flush(path: Path) -> None:
    """Have the operating system put a file's bytes, or a directory's list of names, on the disk now."""
    if os.name == "nt" and path.is_dir():  # where a directory cannot be opened, and need not be
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: object) -> None:
    """Write JSON that people can read and that a second writing repeats to the byte."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 (whatever the file holds)
    """Read JSON, strictly: UTF-8, no NaN, no name twice, no bottomless nesting."""
    if path.stat().st_size > JSON_BYTES:
        raise DamagedError(f"{path}: {path.stat().st_size:,} bytes are too many for a JSON file of ours.")
    try:
        text = path.read_bytes().decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: not valid JSON ({error}). Restore the file from a copy.") from None


def file_inside(root: Path, name: object) -> Path:
    """Find the file that `name` means in `root`; refuse paths, links out, and what is not a regular file."""
    plain = isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\:\0")
    if not plain:
        shown = repr(name)[:80]
        raise DamagedError(f"{root}: the file name {shown} is not a plain name. A run may only name its own files.")
    path = root / str(name)
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError):  # RuntimeError: links that go round in a circle, before Python 3.13
        raise DamagedError(f"{path}: the file is missing or cannot be opened. Restore it from a copy.") from None
    if not real.is_relative_to(root.resolve()):
        raise DamagedError(f"{path}: the file is a link that leads out of its directory. Put a copy there instead.")
    if not stat.S_ISREG(mode):
        raise DamagedError(f"{path}: not a regular file. Restore it from a copy.")
    return path


def sha256(path: Path) -> str:
    """Digest of a file's bytes, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _swap(new: Path, path: Path) -> None:
    """Put `new` where `path` is. Should the process die between the two renames, the old one is beside, hidden."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise UserError(f"{path} is not a directory. Choose another name.")
    if not path.exists():
        new.rename(path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.absolute().parent))
    path.rename(old / path.name)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:60]!r} stands twice in one object")
    return dict(pairs)


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
