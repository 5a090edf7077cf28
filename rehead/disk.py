"""Atomic writes of directories, and validation of files before they are used.

Writing: everything goes into a hidden temporary directory beside the target, is synced to disk, and takes the target's
place in one step (`exchange`). A crash leaves a hidden temporary directory, never a partial target. File systems that
cannot swap two directories need two renames; between them the old one is hidden, but complete (`rehead.replacing`
restores it).

Reading: a file name that comes out of a file is untrusted. It must be a plain name of a regular file that resolves to
a path inside the same directory (no path traversal). JSON is parsed strictly.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

from rehead.errors import DamagedError, UserError, short_repr
from rehead.locks import SUFFIX as LOCK
from rehead.locks import real_path

MAX_JSON_BYTES = 256 * 2**20  # far above any file written here; a larger one is a mistake, or a denial of service
OLD = "rehead-old"  # what is being replaced, where two directories cannot be swapped in one step


@contextlib.contextmanager
def atomic_directory(path: Path, *, replace: Collection[str] | None = None) -> Iterator[Path]:
    """Yield an empty temporary directory; when the block ends without an error, it is renamed to `path`.

    An existing directory is replaced only if `replace` is given, and only if it contains no other names.
    """
    check_overwrite(path, replace)
    target = real_path(path)
    filling: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        filling = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
        yield filling
        # mkdtemp creates with mode 0700 and safetensors with 0600; the user's umask should decide.
        for each in (*filling.rglob("*"), filling):
            each.chmod((0o777 if each.is_dir() else 0o666) & ~_umask())
            fsync(each)
        check_overwrite(path, replace)  # again: another process may have created it meanwhile
        if target.exists():
            swap_directories(filling, target)
        else:
            filling.rename(target)
        fsync(target.parent)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        if filling is not None:  # by now it holds what was replaced, or no longer exists
            shutil.rmtree(filling, ignore_errors=True)
            if target.exists():
                shutil.rmtree(beside(target, OLD), ignore_errors=True)


def check_overwrite(path: Path, replace: Collection[str] | None = None) -> None:
    """Refuse to overwrite: `path` must not exist, or be empty, or contain only names from `replace`."""
    try:
        if path.is_symlink() and not path.exists():
            raise UserError(f"{path} exists already and is a link that leads nowhere. Choose another name.")
        if not path.exists():
            return
        if not path.is_dir():
            raise UserError(f"{path} exists already and is not a directory. Choose another name.")
        there = sorted(each.name for each in path.iterdir() if each.name != LOCK)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error
    if there and replace is None:
        raise UserError(f"{path} exists already. Choose another name, or allow overwriting (--overwrite).")
    if foreign := [name for name in there if name not in (replace or ())]:
        raise UserError(f"{path} contains {foreign[0]!r}, which would be lost. Move it away, or choose another name.")


def beside(path: Path, kind: str) -> Path:
    """Name the hidden directory of some kind beside a directory; a link is followed to what it leads to."""
    real = real_path(path)
    return real.with_name(f".{real.name}.{kind}")


def swap_directories(new: Path, path: Path) -> None:
    """Put `new` in the place of the directory `path`: in one step, and what was there is `new` afterwards.

    Where the file system cannot do that, two renames: what was there is then `beside(path, OLD)`. If the second fails,
    the first is undone.
    """
    if exchange(new, path):
        return
    old = beside(path, OLD)
    shutil.rmtree(old, ignore_errors=True)  # of a process that was killed
    path.rename(old)
    try:
        new.rename(path)
    except BaseException:
        if not path.exists():
            old.rename(path)
        raise


def exchange(one: Path, other: Path) -> bool:
    """Swap two directories in one step (renameat2 of Linux); give False where that does not exist."""
    if sys.platform != "linux":
        return False
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    current_directory, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2 is None:
        return False
    if renameat2(current_directory, os.fsencode(one), current_directory, os.fsencode(other), swap) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(other))


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield the name of a temporary file; when the block ends without an error, it takes the place of `path`."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        fsync(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    fsync(path.absolute().parent)


def fsync(path: Path) -> None:
    """Sync a file, or the entries of a directory, to disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open directories, and need not
        return
    # Windows syncs only files that are open for writing.
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def os_error_in(error: Exception) -> OSError:
    """Recover the OSError from an error of safetensors, which reports it only as `os error N` in the message."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


def write_json(path: Path, value: object) -> None:
    """Write indented JSON; the same value gives the same bytes."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        data = text.encode()
    except UnicodeEncodeError:  # a lone surrogate, as in a file name that is not UTF-8
        data = json.dumps(value, indent=2, allow_nan=False).encode()
    path.write_bytes(data + b"\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 (whatever the file holds)
    """Parse a JSON file strictly: UTF-8, no NaN, no duplicate keys, limited size and nesting."""
    return parse_json(read_whole(path, MAX_JSON_BYTES), path)


def read_whole(path: Path, limit: int) -> bytes:
    """Read a file that is not larger than `limit`."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise DamagedError(f"{path}: larger than {limit:,} bytes, the limit for such a file. Restore it from a copy.")
    return data


def parse_json(data: bytes, name: object) -> Any:  # noqa: ANN401 (whatever the file holds)
    """Parse JSON strictly, as `read_json` does; `name` is that of the file, for messages."""
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_no_duplicate_keys,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{name}: not valid JSON ({error}). Restore the file from a copy.") from None


def write_checksummed_json(path: Path, fields: dict[str, Any]) -> None:
    """Write an object as JSON, with the SHA-256 of its fields as one more field."""
    write_json(path, {**fields, "sha256": _digest(fields)})


def read_checksummed_json(path: Path) -> dict[str, Any]:
    """Read an object written by `write_checksummed_json`; refuse it if the SHA-256 does not match."""
    return parse_checksummed_json(read_whole(path, MAX_JSON_BYTES), path)


def parse_checksummed_json(data: bytes, path: Path) -> dict[str, Any]:
    """Parse an object written by `write_checksummed_json`; `path` is for messages."""
    fields = parse_json(data, path)
    if not isinstance(fields, dict) or "sha256" not in fields:
        raise DamagedError(f"{path}: expected a JSON object with a SHA-256. Restore the file from a copy.")
    digest = fields.pop("sha256")
    if digest != _digest(fields):
        raise DamagedError(f"{path}: its SHA-256 does not match its contents. Restore the file from a copy.")
    return fields


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def file_inside(root: Path, name: object) -> Path:
    """Resolve `name` in `root`; refuse paths, symbolic links that lead outside, and anything but regular files."""
    plain = isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\:\0")
    if not plain:
        raise DamagedError(f"{root}: {short_repr(name)} is not a plain file name. Paths are not allowed here.")
    path = root / str(name)
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError, ValueError):  # RuntimeError: a loop of links; ValueError: a name no disk can store
        raise DamagedError(f"{path}: the file is missing or cannot be opened. Restore it from a copy.") from None
    if not real.is_relative_to(root.resolve()):
        raise DamagedError(f"{path}: the link leads outside its directory. Put a copy there instead.")
    if not stat.S_ISREG(mode):
        raise DamagedError(f"{path}: not a regular file. Restore it from a copy.")
    return path


def machine_memory() -> int | None:
    """Give the bytes of memory that this machine has; None where that cannot be told."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def sha256(path: Path) -> str:
    """SHA-256 of a file's contents, as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _no_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"duplicate key {name[:60]!r}")
        fields[name] = value
    return fields


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number[:60]} is too large a number")
    return value
