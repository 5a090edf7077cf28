"""Labelled text → `LabelledData`, in memory, with every label's name kept.

What a labelled set may be:

    a table                       csv, tsv, jsonl or parquet, with a text and a label column (see `tables`)
    a folder with subfolders      one subfolder per class, named like the class; a file is an example, unless
                                  `--documents line` or `block` says otherwise
    a folder without subfolders   the tables in it
    X.review.spm and X.label      named by either file or as X: SentencePiece pieces separated by spaces, a document
                                  per line, and its label on the same line of the other file; the text is the pieces
                                  put together again

Labels are strings from here on. A number keeps its name, and JSON's 1 and 1.0 are both `1`; true and false are
`true` and `false`; white space around a name goes. The set is multi-label if any label is a list, or any string holds
a `|` (`a|b`): then every label is a set of names. An empty label is an error, or counted with `--skip-empty`;
only the empty list `[]` means "none of the classes".
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rehead.errors import UserError
from rehead.text.decoding import COMPRESSED, InputFile
from rehead.text.documents import LabelledData, ReadOptions, place
from rehead.text.readers import kept_rows, read_rows
from rehead.text.sources import Source, find_sources, named, visible, walk_folder
from rehead.text.tables import Row, check_whole

TABLES = ("csv", "tsv", "jsonl", "parquet")
PIECES, LABEL = (".review.spm", ".spm"), ".label"


class Part(NamedTuple):
    """A file with examples, and where their labels are."""

    source: Source
    labels: Path | str | None = None
    "A file with a label per line, or the label of all (a class folder); None: in the file itself."


# (text, label, file, line) before it is known whether the set is multi-label; a list of labels is a tuple.
Raw = tuple[str, str | tuple[str, ...], str, int]


def read_examples(
    paths: Sequence[str | Path] | str | Path, options: ReadOptions | None = None, *, check: bool = True
) -> LabelledData:
    """Read labelled text. With `check`, refuse what no classifier can be trained on: see `check_classes`."""
    options = options or ReadOptions()
    skipped: Counter[str] = Counter()
    raw: list[Raw] = []
    seen: set[Path] = set()
    for given in named(paths):
        for part in _find_parts(given, options, skipped):
            if part.source.is_new(seen, skipped):
                raw += _read_part(part, options, skipped)
    if not raw:
        raise UserError(f"{', '.join(named(paths))}: no example is left: all that was found is empty.")
    multilabel = any(isinstance(label, tuple) or "|" in label for _, label, _, _ in raw)
    labels = [_label_set(label, place(source, line)) for _, label, source, line in raw]
    data = LabelledData(
        texts=[text for text, _, _, _ in raw],
        labels=labels,
        names=sort_names(set(itertools.chain.from_iterable(labels))),
        multilabel=multilabel,
        sources=[(source, line) for _, _, source, line in raw],
        skipped=skipped,
    )
    if check:
        check_classes(data)
    return data


def check_classes(data: LabelledData) -> None:
    """Refuse a set with nothing to tell apart, or with a class whose only example cannot be in two parts."""
    counts = Counter(itertools.chain.from_iterable(data.labels))
    first = data.sources[0][0] if data.sources else "the labelled set"
    if not counts:
        raise UserError(f"{first}: no example has a label. Give at least two classes.")
    if len(counts) == 1 and not (data.multilabel and () in data.labels):
        name = next(iter(counts))
        raise UserError(f"{first}: every example has the same label, {name!r}. Give at least two classes.")
    for labels, (source, line) in zip(data.labels, data.sources, strict=True):
        for name in labels:
            if counts[name] == 1:
                raise UserError(
                    f"{place(source, line)}: the only example of the class {name!r}, so it cannot be both learnt and "
                    "tested. Add examples of it, or take it out."
                )


def sort_names(names: set[str]) -> list[str]:
    """Put class names in order: by value if all are numbers, else alphabetically."""
    try:
        values = {name: float(name) for name in names}
    except ValueError:
        return sorted(names)
    if not all(map(math.isfinite, values.values())):
        return sorted(names)
    return sorted(names, key=lambda name: (values[name], name))


def label_name(value: object, at: str) -> str:
    """Name one label; what is missing (null, NaN, nothing but space) is named by the empty string."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, str | int | float):
        name = str(value).strip()
        check_whole(name, at)
        return name
    raise UserError(f"{at}: a label is of type {type(value).__name__}. Give a string, a number, or a list of these.")


def is_labelled(given: str, options: ReadOptions) -> bool:
    """Tell whether what the user named is a labelled set; what is not can still be read as unlabelled text."""
    path = Path(given)
    if given == "-" or path.is_fifo():  # can be read only once, so there is no looking ahead
        return options.label_column is not None
    if all(_pair(path)) or _has_subfolders(path):
        return True
    tables = [source for source in find_sources(given, options, Counter()) if source.format in TABLES]
    return bool(tables) and all(_has_label(each, options) for each in tables)


def _has_label(table: Source, options: ReadOptions) -> bool:
    """Tell whether a table has a label column, by its first row."""
    with InputFile(table.path, table.name) as file:
        next(read_rows(file, table.format, options), None)
    try:
        with InputFile(table.path, table.name) as file:
            next(read_rows(file, table.format, options, labelled=True), None)
    except UserError:
        if options.label_column is not None:
            raise
        return False
    return True


def _find_parts(given: str, options: ReadOptions, skipped: Counter[str]) -> list[Part]:
    path = Path(given)
    pieces, labels = _pair(path)
    if pieces and labels:
        return [Part(Source(str(pieces), pieces, "spm", pieces.stat().st_size), labels)]
    if pieces or labels:
        missing = LABEL if pieces else PIECES[0]
        raise UserError(
            f"{pieces or labels}: belongs with {path.with_name(_stem(path)[0] + missing)}, which is not there."
        )
    if _has_subfolders(path):
        return _find_classes(path, options, skipped)
    return [Part(source) for source in find_sources(given, options, skipped, TABLES)]


def _has_subfolders(path: Path) -> bool:
    return path.is_dir() and any(each.is_dir() for each in visible(path, Counter()))


def _pair(given: Path) -> tuple[Path | None, Path | None]:
    """Find the file of pieces and that of labels, if the name is one of theirs or their stem."""
    stem, ending = _stem(given)
    if not stem or (not ending and given.exists()):
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
    return next((path for path in paths if path.is_file()), None)


def _find_classes(folder: Path, options: ReadOptions, skipped: Counter[str]) -> list[Part]:
    """Find the files in a folder with one subfolder per class."""
    entries = visible(folder, skipped)
    classes = [entry for entry in entries if entry.is_dir()]
    inside = [{each.name for each in visible(entry, Counter()) if each.is_dir()} for entry in classes]
    if len(classes) > 1 and inside[0] and all(names == inside[0] for names in inside):
        raise UserError(
            f"{folder}: its subfolders all hold the same subfolders, so they look like parts, not classes. "
            f"Name one of them, such as {classes[0]}."
        )
    if len(entries) > len(classes):
        skipped["file beside the class folders"] += len(entries) - len(classes)
    parts: list[Part] = []
    for entry in classes:
        sources = walk_folder(entry, options, skipped)
        if not sources:
            raise UserError(f"{entry}: no text in this class folder. Add examples, or remove it.")
        parts += [Part(source, entry.name) for source in sources]
    return parts


def _read_part(part: Part, options: ReadOptions, skipped: Counter[str]) -> Iterator[Raw]:
    """Read one file, with its labels named; an empty one is an error, or counted, as the options say."""
    name = part.source.name
    for line, text, value in kept_rows(_rows(part, options), name, options, skipped):
        at = place(name, line)
        label = tuple(label_name(each, at) for each in value) if isinstance(value, list) else label_name(value, at)
        if label != "":
            yield text, label, name, line
        elif options.skip_empty:
            skipped["empty label"] += 1
        else:
            raise UserError(f"{at}: label is empty. Give every text a label, or drop those without with --skip-empty.")


def _rows(part: Part, options: ReadOptions) -> Iterator[Row]:
    source, labels = part
    if isinstance(labels, Path):
        yield from _paired_rows(source, labels, options)
        return
    if labels is not None:
        options = dataclasses.replace(options, documents=options.documents or "file")
    with InputFile(source.path, source.name) as file:
        for line, text, label in read_rows(file, source.format, options, labelled=labels is None):
            yield line, text, label if labels is None else labels


def _paired_rows(source: Source, labels: Path, options: ReadOptions) -> Iterator[Row]:
    """Put lines of pieces and lines of labels side by side; blank lines at the end of either do not count."""
    by_line = dataclasses.replace(options, documents="line")
    with InputFile(source.path, source.name) as file:
        texts = _without_blank_end([text for _, text, _ in read_rows(file, "spm", by_line)])
    with InputFile(labels, str(labels)) as file:
        values = _without_blank_end([value for _, value, _ in read_rows(file, "txt", by_line)])
    if len(texts) != len(values):
        longer = source.name if len(texts) > len(values) else str(labels)
        raise UserError(
            f"{source.name} has {len(texts)} texts, but {labels} has {len(values)} labels: nothing goes with "
            f"{place(longer, min(len(texts), len(values)) + 1)}. Give every line of one a line of the other."
        )
    for line, (text, value) in enumerate(zip(texts, values, strict=True), 1):
        yield line, text, value


def _label_set(label: str | tuple[str, ...], at: str) -> tuple[str, ...]:
    names = label if isinstance(label, tuple) else tuple(each.strip() for each in label.split("|"))
    if "" in names:
        raise UserError(f"{at}: one of several labels is empty. Name it, or take it out.")
    return tuple(dict.fromkeys(names))


def _without_blank_end(lines: list[str | None]) -> list[str | None]:
    while lines and lines[-1] is None:
        lines.pop()
    return lines
