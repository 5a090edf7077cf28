"""Directories that appear whole or not at all, and files that are looked at before they are believed.

Writing: everything goes into a hidden directory beside the target, is flushed to the disk, and is renamed into place.
A crash leaves a hidden left-over, never half a directory; only while an old directory is being replaced is there a
moment, between two renames, in which the old one stands beside, hidden and whole.

Reading: a name out of a file is never a path. It has to be a plain name, of a regular file, whose real place is
inside the directory it was named in; JSON has to be the JSON that the standard describes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

from rehead.errors import DamagedError, UserError, shown

JSON_BYTES = 256 * 2**20  # no file of ours comes near; a larger one is a mistake, or an attack on the memory


@contextlib.contextmanager
def whole_directory(path: Path, *, replace: Collection[str] | None = None) -> Iterator[Path]:
    """Yield an empty directory to fill; when the block ends without an error it becomes `path`.

    An existing directory is replaced only if `replace` is given, and only if it holds nothing but these names.
    """
    check_free(path, replace)
    target = path.absolute()
    filling: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        filling = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
        yield filling
        # mkdtemp's 0700, and safetensors' 0600, would lock out everybody whom the user lets in.
        for each in (*filling.rglob("*"), filling):
            each.chmod((0o777 if each.is_dir() else 0o666) & ~_umask())
            flush(each)
        check_free(path, replace)  # somebody may have been faster
        _swap(filling, target)
        flush(target.parent)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        if filling is not None:  # gone, if all went well
            shutil.rmtree(filling, ignore_errors=True)


def check_free(path: Path, replace: Collection[str] | None = None) -> None:
    """Stop before anything is lost: `path` must not exist, or be empty, or hold what may be replaced and no more."""
    try:
        if not path.is_symlink() and not path.exists():
            return
        if path.is_symlink() or not path.is_dir():
            raise UserError(f"{path} exists already and is not a directory. Choose another name.")
        there = sorted(each.name for each in path.iterdir())
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error
    if there and replace is None:
        raise UserError(f"{path} exists already. Choose another name, or allow overwriting (--overwrite).")
    if strangers := [name for name in there if name not in (replace or ())]:
        raise UserError(f"{path} holds {strangers[0]!r}, which would be lost. Move it away, or choose another name.")


def flush(path: Path) -> None:
    """Have the operating system put a file's bytes, or a directory's list of names, on the disk now."""
    if os.name == "nt" and path.is_dir():  # where a directory cannot be opened, and need not be
        return
    # Windows flushes only what is open for writing.
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def refused(error: Exception) -> OSError:
    """Find what the operating system refused in an error of safetensors, which has no kind of its own for that."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


def write_json(path: Path, value: object) -> None:
    """Write JSON that people can read and that a second writing repeats to the byte."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        data = text.encode()
    except UnicodeEncodeError:  # half a character, as out of a file name that is not UTF-8
        data = json.dumps(value, indent=2, allow_nan=False).encode()
    path.write_bytes(data + b"\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 (whatever the file holds)
    """Read JSON, strictly: UTF-8, no NaN, no name twice, no bottomless nesting."""
    if path.stat().st_size > JSON_BYTES:
        raise DamagedError(f"{path}: {path.stat().st_size:,} bytes are too many for a JSON file of ours.")
    try:
        text = path.read_bytes().decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: not valid JSON ({error}). Restore the file from a copy.") from None


def write_signed(path: Path, fields: dict[str, Any]) -> None:
    """Write an object together with its own digest."""
    write_json(path, {**fields, "sha256": _digest(fields)})


def read_signed(path: Path) -> dict[str, Any]:
    """Read an object that was written with its digest; one changed value, and it is refused."""
    fields = read_json(path)
    if not isinstance(fields, dict) or "sha256" not in fields:
        raise DamagedError(f"{path}: not what was saved: an object with a SHA-256 is expected. Restore it from a copy.")
    digest = fields.pop("sha256")
    if digest != _digest(fields):
        raise DamagedError(f"{path}: not what was saved (its SHA-256 differs). Restore it from a copy.")
    return fields


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def file_inside(root: Path, name: object) -> Path:
    """Find the file that `name` means in `root`; refuse paths, links out, and what is not a regular file."""
    plain = isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\:\0")
    if not plain:
        raise DamagedError(f"{root}: the file name {shown(name)} is not a plain name. It may not lead elsewhere.")
    path = root / str(name)
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError, ValueError):  # RuntimeError: links in a circle; ValueError: names no disk can hold
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
    """Put `new` where `path` is. Whatever stops it between the two renames, the old one is put back or left beside."""
    if not path.exists():
        new.rename(path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
    try:
        path.rename(old / path.name)
        new.rename(path)
    except BaseException:
        if not path.exists() and (old / path.name).exists():
            (old / path.name).rename(path)
        with contextlib.suppress(OSError):
            old.rmdir()  # only if it is empty
        raise
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the name {name[:60]!r} stands twice in one object")
        fields[name] = value
    return fields


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
