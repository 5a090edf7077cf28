"""Read labelled datasets into memory, as `LabelledData`.

`labelled_files` lists the supported layouts. In a class folder each file is an example, unless `--documents line` or
`block` is given. The SentencePiece pieces of an `.spm` file are joined to text.

Labels become strings, spelled as in a csv file: JSON's 1 is `1` and 1.0 is `1.0`, true and false are `true` and
`false`; surrounding white space is stripped. Names that are probably one class, spelled in several ways, are noted
(`label_spelling`). The dataset is multilabel if any label is a list or contains `|` (`a|b`), unless `--single-label` is
given; then every example has a set of labels. An empty label is an error, or skipped and counted with `--skip-empty`;
only the empty list `[]` means "none of the classes".
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from rehead.errors import UserError
from rehead.text.decoding import InputFile
from rehead.text.documents import LabelledData, ReadOptions, check_values, location
from rehead.text.label_spelling import separator_notes, spelling_notes
from rehead.text.labelled_files import LabelledFile, find_labelled_files, source_name
from rehead.text.readers import kept_rows, read_rows
from rehead.text.sources import InputPath, Source, check_options_apply, list_inputs
from rehead.text.tables import Row, check_surrogates

# (text, label, file, line), before it is known whether the dataset is multilabel; a list of labels is a tuple.
Raw = tuple[str, str | tuple[str, ...], str, int]


def read_examples(
    paths: Iterable[InputPath] | InputPath,
    options: ReadOptions | None = None,
    *,
    check: bool = True,
    allow_single: bool = False,
) -> LabelledData:
    """Read a labelled dataset.

    With `check`, refuse data that no classifier can be trained on (`check_classes`, with `allow_single`), and options
    that apply to none of the files (`sources.check_options_apply`).
    """
    options = ReadOptions() if options is None else options
    check_values(options)
    skipped: Counter[str] = Counter()
    files = find_labelled_files(given := list_inputs(paths), options, skipped)
    if check:
        check_options_apply({file.source.format for file in files}, options)
    raw = list(itertools.chain.from_iterable(_read_file(file, options, skipped) for file in files))
    if not raw:
        raise UserError(f"{', '.join(map(source_name, given))}: all texts are empty, so there are no examples.")
    multilabel = not options.single_label and any(isinstance(label, tuple) or "|" in label for _, label, _, _ in raw)
    labels = [
        (label,) if isinstance(label, str) and not multilabel else _label_set(label, location(source, line))
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
    data.notes = spelling_notes(data)
    if multilabel:
        data.notes[:0] = separator_notes([label for _, label, _, _ in raw], data.sources)
    if check:
        check_classes(data, allow_single=allow_single)
    return data


def check_classes(data: LabelledData, *, allow_single: bool = False) -> None:
    """Require at least two classes, each with at least two examples, so that the data can be split.

    `allow_single`: accept classes with one example, as in a subset of a larger dataset.
    """
    counts = Counter(itertools.chain.from_iterable(data.labels))
    files = list(dict.fromkeys(source for source, _ in data.sources)) or ["the labelled data"]
    first = files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    if not counts:
        raise UserError(f"{first}: no example has a label. Give at least two classes.")
    if len(counts) == 1 and not (data.multilabel and () in data.labels):
        name = next(iter(counts))
        count = f"all {len(data):,} examples have the same label" if len(data) > 1 else "the only example has the label"
        raise UserError(f"{first}: {count}, {name!r}. Give at least two classes.")
    for labels, (source, line) in zip(data.labels, data.sources, strict=True):
        for name in labels:
            if counts[name] == 1 and not allow_single:
                raise UserError(
                    f"{location(source, line)}: the only example of the class {name!r}, so it cannot be in both the "
                    "training and the test set. Add examples of the class, or remove it."
                )


def sort_names(names: set[str]) -> list[str]:
    """Sort class names: numerically if all are numbers, else alphabetically."""
    try:
        values = {name: float(name) for name in names}
    except ValueError:
        return sorted(names)
    if not all(map(math.isfinite, values.values())):
        return sorted(names)
    return sorted(names, key=lambda name: (values[name], name))


def label_name(value: object, at: str) -> str:
    """Convert a label to a string; a missing one (null, NaN, only white space) becomes the empty string."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        name = str(value).strip()
        check_surrogates(name, at)
        return name
    raise UserError(f"{at}: a label is of type {type(value).__name__}. Give a string, a number, or a list of these.")


def _read_file(file: LabelledFile, options: ReadOptions, skipped: Counter[str]) -> Iterator[Raw]:
    """Read the examples of a file; an empty label is an error, or skipped and counted, as the options say."""
    source = file.source
    if isinstance(file.labels, str):
        options = dataclasses.replace(options, documents=options.documents or "file")
    for line, text, value in kept_rows(_rows(file, options), source, options, skipped):
        at = location(source.name, line, source.format)
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


def _rows(labelled_file: LabelledFile, options: ReadOptions) -> Iterator[Row]:
    source, labels = labelled_file
    if isinstance(labels, Path):
        yield from _paired_rows(source, labels, options)
        return
    with InputFile(source.path, source.name) as file:
        for line, text, label in read_rows(file, source.format, options, labelled=labels is None):
            yield line, text, label if labels is None else labels


def _paired_rows(source: Source, labels: Path, options: ReadOptions) -> Iterator[Row]:
    """Pair the lines of a text file with those of its label file; trailing blank lines are ignored."""
    by_line = dataclasses.replace(options, documents="line")
    with InputFile(source.path, source.name) as file:
        texts = _strip_blank_end([text for _, text, _ in read_rows(file, "spm", by_line)])
    with InputFile(labels, str(labels)) as file:
        values = _strip_blank_end([value for _, value, _ in read_rows(file, "txt", by_line)])
    if len(texts) != len(values):
        longer = source.name if len(texts) > len(values) else str(labels)
        raise UserError(
            f"{source.name} has {len(texts)} texts, but {labels} has {len(values)} labels: "
            f"{location(longer, min(len(texts), len(values)) + 1)} has no counterpart. Line counts must agree."
        )
    for line, (text, value) in enumerate(zip(texts, values, strict=True), 1):
        yield line, text, value


def _label_set(label: str | tuple[str, ...], at: str) -> tuple[str, ...]:
    names = label if isinstance(label, tuple) else tuple(each.strip() for each in label.split("|"))
    if "" in names:
        raise UserError(f"{at}: one of the labels is empty. Name it, or remove it.")
    return tuple(dict.fromkeys(names))


def _strip_blank_end(lines: list[str | None]) -> list[str | None]:
    while lines and lines[-1] is None:
        lines.pop()
    return lines
