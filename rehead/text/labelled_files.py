"""Find the labelled files in the paths that the user gave, and where their labels are.

    a table                       csv, tsv, jsonl or parquet: labels in a column
    a folder with subfolders      one subfolder per class: labels are the names of the subfolders
    a folder without subfolders   the tables and the pairs of files in it; a glob likewise
    X.review.spm and X.label      given by either file or as X: labels on the same lines of the other file

Anything else can still be read as unlabelled text: `detect_labels` decides, and gives the reason.
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

TEXT_ENDINGS, LABEL_ENDING = (".review.spm", ".spm"), ".label"


class LabelledFile(NamedTuple):
    """A file with examples, and where their labels are."""

    source: Source
    labels: Path | str | None = None
    "A file with one label per line, or the label of all examples (a class folder); None: a column of the file itself."


class LabelDetection(NamedTuple):
    """Whether an input is a labelled dataset."""

    labelled: bool
    reason: str
    "Why it is read as unlabelled, in one line; empty if it is labelled, or if its formats cannot have labels."
    formats: set[str]
    "Formats of its files, to check which options apply: see `sources.check_options_apply`."


def detect_labels(given: InputPath, options: ReadOptions) -> LabelDetection:
    """Detect whether an input is a labelled dataset; if not, it can still be read as unlabelled text.

    Standard input and pipes can be read only once, so they are not inspected: pass the result of `sources.spool`
    instead. Given by name, they count as labelled if a label column was given.
    """
    check_values(options)
    (name,) = list_inputs(given)
    if not isinstance(name, Source) and is_stream(name):
        kind = options.input_format or ("txt" if name == "-" else format_of(name)) or "txt"
        return LabelDetection(kind in TABLES and options.label_column is not None, "", {kind})
    files = _labelled_files_in(name, options, Counter())
    for file in files:
        table = file.source if file.labels is None else None
        if table and (columns := _columns_without_label(table, options)) is not None:
            what = "it" if table.name == source_name(name) else f"all of {source_name(name)}"
            reason = f"{table.name} has no label column (there are: {columns}), so {what} is read without labels."
            return LabelDetection(False, reason, _formats(name, options))
    if not files:
        return LabelDetection(False, "", _formats(name, options))
    return LabelDetection(True, "", {file.source.format for file in files})


def _formats(given: str | Source, options: ReadOptions) -> set[str]:
    return {source.format for source in find_sources(given, options, Counter())}


def _columns_without_label(table: Source, options: ReadOptions) -> str | None:
    """List the columns of a table that has no label column; None if it has one. Reads the first row only."""
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
    files: list[LabelledFile] = []
    seen: set[Path] = set()
    for given in names:
        found = _labelled_files_in(given, options, skipped)
        if not found:
            raise _no_labels(given, options)
        for file in found:
            # A pair may have been given by both of its files; that is not counted as "file named twice".
            again = isinstance(file.labels, Path) and file.source.path.resolve() in seen
            if not again and file.source.is_new(seen, skipped):
                files.append(file)
    return files


def _labelled_files_in(given: str | Source, options: ReadOptions, skipped: Counter[str]) -> list[LabelledFile]:
    """Find the files with examples in one input; none if it is unlabelled text."""
    if given == "-" and (options.input_format or "txt") not in TABLES:
        return []
    given = spool(given, options)
    if isinstance(given, Source):
        return [LabelledFile(given)] if given.format in TABLES else []
    path = Path(given)
    if pair := _paired_file(path):
        return [pair]
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
    """Choose the tables and the pairs, each pair once, and count the other files as skipped."""
    chosen: dict[Path, LabelledFile] = {}
    for file in files:
        pair = _pair(file) if options.input_format in (None, "spm") else (None, None)
        if file in pair:
            if paired := _paired_file(file):
                chosen[paired.source.path] = paired
            else:
                skipped["half of a pair"] += 1
        elif (options.input_format or format_of(file.name)) in TABLES:
            chosen[file] = LabelledFile(file_source(str(file), options))
        else:
            count_unknown(file, skipped)
    return list(chosen.values())


def _no_labels(given: str | Source, options: ReadOptions) -> UserError:
    """Explain why an input has no labels."""
    name = source_name(given)
    if not isinstance(given, Source):
        pieces, labels = _pair(Path(given))
        if half := pieces or labels:
            other = half.with_name(_stem(half)[0] + (LABEL_ENDING if pieces else TEXT_ENDINGS[0]))
            return UserError(f"{half}: needs {other}, which does not exist. Add it, or leave {half} out.")
        if not is_stream(given) and list_files(given, Counter()) is not None:
            return UserError(
                f"{name}: contains no labelled text. "
                f"Give {', '.join(TABLES)}, a subfolder for each class, or X.review.spm with X.label."
            )
    return UserError(
        f"{name}: {options.input_format or format_of(name)} files have no labels. "
        f"Give {', '.join(TABLES)}, or set --input-format."
    )


def source_name(given: str | Source) -> str:
    """Name of an input, for messages."""
    return given.name if isinstance(given, Source) else given


def _has_subfolders(path: Path) -> bool:
    return stat.S_ISDIR(file_mode(path)) and any(each.is_dir() for each in list_visible(path, Counter()))


def _paired_file(given: Path) -> LabelledFile | None:
    pieces, labels = _pair(given)
    if pieces is None or labels is None:
        return None
    return LabelledFile(Source(str(pieces), pieces, "spm", pieces.stat().st_size), labels)


def _pair(given: Path) -> tuple[Path | None, Path | None]:
    """Find the text file and the label file of a pair, given either of them or their stem."""
    stem, ending = _stem(given)
    if not stem or (not ending and file_mode(given)):
        return None, None
    return _beside(given, stem, TEXT_ENDINGS), _beside(given, stem, [LABEL_ENDING])


def _stem(given: Path) -> tuple[str, str]:
    """Split the name of a file of a pair: `train.review.spm.gz` → train, .review.spm."""
    name = given.name
    for compressed in COMPRESSED:
        name = name.removesuffix(compressed)
    ending = next((each for each in (*TEXT_ENDINGS, LABEL_ENDING) if name.endswith(each)), "")
    return name.removesuffix(ending), ending


def _beside(given: Path, stem: str, endings: Sequence[str]) -> Path | None:
    """Find the first existing file of stem + ending, compressed or not."""
    paths = (given.with_name(stem + ending + more) for ending in endings for more in ("", *COMPRESSED))
    return next((path for path in paths if stat.S_ISREG(file_mode(path))), None)


def _find_classes(folder: Path, options: ReadOptions, skipped: Counter[str]) -> list[LabelledFile]:
    """Find the files in a folder with one subfolder per class."""
    entries = list_visible(folder, skipped)
    classes = [entry for entry in entries if entry.is_dir()]
    inside = [{each.name for each in list_visible(entry, Counter()) if each.is_dir()} for entry in classes]
    if len(classes) > 1 and inside[0] and all(names == inside[0] for names in inside):
        raise UserError(
            f"{folder}: its subfolders all have the same subfolders, so they look like splits, not classes. "
            f"Name one of them, such as {classes[0]}."
        )
    if len(entries) > len(classes):
        skipped["file beside the class folders"] += len(entries) - len(classes)
    files: list[LabelledFile] = []
    for entry in classes:
        sources = walk_folder(entry, options, skipped)
        if not sources:
            raise UserError(f"{entry}: no text in this class folder. Add examples, or remove it.")
        files += [LabelledFile(source, entry.name) for source in sources]
    return files
