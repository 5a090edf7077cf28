"""A data split (train, test, …) that `rehead data check` reads: files or built-in datasets, labelled or not.

A `DataSplit` keeps what a report needs of each document, not its text: location, beginning, labels, length. The texts
are streamed once, by `stream_texts`, to the duplicate search.

What a path may be:
    a file, folder or glob     labelled if it is a labelled dataset (`rehead.text.labelled`): a table with a label
                               column, a folder with a subfolder per class, X.review.spm with X.label; else unlabelled
    imdb, rotten-tomatoes      a built-in dataset, labelled; `imdb:train`, `imdb:valid`, `imdb:test`, `imdb:unlabelled`
                               are the splits that `rehead data export` writes. A file of that name takes precedence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from rehead.errors import UserError
from rehead.progress import progress
from rehead.text.datasets import NAMES, load_dataset, read_reviews, to_labelled_data
from rehead.text.documents import Document, Example, LabelledData, ReadOptions
from rehead.text.labelled import check_classes, read_examples
from rehead.text.labelled_files import detect_labels
from rehead.text.readers import Texts
from rehead.text.sources import Source, spool

BUILT_IN_SPLITS = ("train", "valid", "test", "unlabelled")
BEGINNING = 200  # characters of a text that are kept for the report


@dataclass
class DataSplit:
    """A data split: parallel lists with one entry per document."""

    paths: list[str]
    "As the user named them."
    for_training: bool = True
    "Whether a classifier is trained on it, so that it should have at least two classes; a test split need not."
    places: list[tuple[str, int]] = field(default_factory=list)
    "File and line."
    beginnings: list[str] = field(default_factory=list)
    labels: list[tuple[str, ...] | None] = field(default_factory=list)
    "None for an unlabelled document."
    words: list[int] = field(default_factory=list)
    "Number of words, separated by white space."
    characters: list[int] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    "Number of skipped items by reason, such as empty texts."
    notes: list[str] = field(default_factory=list)
    "Notes for the user on how it was read, one sentence each."
    built_in: list[str] = field(default_factory=list)
    labelled: list[str | Source] = field(default_factory=list)
    plain: list[str | Source] = field(default_factory=list)
    "The paths by how they are read: see `classify_paths`."

    def __len__(self) -> int:
        return len(self.places)


def classify_paths(split: DataSplit, options: ReadOptions, *, unlabelled: bool = False) -> set[str]:
    """Decide for each path of a split whether it is built in, labelled or unlabelled; return the formats of the files.

    With `unlabelled`, all files are read as unlabelled text.
    """
    formats: set[str] = set()
    for given in split.paths:
        if given.partition(":")[0] in NAMES and not Path(given).exists():
            split.built_in.append(given)
            continue
        spooled = spool(given, options)
        detected = detect_labels(spooled, options)
        formats |= detected.formats
        (split.labelled if detected.labelled and not unlabelled else split.plain).append(spooled)
        if detected.reason and not unlabelled:
            split.notes.append(detected.reason)
    return formats


def stream_texts(split: DataSplit, options: ReadOptions, *, quiet: bool = False) -> Iterator[str]:
    """Read the documents of a split after `classify_paths`: record them in it, and yield their texts.

    All labelled files are read in one call, and so are all others, so that files given twice are read once.
    """
    documents: list[Iterator[Document | Example]] = [_built_in(given) for given in split.built_in]
    if split.labelled:
        documents.append(_labelled(split, options))
    if split.plain:
        documents.append(_stream(split, options, quiet))
    for document in chain.from_iterable(documents):
        split.places.append((document.source, document.line))
        split.beginnings.append(" ".join(document.text[:BEGINNING].split()))
        split.labels.append(document.labels if isinstance(document, Example) else None)
        split.words.append(len(document.text.split()))
        split.characters.append(len(document.text))
        yield document.text


def _labelled(split: DataSplit, options: ReadOptions) -> Iterator[Document | Example]:
    data = read_examples(split.labelled, options, check=False)
    split.skipped.update(data.skipped)
    split.notes += data.notes
    if split.for_training:
        try:
            check_classes(data)
        except UserError as error:
            split.notes.append(str(error))
    yield from data


def _stream(split: DataSplit, options: ReadOptions, quiet: bool) -> Iterator[Document | Example]:
    texts = Texts(split.plain, options, check=False)
    names = ", ".join(each if isinstance(each, str) else each.name for each in split.plain)
    with progress(f"reading {names}", texts.total_bytes, unit="B", quiet=quiet) as bar:
        for number, document in enumerate(texts):
            if number % 256 == 0:
                bar.update(texts.bytes_read)
            yield document
        bar.update(texts.bytes_read)
    split.skipped.update(texts.skipped)


def _built_in(given: str) -> Iterator[Document | Example]:
    name, _, split = given.partition(":")
    if not split:
        return iter(to_labelled_data(name, read_reviews(name)[0]))
    if split not in BUILT_IN_SPLITS:
        raise UserError(f"{name}:{split}: no such split. Available: {', '.join(BUILT_IN_SPLITS)}.")
    chosen: LabelledData | list[str] = getattr(load_dataset(name), split)
    if isinstance(chosen, LabelledData):
        return iter(chosen)
    return (Document(text, f"{name}:{split}", line) for line, text in enumerate(chosen, 1))
