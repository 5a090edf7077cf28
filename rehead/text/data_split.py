"""What the user names as one part of the data (train, test, …): files or built-in sets, labelled or not.

A part keeps of every document what a report needs, not its text: where it stands, how it begins, its labels, how long
it is. The texts go past once, through `stream_texts`, on their way to the search for duplicates.

What may be named:
    a file, folder or glob     labelled if it is a labelled set (`rehead.text.labelled`): a table with a label column,
                               a folder with a subfolder per class, X.review.spm with X.label; else unlabelled
    imdb, rotten-tomatoes      a built-in set, labelled; `imdb:train`, `imdb:valid`, `imdb:test`, `imdb:unlabelled` are
                               the parts that `rehead data export` writes. A file of that name goes first.
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
BEGINNING = 200  # characters kept of a text, to show it


@dataclass
class DataSplit:
    """One part of the data, document by document."""

    paths: list[str]
    "As the user named them."
    for_training: bool = True
    "Whether a classifier is to learn from it, so that it should have classes to tell apart; a test part need not."
    places: list[tuple[str, int]] = field(default_factory=list)
    "File and line."
    beginnings: list[str] = field(default_factory=list)
    labels: list[tuple[str, ...] | None] = field(default_factory=list)
    "None for a document without labels."
    words: list[int] = field(default_factory=list)
    "Separated by white space."
    characters: list[int] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    "What was left out, and how often: empty texts, for one."
    notes: list[str] = field(default_factory=list)
    "What the user should know about how it was read, a sentence each."
    built_in: list[str] = field(default_factory=list)
    labelled: list[str | Source] = field(default_factory=list)
    plain: list[str | Source] = field(default_factory=list)
    "How the paths are read: see `classify_paths`."

    def __len__(self) -> int:
        return len(self.places)


def classify_paths(part: DataSplit, options: ReadOptions, *, unlabelled: bool = False) -> set[str]:
    """Settle how each path of a part is read, before any is; give the formats of their files.

    With `unlabelled`, files have no labels, even where they look as if they had.
    """
    formats: set[str] = set()
    for given in part.paths:
        if given.partition(":")[0] in NAMES and not Path(given).exists():
            part.built_in.append(given)
            continue
        held = spool(given, options)
        seen = detect_labels(held, options)
        formats |= seen.formats
        (part.labelled if seen.labelled and not unlabelled else part.plain).append(held)
        if seen.reason and not unlabelled:
            part.notes.append(seen.reason)
    return formats


def stream_texts(part: DataSplit, options: ReadOptions, *, quiet: bool = False) -> Iterator[str]:
    """Read the documents into the part, which has been looked at, and pass their texts on.

    Labelled files are read at once, and so are the others, so that no file is read twice.
    """
    documents: list[Iterator[Document | Example]] = [_built_in(given) for given in part.built_in]
    if part.labelled:
        documents.append(_labelled(part, options))
    if part.plain:
        documents.append(_stream(part, options, quiet))
    for document in chain.from_iterable(documents):
        part.places.append((document.source, document.line))
        part.beginnings.append(" ".join(document.text[:BEGINNING].split()))
        part.labels.append(document.labels if isinstance(document, Example) else None)
        part.words.append(len(document.text.split()))
        part.characters.append(len(document.text))
        yield document.text


def _labelled(part: DataSplit, options: ReadOptions) -> Iterator[Document | Example]:
    data = read_examples(part.labelled, options, check=False)
    part.skipped.update(data.skipped)
    if part.for_training:
        try:
            check_classes(data)
        except UserError as error:
            part.notes.append(str(error))
    yield from data


def _stream(part: DataSplit, options: ReadOptions, quiet: bool) -> Iterator[Document | Example]:
    texts = Texts(part.plain, options, check=False)
    names = ", ".join(each if isinstance(each, str) else each.name for each in part.plain)
    with progress(f"reading {names}", texts.total_bytes, unit="B", quiet=quiet) as bar:
        for number, document in enumerate(texts):
            if number % 256 == 0:
                bar.update(texts.bytes_read)
            yield document
        bar.update(texts.bytes_read)
    part.skipped.update(texts.skipped)


def _built_in(given: str) -> Iterator[Document | Example]:
    name, _, part = given.partition(":")
    if not part:
        return iter(to_labelled_data(name, read_reviews(name)[0]))
    if part not in BUILT_IN_SPLITS:
        raise UserError(f"{name}:{part}: no such part. There are: {', '.join(BUILT_IN_SPLITS)}.")
    chosen: LabelledData | list[str] = getattr(load_dataset(name), part)
    if isinstance(chosen, LabelledData):
        return iter(chosen)
    return (Document(text, f"{name}:{part}", line) for line, text in enumerate(chosen, 1))
