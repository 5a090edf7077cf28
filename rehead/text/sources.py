"""What the user named (files, folders, globs, `-`) → the files to read, in a stable order.

    a folder     every file in it, at any depth, sorted by name
    a glob       what it matches, sorted; `**` goes down into folders
    -            standard input, copied to a temporary file first, since every corpus is read more than once
    a named pipe likewise

Nothing is left out silently: hidden files, files whose extension says nothing and files named twice are counted.
A file without an extension is taken for plain text, as old corpora often have it.
"""

from __future__ import annotations

import glob
import os
import shutil
import stat
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rehead.errors import UserError
from rehead.text.decoding import COMPRESSED
from rehead.text.documents import ReadOptions

FORMATS = {
    "": "txt",
    ".txt": "txt",
    ".text": "txt",
    ".md": "txt",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".spm": "spm",
}
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


def find_sources(
    paths: Sequence[str | Path] | str | Path,
    options: ReadOptions,
    skipped: Counter[str],
    formats: Sequence[str] | None = None,
) -> list[Source]:
    """Expand folders and globs; count in `skipped` what is left out; complain of what is not there.

    With `formats`, a folder gives only files of these, and a file of another is an error.
    """
    found: list[Source] = []
    for given in named(paths):
        found += _expand(given, options, skipped, formats)
    seen: set[Path] = set()
    return [source for source in found if source.is_new(seen, skipped)]


def named(paths: Sequence[str | Path] | str | Path) -> list[str]:
    """List what the user named, which must be something."""
    names = [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
    if not names:
        raise UserError("no file to read: name one, or a folder, or - for standard input.")
    return names


def walk_folder(
    folder: Path, options: ReadOptions, skipped: Counter[str], formats: Sequence[str] | None = None
) -> list[Source]:
    """Find every readable file in a folder, at any depth, sorted by name."""
    found: list[Source] = []
    seen: set[Path] = set()

    def walk(at: Path) -> None:
        real = at.resolve()
        if real in seen:  # a link back up
            skipped["folder linked twice"] += 1
            return
        seen.add(real)
        for path in visible(at, skipped):
            kind = options.input_format or format_of(path.name)
            if path.is_dir():
                walk(path)
            elif not path.is_file():
                skipped["not a regular file"] += 1
            elif kind is None or (formats and kind not in formats):
                skipped[f"file with the extension {path.suffix or '(none)'}"] += 1
            else:
                found.append(Source(str(path), path, kind, path.stat().st_size))

    walk(folder)
    return found


def visible(folder: Path, skipped: Counter[str]) -> list[Path]:
    """List a folder, sorted; hidden files and folders are counted and left out."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: cannot be read: {error.strerror or error}.") from error
    hidden = sum(path.name.startswith(".") for path in paths)
    if hidden:
        skipped["hidden file"] += hidden
    return [path for path in paths if not path.name.startswith(".")]


def format_of(name: str) -> str | None:
    """Tell a file's format by its extension, that of a compressed file by the one before; None: unknown."""
    stem = Path(name)
    if stem.suffix.lower() in COMPRESSED:
        stem = stem.with_suffix("")
    return FORMATS.get(stem.suffix.lower())


def _expand(given: str, options: ReadOptions, skipped: Counter[str], formats: Sequence[str] | None) -> list[Source]:
    if not given:
        raise UserError("an empty file name: name a file, or a folder, or - for standard input.")
    if given == "-":
        _check_format("-", options.input_format or "txt", formats)
        return [_copied("-", sys.stdin.buffer, options.input_format or "txt")]
    path = Path(given)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return _match(given, options, skipped, formats)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{given}: cannot be read: {reason}.") from error
    if stat.S_ISDIR(status.st_mode):
        found = walk_folder(path, options, skipped, formats)
        if not found:
            raise UserError(f"{given}: no file to read in this folder. Known are {KNOWN}.")
        return found
    kind = options.input_format or format_of(path.name)
    if kind is None:
        raise UserError(f"{given}: unknown extension. Known are {KNOWN}; or say what it is with --input-format.")
    _check_format(given, kind, formats)
    if stat.S_ISFIFO(status.st_mode):
        with path.open("rb") as pipe:
            return [_copied(given, pipe, kind)]
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{given}: is not a file. Name a file, a folder, or - for standard input.")
    return [Source(given, path, kind, status.st_size)]


def _check_format(name: str, kind: str, formats: Sequence[str] | None) -> None:
    if formats and kind not in formats:
        raise UserError(f"{name}: {kind} does not do here: give {', '.join(formats)}, or say --input-format.")


def _match(given: str, options: ReadOptions, skipped: Counter[str], formats: Sequence[str] | None) -> list[Source]:
    if not glob.has_magic(given):
        raise UserError(f"{given}: no such file or folder.")
    matched = sorted(glob.glob(given, recursive=True))  # noqa: PTH207 (the pattern may be absolute)
    if not matched:
        raise UserError(f"{given}: matches no file.")
    found: list[Source] = []
    for each in matched:
        if not Path(each).is_dir():  # `data/*` matches subfolders too; to read those, name them or write `data/**`
            found += _expand(each, options, skipped, formats)
        else:
            skipped["folder matched by a glob"] += 1
    if not found:
        raise UserError(f"{given}: matches folders only. Name them, or match the files in them.")
    return found


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
