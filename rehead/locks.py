"""One writer per directory or file: a lock that names its owner and ends with its process.

The lock is a file beside what it protects, `.NAME.rehead-lock` (inside a directory that is a mount point, or whose
parent cannot be written). It is locked with flock, and holds host, process, command and time for the message that a
second writer gets. The system releases it when the process ends, however it ends; NFS passes it on to other hosts. If
a file system has no locks at all, the file itself is the lock: that of a process that has died is taken over on its own
host; on another host somebody has to delete it, and the message says so. Windows has no lock.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rehead.errors import UserError

SUFFIX = ".rehead-lock"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
SHOWN = 200  # characters of the owner's command in a message


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, which need not exist; raise an error that names its owner if another process has it."""
    try:
        import fcntl  # noqa: F401
    except ImportError:  # Windows
        yield
        return
    try:
        file = _place(path)
        handle = _acquire(file, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error
    try:
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(_owner()).encode(), 0)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error
        yield
    finally:
        with contextlib.suppress(OSError):  # the next one would take it over
            file.unlink()
        os.close(handle)


def real_path(path: Path) -> Path:
    """Follow links; refuse those that lead in a circle."""
    try:
        return path.resolve()
    except RuntimeError:  # of Python up to 3.12
        raise UserError(f"{path}: a link that leads back to itself. Choose another name.") from None


def _place(path: Path) -> Path:
    """Name the lock file; create the directory that it is in."""
    real = real_path(path)
    if real.is_dir() and (real.is_mount() or not os.access(real.parent, os.W_OK)):
        return real / SUFFIX
    real.parent.mkdir(parents=True, exist_ok=True)
    return real.with_name(f".{real.name}{SUFFIX}")


def _acquire(file: Path, path: Path) -> int:
    """Open and lock the file; a file that its owner has deleted meanwhile is no lock, so open it again."""
    import fcntl

    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(_refusal(path, _read_owner(handle))) from None
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                _check_owner(file, path, handle)
            if _is_open(file, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_open(file: Path, handle: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _check_owner(file: Path, path: Path, handle: int) -> None:
    """Go by what the file says where there are no locks: refuse, unless its owner is known to have died."""
    owner = _read_owner(handle)
    if not owner or (owner.get("host") == socket.gethostname() and not _alive(owner.get("pid"))):
        return
    raise UserError(f"{_refusal(path, owner)} This file system has no locks: if that process has ended, delete {file}.")


def _alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        pass
    return True


def _owner() -> dict[str, object]:
    program = Path(sys.argv[0])
    command = [program.parent.name if program.name == "__main__.py" else program.name, *sys.argv[1:]]
    since = time.strftime("%Y-%m-%d %H:%M")
    return {"host": socket.gethostname(), "pid": os.getpid(), "command": shlex.join(command), "since": since}


def _read_owner(handle: int) -> dict[str, object]:
    try:
        owner = json.loads(os.pread(handle, 1 << 16, 0))
    except (OSError, ValueError):  # it has only just been created
        return {}
    return owner if isinstance(owner, dict) else {}


def _refusal(path: Path, owner: dict[str, object]) -> str:
    who = "another process"
    if owner:
        command = str(owner.get("command"))[:SHOWN]
        who = f"process {owner.get('pid')} on {owner.get('host')} since {owner.get('since')} ({command})"
    return f"{path} is being written by {who}. Wait for it or stop it, or choose another --out."
