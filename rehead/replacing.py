"""Replace a directory whole: the old one stays in its place until the new one is complete.

    RUN                  the old run, which answers until the new one is whole
    .RUN.rehead-new/     the new run while it is made; `.unfinished` in it says that it has not taken its place yet
    .RUN.rehead-old/     the old run between two renames, on file systems that cannot swap two directories in one step

Where there is nothing to replace, the new run is made in RUN itself. What a killed process leaves behind is put in
order by the next one that writes RUN (`writing`) or reads it (`put_back`): a directory beside it without the mark is an
old one that was replaced.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from rehead.disk import OLD, beside, check_overwrite, fsync, swap_directories
from rehead.errors import UserError
from rehead.locks import SUFFIX as LOCK
from rehead.locks import locked, real_path

NEW, MARK = "rehead-new", ".unfinished"


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """Be the one writer of a directory; before that, put in order what a killed one has left beside it."""
    with locked(out):
        try:
            _tidy(out)
        except OSError as error:
            raise UserError(f"{out} cannot be written: {error.strerror or error}.") from error
        yield


def put_back(path: Path) -> None:
    """Restore a directory whose replacement was killed between two renames, before it is read."""
    if beside(path, OLD).exists() and not path.exists():
        with contextlib.suppress(UserError), writing(path):  # a writer that lives is about to do it
            pass


def working_directory(out: Path) -> Path:
    """Give the directory that a run is made in: the one beside `out` if it replaces another, otherwise `out`."""
    new = beside(out, NEW)
    return new if (new / MARK).exists() else out


def begin(out: Path, replace: Collection[str] | None) -> Path:
    """Create the directory to make a new run in; `replace` as in `check_overwrite`. An unfinished one is given up."""
    check_overwrite(out, replace)
    discard(out)
    try:
        if not out.is_dir() or all(each.name == LOCK for each in out.iterdir()):
            out.mkdir(parents=True, exist_ok=True)
            return out
        if out.resolve().is_mount():
            raise UserError(
                f"{out} is a mount point, so what it holds cannot be replaced whole. Give --out a directory in it."
            )
        new = beside(out, NEW)
        new.mkdir()
        (new / MARK).touch()
    except OSError as error:
        raise UserError(f"{out} cannot be replaced: {error.strerror or error} ({error.filename}).") from error
    return new


def begin_steps(out: Path, replace: Collection[str] | None) -> None:
    """Create the directory of several outputs, each written by a command; nothing is left of those that it replaces.

    Else a resumed one would take them for its own. What commands that were killed have left beside their outputs may
    go, too.
    """
    names = "|".join(map(re.escape, replace or ()))
    left = re.compile(rf"\.({names}){re.escape(LOCK)}|\.({names})\.({NEW}|{OLD}|([a-z0-9_]{{8}}\.)?partial)")
    there = [each.name for each in out.iterdir()] if out.is_dir() else []
    check_overwrite(out, None if replace is None else [*replace, *filter(left.fullmatch, there)])
    discard(out)
    real = real_path(out)
    try:
        if any(name != LOCK for name in there):
            try:
                real.rename(beside(out, NEW))  # in one step, so that a kill leaves all or nothing
            except OSError:  # a mount point
                for each in [real / name for name in there if name != LOCK]:
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            discard(out)
        real.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out} cannot be replaced: {error.strerror or error} ({error.filename}).") from error


def publish(out: Path, replace: Collection[str]) -> None:
    """Put the finished directory in the place of the old one, and delete that."""
    new, old = beside(out, NEW), beside(out, OLD)
    if not (new / MARK).exists():  # it was made in `out` itself
        return
    check_overwrite(out, replace)  # again: something may have been put there meanwhile
    real = out.resolve()
    try:
        fsync(new)
        (real / MARK).unlink(missing_ok=True)
        swap_directories(new, real)
        fsync(real.parent)
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        (real / MARK).unlink()
    except OSError as error:
        raise UserError(
            f"{out} cannot be replaced: {error.strerror or error}. The new one is complete: {new}."
        ) from error


def discard(out: Path) -> None:
    """Give up an unfinished directory beside `out`."""
    new = beside(out, NEW)
    (new / MARK).unlink(missing_ok=True)
    shutil.rmtree(new, ignore_errors=True)


def _tidy(out: Path) -> None:
    """Finish what a killed process has begun: restore the old directory, or delete what is no longer needed."""
    real, old = out.resolve(), beside(out, OLD)
    if old.exists() and not real.exists():
        old.rename(real)
    shutil.rmtree(old, ignore_errors=True)
    if working_directory(out) == out:
        discard(out)
        if real.is_dir():
            (real / MARK).unlink(missing_ok=True)
    # The random part is that of `tempfile`: those of RUN.2 do not match RUN.
    partial = re.compile(rf"\.{re.escape(real.name)}\.[a-z0-9_]{{8}}\.partial")
    for left in [each for each in real.parent.iterdir() if partial.fullmatch(each.name)]:
        shutil.rmtree(left, ignore_errors=True)
