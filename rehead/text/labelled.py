"""Labelled text → `LabelledData`, in memory, with every label's name kept.

What a labelled set may be:

    a table                       csv, tsv, jsonl or parquet, with a text and a label column (see `tables`)
    a folder with subfolders      one subfolder per class, named like the class; a file is an example, unless
                                  `--documents line` or `block` says otherwise
    a folder without subfolders   the tables and the pairs in it; a glob likewise
    X.review.spm and X.label      named by either file or as X: SentencePiece pieces separated by spaces, a document
                                  per line, and its label on the same line of the other file; the text is the pieces
                                  put together again

Labels are strings from here on. A number keeps its name, and JSON's 1 and 1.0 are both `1`; true and false are
`true` and `false`; white space around a name goes. The set is multi-label if any label is a list, or any string holds
a `|` (`a|b`), unless `--single-label` is given: then every label is a set of names. An empty label is an error, or
counted with `--skip-empty`; only the empty list `[]` means "none of the classes".
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rehead.errors import UserError
from rehead.text.decoding import InputFile
from rehead.text.documents import COMPRESSED, TABLES, LabelledData, ReadOptions, check_values, format_of, place
from rehead.text.readers import kept_rows, read_rows
from rehead.text.sources import (
    Given,
    Source,
    check_use,
    count_unknown,
    file_source,
    find_sources,
    hold,
    listed,
    mode_of,
    named,
    read_once,
    visible,
    walk_folder,
)
from rehead.text.tables import Row, UnknownColumnError, check_whole, list_columns

PIECES, LABEL = (".review.spm", ".spm"), ".label"


class Part(NamedTuple):
    """A file with examples, and where their labels are."""

    source: Source
    labels: Path | str | None = None
    "A file with a label per line, or the label of all (a class folder); None: in the file itself."


# (text, label, file, line) before it is known whether the set is multi-label; a list of labels is a tuple.
Raw = tuple[str, str | tuple[str, ...], str, int]


def read_examples(
    paths: Iterable[Given] | Given, options: ReadOptions | None = None, *, check: bool = True
) -> LabelledData:
    """Read labelled text.

    With `check`, refuse what no classifier can be trained on (see `check_classes`), and options that apply to none of
    the files (see `sources.check_use`).
    """
    options = ReadOptions() if options is None else options
    check_values(options)
    skipped: Counter[str] = Counter()
    parts = _all_parts(given := named(paths), options, skipped)
    if check:
        check_use({part.source.format for part in parts}, options)
    raw = list(itertools.chain.from_iterable(_read_part(part, options, skipped) for part in parts))
    if not raw:
        raise UserError(f"{', '.join(map(_name, given))}: no example is left: all that was found is empty.")
    multilabel = not options.single_label and any(isinstance(label, tuple) or "|" in label for _, label, _, _ in raw)
    labels = [
        (label,) if isinstance(label, str) and not multilabel else _label_set(label, place(source, line))
        for _, label, source, line in raw
    ]
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
    files = list(dict.fromkeys(source for source, _ in data.sources)) or ["the labelled set"]
    first = files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    if not counts:
        raise UserError(f"{first}: no example has a label. Give at least two classes.")
    if len(counts) == 1 and not (data.multilabel and () in data.labels):
        name = next(iter(counts))
        count = f"all {len(data):,} examples have the same label" if len(data) > 1 else "the only example has the label"
        raise UserError(f"{first}: {count}, {name!r}. Give at least two classes.")
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


class Look(NamedTuple):
    """What is seen at a glance in what the user named."""

    labelled: bool
    why: str
    "Why it is read without labels, in one line; empty if it is labelled, or holds nothing that could have labels."
    formats: set[str]
    "Of the files that are read, to tell which options apply to them: see `sources.check_use`."


def look(given: Given, options: ReadOptions) -> Look:
    """Tell whether what the user named is a labelled set; what is not can still be read as unlabelled text.

    Standard input and pipes cannot be looked at by name, since they would be empty after: give what `sources.hold`
    makes of them. By name, they are taken for labelled if a label column was named.
    """
    check_values(options)
    (name,) = named(given)
    if not isinstance(name, Source) and read_once(name):
        kind = options.input_format or ("txt" if name == "-" else format_of(name)) or "txt"
        return Look(kind in TABLES and options.label_column is not None, "", {kind})
    parts = _find_parts(name, options, Counter())
    for part in parts:
        bare = part.source if part.labels is None else None
        if bare and (columns := _without_label(bare, options)) is not None:
            what = "it" if bare.name == _name(name) else f"all of {_name(name)}"
            why = f"{bare.name} has no label column (there are: {columns}), so {what} is read without labels."
            return Look(False, why, _formats(name, options))
    if not parts:
        return Look(False, "", _formats(name, options))
    return Look(True, "", {part.source.format for part in parts})


def is_labelled(given: Given, options: ReadOptions) -> bool:
    """Tell whether what the user named is a labelled set: see `look`, which also says why it is not."""
    return look(given, options).labelled


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


def _all_parts(names: list[str | Source], options: ReadOptions, skipped: Counter[str]) -> list[Part]:
    """Find all files with examples, each once."""
    parts: list[Part] = []
    seen: set[Path] = set()
    for given in names:
        found = _find_parts(given, options, skipped)
        if not found:
            raise _no_labels(given, options)
        for part in found:
            # A pair may have been named by both of its files, which is not naming a file twice.
            again = isinstance(part.labels, Path) and part.source.path.resolve() in seen
            if not again and part.source.is_new(seen, skipped):
                parts.append(part)
    return parts


def _find_parts(given: str | Source, options: ReadOptions, skipped: Counter[str]) -> list[Part]:
    """Find the files with examples in what the user named; none: it is text without labels."""
    if given == "-" and (options.input_format or "txt") not in TABLES:
        return []
    given = hold(given, options)
    if isinstance(given, Source):
        return [Part(given)] if given.format in TABLES else []
    path = Path(given)
    if part := _pair_part(path):
        return [part]
    if any(_pair(path)):
        return []
    if _has_subfolders(path):
        return _find_classes(path, options, skipped)
    files = listed(given, skipped)
    if files is None:
        source = file_source(given, options)
        return [Part(source)] if source.format in TABLES else []
    return _choose_parts(files, options, skipped)


def _choose_parts(files: list[Path], options: ReadOptions, skipped: Counter[str]) -> list[Part]:
    """Choose the tables and the pairs, each pair once, and count the rest."""
    parts: dict[Path, Part] = {}
    for file in files:
        pair = _pair(file) if options.input_format in (None, "spm") else (None, None)
        if file in pair:
            if part := _pair_part(file):
                parts[part.source.path] = part
            else:
                skipped["half of a pair"] += 1
        elif (options.input_format or format_of(file.name)) in TABLES:
            parts[file] = Part(file_source(str(file), options))
        else:
            count_unknown(file, skipped)
    return list(parts.values())


def _no_labels(given: str | Source, options: ReadOptions) -> UserError:
    """Say what is wrong with something that holds no labels."""
    name = _name(given)
    if not isinstance(given, Source):
        pieces, labels = _pair(Path(given))
        if half := pieces or labels:
            other = half.with_name(_stem(half)[0] + (LABEL if pieces else PIECES[0]))
            return UserError(f"{half}: belongs with {other}, which is not there. Put it there, or leave {half} out.")
        if not read_once(given) and listed(given, Counter()) is not None:
            return UserError(
                f"{name}: no labelled text in it. "
                f"Give {', '.join(TABLES)}, a subfolder for each class, or X.review.spm with X.label."
            )
    return UserError(
        f"{name}: {options.input_format or format_of(name)} does not do here: "
        f"give {', '.join(TABLES)}, or say --input-format."
    )


def _name(given: str | Source) -> str:
    return given.name if isinstance(given, Source) else given


def _has_subfolders(path: Path) -> bool:
    return stat.S_ISDIR(mode_of(path)) and any(each.is_dir() for each in visible(path, Counter()))


def _pair_part(given: Path) -> Part | None:
    pieces, labels = _pair(given)
    if pieces is None or labels is None:
        return None
    return Part(Source(str(pieces), pieces, "spm", pieces.stat().st_size), labels)


def _pair(given: Path) -> tuple[Path | None, Path | None]:
    """Find the file of pieces and that of labels, if the name is one of theirs or their stem."""
    stem, ending = _stem(given)
    if not stem or (not ending and mode_of(given)):
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
    return next((path for path in paths if stat.S_ISREG(mode_of(path))), None)


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
    source = part.source
    if isinstance(part.labels, str):
        options = dataclasses.replace(options, documents=options.documents or "file")
    for line, text, value in kept_rows(_rows(part, options), source, options, skipped):
        at = place(source.name, line, source.format)
        label = tuple(label_name(each, at) for each in value) if isinstance(value, list) else label_name(value, at)
        if options.single_label and isinstance(label, tuple):
            label = _only_label(label, at)
        if label != "":
            yield text, label, source.name, line
        elif options.skip_empty:
            skipped["empty label"] += 1
        else:
            raise UserError(f"{at}: label is empty. Give every text a label, or drop those without with --skip-empty.")


def _only_label(labels: tuple[str, ...], at: str) -> str:
    names = list(dict.fromkeys(labels))
    if len(names) > 1:
        raise UserError(f"{at}: {len(names)} labels. Keep one, or leave --single-label out.")
    return names[0] if names else ""


def _rows(part: Part, options: ReadOptions) -> Iterator[Row]:
    source, labels = part
    if isinstance(labels, Path):
        yield from _paired_rows(source, labels, options)
        return
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
