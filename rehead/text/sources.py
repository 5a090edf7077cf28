"""What the user named (files, folders, globs, `-`) → the files to read, in a stable order.

    a folder     every file in it, at any depth, sorted by name
    a glob       what it matches, sorted; `**` goes down into folders
    -            standard input, copied to a temporary file first, since every corpus is read more than once
    a named pipe likewise

Nothing is left out silently: hidden files, files whose extension says nothing and files named twice are counted.
A file without an extension is taken for plain text, as old corpora often have it.
"""

from __future__ import annotations

import difflib
import glob
import os
import shutil
import stat
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rehead.errors import UserError
from rehead.text.documents import TABLES, ReadOptions, describe_value, format_of

KNOWN = ".txt .csv .tsv .jsonl .parquet .spm, each also .gz or .zst"


@dataclass(frozen=True)
class Source:
    """One file to read."""

    name: str
    "As the user would name it, for messages."
    path: Path
    "Where it really is: a temporary copy, for standard input."
    format: str
    size: int
    "Bytes on disk."

    def is_new(self, seen: set[Path], skipped: Counter[str]) -> bool:
        """Tell whether the file is not among those seen, whatever name it goes by; count it if it is."""
        real = self.path.resolve()
        if real in seen:
            skipped["file named twice"] += 1
            return False
        seen.add(real)
        return True


# What may be given to be read: a name, or a file that was found before.
InputPath = str | Path | Source


def find_sources(paths: Iterable[InputPath] | InputPath, options: ReadOptions, skipped: Counter[str]) -> list[Source]:
    """Expand folders and globs; count in `skipped` what is left out; complain of what is not there."""
    found: list[Source] = []
    for given in list_inputs(paths):
        found += _expand(given, options, skipped)
    seen: set[Path] = set()
    return [source for source in found if source.is_new(seen, skipped)]


def list_inputs(paths: Iterable[InputPath] | InputPath) -> list[str | Source]:
    """List what the user named, which must be something."""
    several: object = [paths] if isinstance(paths, str | Path | Source) else paths
    if isinstance(several, bytes) or not isinstance(several, Iterable):
        raise _no_name(several)
    names: list[str | Source] = []
    for each in several:
        if not isinstance(each, str | Path | Source):
            raise _no_name(each)
        if not str(each):
            raise UserError("an empty file name: name a file, or a folder, or - for standard input.")
        names.append(str(each) if isinstance(each, Path) else each)
    if not names:
        raise UserError("no file to read: name one, or a folder, or - for standard input.")
    return names


def _no_name(given: object) -> UserError:
    return UserError(
        f"paths is {describe_value(given)}. Expected a file, folder or glob, as str or Path, or a list of these."
    )


def is_stream(given: InputPath) -> bool:
    """Tell whether the name is one of standard input or of a pipe, which is empty once it has been read."""
    return given == "-" or (not isinstance(given, Source) and stat.S_ISFIFO(file_mode(Path(given))))


def file_mode(path: Path) -> int:
    """Tell what kind of file is there; 0: none, or none that may be looked at."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def spool(given: InputPath, options: ReadOptions) -> str | Source:
    """Copy what can be read only once, so that it can be looked at, then read; anything else stays a name.

    What is returned can be given wherever a name can.
    """
    (name,) = list_inputs(given)
    if isinstance(name, Source) or not is_stream(name):
        return name
    if name == "-":
        return _copied(name, sys.stdin.buffer, options.input_format or "txt")
    return file_source(name, options)


def check_options_apply(formats: Collection[str], options: ReadOptions) -> None:
    """Refuse an option that does not apply to any of the formats."""
    delimited = ("csv", "tsv")
    uses = {"documents": ("txt",), "text_column": TABLES, "label_column": TABLES}
    uses |= {"delimiter": delimited, "no_quotes": delimited}
    for name, kinds in uses.items():
        if getattr(options, name) not in (None, False) and formats and not set(formats) & set(kinds):
            raise UserError(
                f"--{name.replace('_', '-')}: is for {', '.join(kinds)}, and all there is to read is "
                f"{', '.join(sorted(formats))}. Leave it out, or say what the files are with --input-format."
            )


def list_files(given: str, skipped: Counter[str]) -> list[Path] | None:
    """List the files in a folder, at any depth, or those that a glob matches; None: it is a file by itself."""
    path = Path(given)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return _matched(given, skipped)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{given}: cannot be read: {reason}.") from error
    return _files_below(path, skipped) if stat.S_ISDIR(status.st_mode) else None


def walk_folder(folder: Path, options: ReadOptions, skipped: Counter[str]) -> list[Source]:
    """Find every file of a known format in a folder, at any depth, sorted by name."""
    return _known(_files_below(folder, skipped), options, skipped)


def list_visible(folder: Path, skipped: Counter[str]) -> list[Path]:
    """List a folder, sorted; hidden files and folders are counted and left out."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: cannot be read: {error.strerror or error}.") from error
    hidden = sum(path.name.startswith(".") for path in paths)
    if hidden:
        skipped["hidden file"] += hidden
    return [path for path in paths if not path.name.startswith(".")]


def file_source(name: str, options: ReadOptions) -> Source:
    """Take a file that is there, or copy a named pipe."""
    path = Path(name)
    kind = options.input_format or format_of(path.name)
    if kind is None:
        raise UserError(f"{name}: unknown extension. Known are {KNOWN}; or say what it is with --input-format.")
    try:
        status = path.stat()
        if stat.S_ISFIFO(status.st_mode):
            with path.open("rb") as pipe:
                return _copied(name, pipe, kind)
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror or error}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{name}: is not a file. Name a file, a folder, or - for standard input.")
    return Source(name, path, kind, status.st_size)


def count_unknown(path: Path, skipped: Counter[str]) -> None:
    """Count a file that is left out for its extension."""
    skipped[f"file with the extension {path.suffix or '(none)'}"] += 1


def _expand(given: str | Source, options: ReadOptions, skipped: Counter[str]) -> list[Source]:
    held = spool(given, options)
    if isinstance(held, Source):
        return [held]
    files = list_files(held, skipped)
    if files is None:
        return [file_source(held, options)]
    if not stat.S_ISDIR(file_mode(Path(held))):  # a glob: what it matches is meant to be read
        return [file_source(str(each), options) for each in files]
    found = _known(files, options, skipped)
    if not found:
        raise UserError(f"{held}: no file to read in this folder. Known are {KNOWN}.")
    return found


def _known(files: list[Path], options: ReadOptions, skipped: Counter[str]) -> list[Source]:
    found: list[Source] = []
    for path in files:
        if kind := options.input_format or format_of(path.name):
            found.append(Source(str(path), path, kind, path.stat().st_size))
        else:
            count_unknown(path, skipped)
    return found


def _files_below(folder: Path, skipped: Counter[str]) -> list[Path]:
    found: list[Path] = []
    seen: set[Path] = set()

    def walk(at: Path) -> None:
        real = at.resolve()
        if real in seen:  # a link back up
            skipped["folder linked twice"] += 1
            return
        seen.add(real)
        for path in list_visible(at, skipped):
            if path.is_dir():
                walk(path)
            elif path.is_file():
                found.append(path)
            else:
                skipped["not a regular file"] += 1

    walk(folder)
    return found


def _matched(given: str, skipped: Counter[str]) -> list[Path]:
    if not glob.has_magic(given):
        raise UserError(f"{given}: no such file or folder. {_nearest(Path(given))}")
    matched = sorted(glob.glob(given, recursive=True))  # noqa: PTH207 (the pattern may be absolute)
    if not matched:
        raise UserError(f"{given}: matches no file. Check the pattern, and the folder you are in.")
    # `data/*` matches subfolders too; to read those, name them or write `data/**`.
    files = [path for path in map(Path, matched) if not path.is_dir()]
    if not files:
        raise UserError(f"{given}: matches folders only. Name them, or match the files in them.")
    if len(files) < len(matched):
        skipped["folder matched by a glob"] += len(matched) - len(files)
    return files


def _nearest(path: Path) -> str:
    """Say what the user may have meant by a path that is not there."""
    if not path.parent.is_dir():
        return f"Check the path: there is no folder {path.parent}."
    try:
        names = [each.name for each in path.parent.iterdir()]
    except OSError:
        names = []
    best, name = max(((_alike(path.name, name), name) for name in names), default=(0.0, ""))
    return f"Is it {path.with_name(name)}?" if best >= 0.6 else "Check the path."


def _alike(one: str, other: str) -> float:
    """Compare two names, but for their extensions, which are often the same."""
    return difflib.SequenceMatcher(None, one.partition(".")[0].lower(), other.partition(".")[0].lower()).ratio()


def _copied(name: str, stream: IO[bytes], kind: str) -> Source:
    """Copy a stream to a temporary file, which goes when the source goes, or the program."""
    handle, path = tempfile.mkstemp(prefix="rehead-")
    try:
        with os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
            source = Source(name, Path(path), kind, copy.tell())
    except BaseException:
        Path(path).unlink()
        raise
    weakref.finalize(source, Path(path).unlink, missing_ok=True)
    return source
