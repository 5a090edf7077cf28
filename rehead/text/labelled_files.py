"""What the user named → the files with examples, and where the labels of each are.

    a table                       csv, tsv, jsonl or parquet: in a column
    a folder with subfolders      one subfolder per class: the subfolder's name
    a folder without subfolders   the tables and the pairs in it; a glob likewise
    X.review.spm and X.label      named by either file or as X: on the same line of the other file

What is none of these can still be read as text without labels: `detect_labels` tells, and says why.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rehead.errors import UserError
from rehead.text.decoding import InputFile
from rehead.text.documents import COMPRESSED, TABLES, ReadOptions, check_values, format_of
from rehead.text.readers import read_rows
from rehead.text.sources import (
    InputPath,
    Source,
    count_unknown,
    file_mode,
    file_source,
    find_sources,
    is_stream,
    list_files,
    list_inputs,
    list_visible,
    spool,
    walk_folder,
)
from rehead.text.tables import UnknownColumnError, list_columns

PIECES, LABEL = (".review.spm", ".spm"), ".label"


class LabelledFile(NamedTuple):
    """A file with examples, and where their labels are."""

    source: Source
    labels: Path | str | None = None
    "A file with a label per line, or the label of all (a class folder); None: in the file itself."


class LabelDetection(NamedTuple):
    """What is seen at a glance in what the user named."""

    labelled: bool
    reason: str
    "Why it is read without labels, in one line; empty if it is labelled, or holds nothing that could have labels."
    formats: set[str]
    "Of the files that are read, to tell which options apply to them: see `sources.check_options_apply`."


def detect_labels(given: InputPath, options: ReadOptions) -> LabelDetection:
    """Tell whether what the user named is a labelled set; what is not can still be read as unlabelled text.

    Standard input and pipes cannot be looked at by name, since they would be empty after: give what `sources.spool`
    makes of them. By name, they are taken for labelled if a label column was named.
    """
    check_values(options)
    (name,) = list_inputs(given)
    if not isinstance(name, Source) and is_stream(name):
        kind = options.input_format or ("txt" if name == "-" else format_of(name)) or "txt"
        return LabelDetection(kind in TABLES and options.label_column is not None, "", {kind})
    parts = _labelled_files_in(name, options, Counter())
    for part in parts:
        bare = part.source if part.labels is None else None
        if bare and (columns := _without_label(bare, options)) is not None:
            what = "it" if bare.name == source_name(name) else f"all of {source_name(name)}"
            why = f"{bare.name} has no label column (there are: {columns}), so {what} is read without labels."
            return LabelDetection(False, why, _formats(name, options))
    if not parts:
        return LabelDetection(False, "", _formats(name, options))
    return LabelDetection(True, "", {part.source.format for part in parts})


def _formats(given: str | Source, options: ReadOptions) -> set[str]:
    return {source.format for source in find_sources(given, options, Counter())}


def _without_label(table: Source, options: ReadOptions) -> str | None:
    """Look for a label column, without reading further than that: list the columns if it is none of them."""
    with InputFile(table.path, table.name) as file:
        next(read_rows(file, table.format, options), None)
    try:
        with InputFile(table.path, table.name) as file:
            next(read_rows(file, table.format, options, labelled=True), None)
    except UnknownColumnError as error:
        if error.role != "label" or error.wanted is not None:
            raise
        return list_columns(error.columns)
    return None


def find_labelled_files(names: list[str | Source], options: ReadOptions, skipped: Counter[str]) -> list[LabelledFile]:
    """Find all files with examples, each once."""
    parts: list[LabelledFile] = []
    seen: set[Path] = set()
    for given in names:
        found = _labelled_files_in(given, options, skipped)
        if not found:
            raise _no_labels(given, options)
        for part in found:
            # A pair may have been named by both of its files, which is not naming a file twice.
            again = isinstance(part.labels, Path) and part.source.path.resolve() in seen
            if not again and part.source.is_new(seen, skipped):
                parts.append(part)
    return parts


def _labelled_files_in(given: str | Source, options: ReadOptions, skipped: Counter[str]) -> list[LabelledFile]:
    """Find the files with examples in what the user named; none: it is text without labels."""
    if given == "-" and (options.input_format or "txt") not in TABLES:
        return []
    given = spool(given, options)
    if isinstance(given, Source):
        return [LabelledFile(given)] if given.format in TABLES else []
    path = Path(given)
    if part := _paired_file(path):
        return [part]
    if any(_pair(path)):
        return []
    if _has_subfolders(path):
        return _find_classes(path, options, skipped)
    files = list_files(given, skipped)
    if files is None:
        source = file_source(given, options)
        return [LabelledFile(source)] if source.format in TABLES else []
    return _choose_files(files, options, skipped)


def _choose_files(files: list[Path], options: ReadOptions, skipped: Counter[str]) -> list[LabelledFile]:
    """Choose the tables and the pairs, each pair once, and count the rest."""
    parts: dict[Path, LabelledFile] = {}
    for file in files:
        pair = _pair(file) if options.input_format in (None, "spm") else (None, None)
        if file in pair:
            if part := _paired_file(file):
                parts[part.source.path] = part
            else:
                skipped["half of a pair"] += 1
        elif (options.input_format or format_of(file.name)) in TABLES:
            parts[file] = LabelledFile(file_source(str(file), options))
        else:
            count_unknown(file, skipped)
    return list(parts.values())


def _no_labels(given: str | Source, options: ReadOptions) -> UserError:
    """Say what is wrong with something that holds no labels."""
    name = source_name(given)
    if not isinstance(given, Source):
        pieces, labels = _pair(Path(given))
        if half := pieces or labels:
            other = half.with_name(_stem(half)[0] + (LABEL if pieces else PIECES[0]))
            return UserError(f"{half}: belongs with {other}, which is not there. Put it there, or leave {half} out.")
        if not is_stream(given) and list_files(given, Counter()) is not None:
            return UserError(
                f"{name}: no labelled text in it. "
                f"Give {', '.join(TABLES)}, a subfolder for each class, or X.review.spm with X.label."
            )
    return UserError(
        f"{name}: {options.input_format or format_of(name)} does not do here: "
        f"give {', '.join(TABLES)}, or say --input-format."
    )


def source_name(given: str | Source) -> str:
    """Name what was given, for messages."""
    return given.name if isinstance(given, Source) else given


def _has_subfolders(path: Path) -> bool:
    return stat.S_ISDIR(file_mode(path)) and any(each.is_dir() for each in list_visible(path, Counter()))


def _paired_file(given: Path) -> LabelledFile | None:
    pieces, labels = _pair(given)
    if pieces is None or labels is None:
        return None
    return LabelledFile(Source(str(pieces), pieces, "spm", pieces.stat().st_size), labels)


def _pair(given: Path) -> tuple[Path | None, Path | None]:
    """Find the file of pieces and that of labels, if the name is one of theirs or their stem."""
    stem, ending = _stem(given)
    if not stem or (not ending and file_mode(given)):
        return None, None
    return _beside(given, stem, PIECES), _beside(given, stem, [LABEL])


def _stem(given: Path) -> tuple[str, str]:
    """Split the name of one of a pair's files: `train.review.spm.gz` → train, .review.spm."""
    name = given.name
    for compressed in COMPRESSED:
        name = name.removesuffix(compressed)
    ending = next((each for each in (*PIECES, LABEL) if name.endswith(each)), "")
    return name.removesuffix(ending), ending


def _beside(given: Path, stem: str, endings: Sequence[str]) -> Path | None:
    """Find the first of the files stem + ending that is there, compressed or not."""
    paths = (given.with_name(stem + ending + more) for ending in endings for more in ("", *COMPRESSED))
    return next((path for path in paths if stat.S_ISREG(file_mode(path))), None)


def _find_classes(folder: Path, options: ReadOptions, skipped: Counter[str]) -> list[LabelledFile]:
    """Find the files in a folder with one subfolder per class."""
    entries = list_visible(folder, skipped)
    classes = [entry for entry in entries if entry.is_dir()]
    inside = [{each.name for each in list_visible(entry, Counter()) if each.is_dir()} for entry in classes]
    if len(classes) > 1 and inside[0] and all(names == inside[0] for names in inside):
        raise UserError(
            f"{folder}: its subfolders all hold the same subfolders, so they look like parts, not classes. "
            f"Name one of them, such as {classes[0]}."
        )
    if len(entries) > len(classes):
        skipped["file beside the class folders"] += len(entries) - len(classes)
    parts: list[LabelledFile] = []
    for entry in classes:
        sources = walk_folder(entry, options, skipped)
        if not sources:
            raise UserError(f"{entry}: no text in this class folder. Add examples, or remove it.")
        parts += [LabelledFile(source, entry.name) for source in sources]
    return parts
