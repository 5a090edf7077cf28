"""Resolve the paths that the user gave (files, folders, globs, `-`) to files, in a stable order.

    a folder     all files in it, recursively, sorted by name
    a glob       the matches, sorted; `**` is recursive
    -            standard input, spooled to a temporary file, since every corpus is read more than once
    a named pipe likewise

Nothing is skipped silently: hidden files, files with unknown extensions and files given twice are counted. A file
without extension is read as plain text, since old corpora often have none.
"""

from __future__ import annotations

import difflib
import glob
import os
import shutil
import stat
import tempfile
import weakref
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rehead.errors import UserError
from rehead.terminal import stdin
from rehead.text.documents import TABLES, ReadOptions, describe_value, format_of

KNOWN = ".txt .csv .tsv .jsonl .parquet .spm, each also .gz or .zst"


@dataclass(frozen=True)
class Source:
    """A file to read."""

    name: str
    "As the user would name it, for messages."
    path: Path
    "The actual file: for standard input, a temporary copy."
    format: str
    size: int
    "Bytes on disk."

    def is_new(self, seen: set[Path], skipped: Counter[str]) -> bool:
        """Add the file to `seen`; return False, and count it as skipped, if it was there under any name."""
        real = self.path.resolve()
        if real in seen:
            skipped["file named twice"] += 1
            return False
        seen.add(real)
        return True


# An input: a path, or a file that was resolved before.
InputPath = str | Path | Source


def find_sources(paths: Iterable[InputPath] | InputPath, options: ReadOptions, skipped: Counter[str]) -> list[Source]:
    """Expand folders and globs; count what is skipped; raise for paths that do not exist."""
    found: list[Source] = []
    for given in list_inputs(paths):
        found += _expand(given, options, skipped)
    seen: set[Path] = set()
    return [source for source in found if source.is_new(seen, skipped)]


def list_inputs(paths: Iterable[InputPath] | InputPath) -> list[str | Source]:
    """Normalise one path or an iterable of paths to a non-empty list."""
    many: object = [paths] if isinstance(paths, str | Path | Source) else paths
    if isinstance(many, bytes) or not isinstance(many, Iterable):
        raise _not_a_path(many)
    names: list[str | Source] = []
    for each in many:
        if not isinstance(each, str | Path | Source):
            raise _not_a_path(each)
        if not str(each):
            raise UserError("a file name is empty: give a file, a folder, or - for standard input.")
        names.append(str(each) if isinstance(each, Path) else each)
    if not names:
        raise UserError("no file to read: give a file, a folder, or - for standard input.")
    return names


def _not_a_path(given: object) -> UserError:
    return UserError(
        f"paths is {describe_value(given)}. Expected a file, folder or glob, as str or Path, or a list of these."
    )


def is_stream(given: InputPath) -> bool:
    """Whether the input is standard input or a named pipe, which can be read only once."""
    return given == "-" or (not isinstance(given, Source) and stat.S_ISFIFO(file_mode(Path(given))))


def file_mode(path: Path) -> int:
    """Mode bits of a path; 0 if it does not exist or cannot be accessed."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def spool(given: InputPath, options: ReadOptions) -> str | Source:
    """Copy standard input or a pipe to a temporary file, so that it can be read repeatedly; return other inputs as is.

    The result can be used wherever a path can.
    """
    (name,) = list_inputs(given)
    if isinstance(name, Source) or not is_stream(name):
        return name
    if name == "-":
        return _spooled(name, stdin().buffer, options.input_format or "txt")
    return file_source(name, options)


def check_options_apply(formats: Collection[str], options: ReadOptions) -> None:
    """Refuse options that apply to none of the formats."""
    delimited = ("csv", "tsv")
    uses = {"documents": ("txt",), "text_column": TABLES, "label_column": TABLES}
    uses |= {"delimiter": delimited, "no_quotes": delimited}
    for name, kinds in uses.items():
        if getattr(options, name) not in (None, False) and formats and not set(formats) & set(kinds):
            raise UserError(
                f"--{name.replace('_', '-')}: applies to {', '.join(kinds)}, but the input is "
                f"{', '.join(sorted(formats))}. Leave it out, or set the format of the files with --input-format."
            )


def list_files(given: str, skipped: Counter[str]) -> list[Path] | None:
    """List the files in a folder, recursively, or the matches of a glob; None for a single file."""
    path = Path(given)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return _glob(given, skipped)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{given}: cannot be read: {reason}.") from error
    return _files_below(path, skipped) if stat.S_ISDIR(status.st_mode) else None


def walk_folder(folder: Path, options: ReadOptions, skipped: Counter[str]) -> list[Source]:
    """List all files of known formats in a folder, recursively, sorted by name."""
    return _of_known_formats(_files_below(folder, skipped), options, skipped)


def list_visible(folder: Path, skipped: Counter[str]) -> list[Path]:
    """List a folder, sorted, without hidden files and folders, which are counted as skipped."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: cannot be read: {error.strerror or error}.") from error
    hidden = sum(path.name.startswith(".") for path in paths)
    if hidden:
        skipped["hidden file"] += hidden
    return [path for path in paths if not path.name.startswith(".")]


def file_source(name: str, options: ReadOptions) -> Source:
    """Create the source for an existing file; spool a named pipe."""
    path = Path(name)
    kind = options.input_format or format_of(path.name)
    if kind is None:
        raise UserError(f"{name}: unknown extension. Known: {KNOWN}. Set the format with --input-format.")
    try:
        status = path.stat()
        if stat.S_ISFIFO(status.st_mode):
            with path.open("rb") as pipe:
                return _spooled(name, pipe, kind)
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror or error}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{name}: is not a regular file. Give a file, a folder, or - for standard input.")
    return Source(name, path, kind, status.st_size)


def count_unknown(path: Path, skipped: Counter[str]) -> None:
    """Count a file as skipped because of its extension."""
    skipped[f"file with the extension {path.suffix or '(none)'}"] += 1


def _expand(given: str | Source, options: ReadOptions, skipped: Counter[str]) -> list[Source]:
    spooled = spool(given, options)
    if isinstance(spooled, Source):
        return [spooled]
    files = list_files(spooled, skipped)
    if files is None:
        return [file_source(spooled, options)]
    if not stat.S_ISDIR(file_mode(Path(spooled))):  # a glob: an unknown extension is an error
        return [file_source(str(each), options) for each in files]
    found = _of_known_formats(files, options, skipped)
    if not found:
        raise UserError(f"{spooled}: no readable file in this folder. Known: {KNOWN}.")
    return found


def _of_known_formats(files: list[Path], options: ReadOptions, skipped: Counter[str]) -> list[Source]:
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


def _glob(given: str, skipped: Counter[str]) -> list[Path]:
    if not glob.has_magic(given):
        raise UserError(f"{given}: no such file or folder. {_suggestion(Path(given))}")
    matched = sorted(glob.glob(given, recursive=True))  # noqa: PTH207 (the pattern may be absolute)
    if not matched:
        raise UserError(f"{given}: matches no file. Check the pattern and the working directory.")
    # `data/*` matches subfolders too; to read those, name them or write `data/**`.
    files = [path for path in map(Path, matched) if not path.is_dir()]
    if not files:
        raise UserError(f"{given}: matches folders only. Give the folders, or a pattern for the files in them.")
    if len(files) < len(matched):
        skipped["folder matched by a glob"] += len(matched) - len(files)
    return files


def _suggestion(path: Path) -> str:
    """Suggest an existing file for a path that does not exist."""
    if not path.parent.is_dir():
        return f"Check the path: there is no folder {path.parent}."
    try:
        names = [each.name for each in path.parent.iterdir()]
    except OSError:
        names = []
    best, name = max(((_similarity(path.name, name), name) for name in names), default=(0.0, ""))
    return f"Is it {path.with_name(name)}?" if best >= 0.6 else "Check the path."


def _similarity(one: str, other: str) -> float:
    """Similarity of two file names, without extensions, which are often the same."""
    return difflib.SequenceMatcher(None, one.partition(".")[0].lower(), other.partition(".")[0].lower()).ratio()


def _spooled(name: str, stream: IO[bytes], kind: str) -> Source:
    """Copy a stream to a temporary file, which is deleted with the source object, or at exit."""
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
