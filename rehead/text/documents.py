r"""Documents, labelled examples, and the options for reading files.

An unlabelled file gives `Document`s, a labelled one `Example`s; both keep the file and line they came from, for error
messages. `Texts` (in `rehead.text.readers`) streams documents; `read_examples` (in `rehead.text.labelled`) returns
`LabelledData`: labelled datasets are small, so they are lists in memory.

Texts are not stripped, case-folded or normalised, except for line ends in a plain-text file (`\r\n` and `\r` become
`\n`) and the byte-order mark, which is dropped. Labels are strings, without surrounding white space.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from rehead.errors import UserError, short_repr
from rehead.options import flag

DocumentUnit = Literal["line", "block", "file"]
Format = Literal["txt", "csv", "tsv", "jsonl", "parquet", "spm"]
TABLES = ("csv", "tsv", "jsonl", "parquet")

# By extension; a compressed file has a second one.
FORMATS: dict[str, Format] = {
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
COMPRESSED = (".gz", ".zst", ".zstd")


class Document(NamedTuple):
    """An unlabelled document."""

    text: str
    source: str
    "The file as the user named it; `-` is standard input."
    line: int
    "Line where the document starts, from 1; the row, in a parquet file."


class Example(NamedTuple):
    """A labelled document."""

    text: str
    labels: tuple[str, ...]
    "Exactly one, unless the data is multilabel."
    source: str
    line: int


@dataclass
class ReadOptions:
    """Options for reading files."""

    GROUP = "reads"

    documents: DocumentUnit | None = None
    """What a document is in a plain-text file: a line, a block between blank lines, or the whole file (default: line;
    in a folder with one subfolder per class, file)."""

    text_column: str | None = flag(None, metavar="NAME")
    "Name of the text column of csv, tsv, jsonl and parquet files (default: text, review, sentence, content, …)."

    label_column: str | None = flag(None, metavar="NAME")
    "Name of the label column (default: label, class, category, sentiment, target, …)."

    delimiter: str | None = flag(None, metavar="CHARACTER")
    "Column separator of csv and tsv files: one character, such as ';', or tab (default: comma; tab for .tsv)."

    no_quotes: bool = False
    "Treat quotes in csv and tsv files as ordinary characters, so that every line is a row."

    single_label: bool = False
    "Every example has exactly one label: | is part of its name, and a list of labels is an error."

    skip_empty: bool = False
    "Skip empty texts and examples without a label, and report how many, instead of stopping at the first."

    max_document_mb: float = flag(16, metavar="MB")
    "Maximum size of a document, in megabytes of UTF-8; a larger one is an error."

    input_format: Format | None = None
    """Format of the input files: txt, csv, tsv, jsonl, parquet, or spm for SentencePiece pieces (default: by file
    extension; txt for standard input)."""

    @property
    def document_limit(self) -> int:
        """Maximum size of a document, in bytes."""
        if not 0 < self.max_document_mb < 1e6:
            raise UserError(f"--max-document-mb {self.max_document_mb:g}: must be above 0 and below a million.")
        return max(1, int(self.max_document_mb * 1e6))

    def delimiter_in(self, kind: str) -> str:
        """Column separator of a csv or tsv file."""
        if self.delimiter is None:
            return "\t" if kind == "tsv" else ","
        character = "\t" if self.delimiter in ("tab", "\\t") else self.delimiter
        if len(character) != 1 or character in '"\r\n\0':
            raise UserError(f"--delimiter {self.delimiter!r}: must be one character (not a quote or line end), or tab.")
        return character


def check_values(options: ReadOptions) -> None:
    """Validate types and choices of options given in Python; on the command line, argparse has done so."""
    if not isinstance(options, ReadOptions):
        raise UserError(f"options is {describe_value(options)}. Expected a ReadOptions.")
    for name, allowed in (("documents", get_args(DocumentUnit)), ("input_format", get_args(Format))):
        if (value := getattr(options, name)) not in (None, *allowed):
            raise UserError(f"{name} is {describe_value(value)}. Expected {', '.join(map(repr, allowed))}, or None.")
    kinds: dict[str, tuple[str, type | tuple[type, ...]]] = {
        **dict.fromkeys(("text_column", "label_column", "delimiter"), ("a str, or None", (str, type(None)))),
        **dict.fromkeys(("no_quotes", "single_label", "skip_empty"), ("True or False", bool)),
        "max_document_mb": ("a number", (int, float)),
    }
    for name, (wanted, kind) in kinds.items():
        if not isinstance(value := getattr(options, name), kind):
            raise UserError(f"{name} is {describe_value(value)}. Expected {wanted}.")
    options.delimiter_in("csv")


def describe_value(value: object) -> str:
    """Describe an unexpected value, with its type, for an error message."""
    return f"{short_repr(value)} (of type {type(value).__name__})"


@dataclass
class LabelledData:
    """A labelled dataset: `texts[i]` has the labels `labels[i]` and came from `sources[i]`."""

    texts: list[str]
    labels: list[tuple[str, ...]]
    names: list[str]
    "Class names: in numerical order if all are numbers, else alphabetical."
    multilabel: bool
    sources: list[tuple[str, int]]
    "(file, line) of every example, for messages: see `location`."
    skipped: Counter[str] = field(default_factory=Counter)
    "Number of skipped items by reason: see `describe_skipped`."
    notes: list[str] = field(default_factory=list)
    "What the user should know about the labels, one sentence each: see `rehead.text.label_spelling`."

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Example]:
        for text, labels, (source, line) in zip(self.texts, self.labels, self.sources, strict=True):
            yield Example(text, labels, source, line)

    def fingerprint(self) -> str:
        """SHA-256 of texts and labels, in order, without their sources."""
        digest = hashlib.sha256(repr((self.multilabel, self.names)).encode())
        for text, labels in zip(self.texts, self.labels, strict=True):
            digest.update(repr((text, labels)).encode())
        return digest.hexdigest()


def format_of(name: str) -> Format | None:
    """Infer a file's format from its extension, ignoring that of the compression; None if unknown."""
    stem = Path(name)
    if stem.suffix.lower() in COMPRESSED:
        stem = stem.with_suffix("")
    return FORMATS.get(stem.suffix.lower())


def location(source: str, line: int, kind: str | None = None) -> str:
    """Format a location for messages: `reviews.csv line 214`. `kind` is the format, if not that of the extension."""
    unit = "row" if (kind or format_of(source)) == "parquet" else "line"
    return f"{source} {unit} {line}"


def describe_skipped(skipped: Counter[str]) -> str:
    """Summarise what was skipped: `empty text: 3, hidden file: 1`; an empty string if nothing was."""
    return ", ".join(f"{reason}: {count}" for reason, count in skipped.items() if count)
