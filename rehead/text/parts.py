"""What the user names as one part of the data (train, test, …): files or built-in sets, labelled or not.

A part keeps of every document what a report needs, not its text: where it stands, how it begins, its labels, how long
it is. The texts go past once, through `documents_of`, on their way to the search for duplicates.

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
from pathlib import Path

from rehead.errors import UserError
from rehead.progress import progress
from rehead.text.datasets import NAMES, labelled, load_dataset, read_reviews
from rehead.text.documents import Document, Example, LabelledData, ReadOptions
from rehead.text.labelled import check_classes, is_labelled, read_examples
from rehead.text.readers import Texts

BUILT_IN_PARTS = ("train", "valid", "test", "unlabelled")
BEGINNING = 200  # characters kept of a text, to show it


@dataclass
class Part:
    """One part of the data, document by document."""

    paths: list[str]
    "As the user named them."
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

    def __len__(self) -> int:
        return len(self.places)


def documents_of(part: Part, options: ReadOptions, *, unlabelled: bool = False, quiet: bool = False) -> Iterator[str]:
    """Read the documents into the part, and pass their texts on; with `unlabelled`, files never have labels."""
    for document in _read(part, options, unlabelled, quiet):
        part.places.append((document.source, document.line))
        part.beginnings.append(" ".join(document.text[:BEGINNING].split()))
        part.labels.append(document.labels if isinstance(document, Example) else None)
        part.words.append(len(document.text.split()))
        part.characters.append(len(document.text))
        yield document.text


def _read(part: Part, options: ReadOptions, unlabelled: bool, quiet: bool) -> Iterator[Document | Example]:
    """Read built-in sets, then labelled files, then the others; each kind at once, so that no file is read twice."""
    with_labels: list[str] = []
    without: list[str] = []
    for given in part.paths:
        name, _, piece = given.partition(":")
        if name in NAMES and not Path(given).exists():
            yield from _built_in(name, piece)
        elif not unlabelled and is_labelled(given, options):
            with_labels.append(given)
        else:
            without.append(given)
    if with_labels:
        yield from _labelled(with_labels, part, options)
    if without:
        yield from _stream(without, part, options, quiet)


def _labelled(paths: list[str], part: Part, options: ReadOptions) -> Iterator[Example]:
    data = read_examples(paths, options, check=False)
    part.skipped.update(data.skipped)
    try:
        check_classes(data)
    except UserError as error:
        part.notes.append(str(error))
    yield from data


def _stream(paths: list[str], part: Part, options: ReadOptions, quiet: bool) -> Iterator[Document]:
    texts = Texts(paths, options)
    with progress(f"reading {', '.join(paths)}", texts.total_bytes, unit="B", quiet=quiet) as bar:
        for number, document in enumerate(texts):
            if number % 256 == 0:
                bar.reach(texts.bytes_read)
            yield document
        bar.reach(texts.bytes_read)
    part.skipped.update(texts.skipped)


def _built_in(name: str, part: str) -> Iterator[Document] | Iterator[Example]:
    if not part:
        return iter(labelled(name, read_reviews(name)[0]))
    if part not in BUILT_IN_PARTS:
        raise UserError(f"{name}:{part}: no such part. There are: {', '.join(BUILT_IN_PARTS)}.")
    chosen: LabelledData | list[str] = getattr(load_dataset(name), part)
    if isinstance(chosen, LabelledData):
        return iter(chosen)
    return (Document(text, f"{name}:{part}", line) for line, text in enumerate(chosen, 1))
