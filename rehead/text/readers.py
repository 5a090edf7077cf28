r"""Stream unlabelled documents from files of any supported format.

    texts = Texts(["reviews/", "more/*.csv.gz"], ReadOptions(skip_empty=True))
    for document in texts: ...

Memory is bounded: one chunk of 64 KB, or one document if that is longer, and no document may be longer than
`--max-document-mb`; reading a 2 GB text file takes 18 MB in total. A `Texts` can be iterated repeatedly, even if it
reads standard input.

Throughput on one core: movie reviews of 1.3 KB are read at 590 MB/s from .txt, 220 from .txt.zst, 190 from .parquet and
about 145 from .txt.gz, .csv and .jsonl; French ones of 0.5 KB at 280 MB/s from .txt. Creating a document takes about
a microsecond, so lines of 100 bytes are read at 120 MB/s.

`--documents` says what a document is in a plain-text file:

    line    each line; a blank one is an empty document, except at the end of the file
    block   consecutive lines up to a blank line, joined by `\n`
    file    the whole file, without trailing line ends

An `.spm` file has one document per line, as SentencePiece pieces, which are joined to text.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rehead.errors import UserError
from rehead.text.decoding import CHUNK, InputFile, line_blocks, utf8_size
from rehead.text.documents import TABLES, Document, ReadOptions, check_values, location
from rehead.text.sources import InputPath, Source, check_options_apply, find_sources
from rehead.text.tables import Row, csv_rows, json_rows, parquet_rows


class Texts:
    """The documents of some files: a re-iterable stream in a stable order. Only one iteration at a time."""

    def __init__(
        self, paths: Iterable[InputPath] | InputPath, options: ReadOptions | None = None, *, check: bool = True
    ) -> None:
        """Find the files. With `check`, refuse options that apply to none of them (`sources.check_options_apply`)."""
        self.options = ReadOptions() if options is None else options
        check_values(self.options)
        self._skipped_files: Counter[str] = Counter()
        self.files = find_sources(paths, self.options, self._skipped_files)
        "The files, in reading order."
        if check:
            check_options_apply({source.format for source in self.files}, self.options)
        self.skipped = Counter(self._skipped_files)
        "Number of items that the last iteration skipped, by reason: see `documents.describe_skipped`."
        self.total_bytes = sum(source.size for source in self.files)
        "Bytes on disk (compressed size)."
        self._finished_bytes = 0
        self._open_file: InputFile | None = None

    @property
    def bytes_read(self) -> int:
        """Number of bytes, out of `total_bytes`, that the current iteration has consumed."""
        return self._finished_bytes + (self._open_file.position if self._open_file else 0)

    def __iter__(self) -> Iterator[Document]:
        anything = False
        for source, rows in self.each_file():
            for line, text, _ in kept_rows(rows, source, self.options, self.skipped):
                anything = True
                yield Document(text, source.name, line)
        if not anything:
            raise UserError(f"{self.files[0].name}: all texts are empty.")

    def each_file(self, *, all_columns: bool = False) -> Iterator[tuple[Source, Iterator[Row]]]:
        """Yield every file with its rows, including empty ones and blank lines; `all_columns` as in `read_rows`."""
        self.skipped = Counter(self._skipped_files)
        self._finished_bytes = 0
        for source in self.files:
            with InputFile(source.path, source.name) as self._open_file:
                yield source, read_rows(self._open_file, source.format, self.options, all_columns=all_columns)
            self._open_file = None
            self._finished_bytes += source.size

    def fingerprint(self) -> str:
        """SHA-256 of the files' contents and of the options that affect how they are read."""
        digest = hashlib.sha256()
        for source in self.files:
            digest.update(repr((source.format, source.size, *_relevant_options(source.format, self.options))).encode())
            with InputFile(source.path, source.name) as file:
                for chunk in iter(lambda: file.raw.read(CHUNK), b""):
                    digest.update(chunk)
        return digest.hexdigest()


def _relevant_options(kind: str, options: ReadOptions) -> tuple[object, ...]:
    """List the options that affect how a file of this format is read."""
    if kind == "txt":
        return options.skip_empty, options.documents or "line"
    if kind in ("csv", "tsv"):
        return options.skip_empty, options.text_column, options.delimiter_in(kind), options.no_quotes
    if kind in TABLES:
        return options.skip_empty, options.text_column
    return (options.skip_empty,)


def read_rows(
    file: InputFile, kind: str, options: ReadOptions, *, labelled: bool = False, all_columns: bool = False
) -> Iterator[Row]:
    """Read a file of any format as rows of (line, text, label); without `labelled`, the label is None.

    With `all_columns`, a dict of all columns takes the place of the label; plain text has one column, `text`.
    """
    if kind in ("csv", "tsv"):
        return csv_rows(file, options, kind, labelled=labelled, all_columns=all_columns)
    if kind == "jsonl":
        return json_rows(file, options, labelled=labelled, all_columns=all_columns)
    if kind == "parquet":
        return parquet_rows(file, options, labelled=labelled, all_columns=all_columns)
    rows = _text_rows(file, kind, options)
    return ((line, text, {"text": text}) for line, text, _ in rows) if all_columns else rows


def _text_rows(file: InputFile, kind: str, options: ReadOptions) -> Iterator[Row]:
    """Read plain text, split into documents as the options say."""
    if kind == "spm":
        return ((line, text and join_pieces(text), None) for line, text, _ in _line_rows(file, options))
    if options.documents == "block":
        return _block_rows(file, options)
    if options.documents == "file":
        return _file_rows(file, options)
    return _line_rows(file, options)


def kept_rows(
    rows: Iterator[Row], source: Source, options: ReadOptions, skipped: Counter[str]
) -> Iterator[tuple[int, str, Any]]:
    """Yield the rows with non-empty text. An empty text is an error, or skipped and counted, as the options say.

    Trailing blank lines are ignored. A file without any row counts as empty.
    """
    blank_at = blanks = rows_seen = 0
    for line, text, label in rows:
        rows_seen += 1
        if text is None:
            blank_at = blank_at or line
            blanks += 1
            continue
        if blanks:
            _skip_empty(source, blank_at, blanks, options, skipped)
            blank_at = blanks = 0
        if not text or text.isspace():
            _skip_empty(source, line, 1, options, skipped)
        else:
            yield line, text, label
    if rows_seen == blanks:
        if not options.skip_empty:
            raise UserError(f"{source.name}: the file is empty. Leave it out, or skip empty files with --skip-empty.")
        skipped["empty file"] += 1


def join_pieces(line: str) -> str:
    """Join SentencePiece pieces that are separated by spaces: `▁the ▁cat s` → `the cats`."""
    return line.replace(" ", "").replace("▁", " ").strip()


def _line_rows(file: InputFile, options: ReadOptions) -> Iterator[Row]:
    for first, lines in line_blocks(file, options.document_limit):
        for number, line in enumerate(lines, first):
            yield number, None if not line or line.isspace() else line, None


def _block_rows(file: InputFile, options: ReadOptions) -> Iterator[Row]:
    block: list[str] = []
    begin = size = 0
    for number, line, _ in _line_rows(file, options):
        if line is None:
            if block:
                yield begin, "\n".join(block), None
            block, size = [], 0
            continue
        begin = begin if block else number
        block.append(line)
        size += utf8_size(line) + 1
        if size > options.document_limit + 1:
            raise _too_long(file.name, begin, "block", options)
    if block:
        yield begin, "\n".join(block), None


def _file_rows(file: InputFile, options: ReadOptions) -> Iterator[Row]:
    lines_read: list[str] = []
    size = 0
    for _, lines in line_blocks(file, options.document_limit):
        lines_read += lines
        size += sum(map(utf8_size, lines)) + len(lines)
        if size > options.document_limit + 1:
            raise _too_long(file.name, 1, "file", options)
    yield 1, "\n".join(lines_read).rstrip("\n"), None


def _too_long(name: str, line: int, unit: str, options: ReadOptions) -> UserError:
    return UserError(
        f"{location(name, line)}: the {unit} is longer than {options.max_document_mb:g} MB. "
        "Split it into documents (see --documents), or raise the limit with --max-document-mb."
    )


def _skip_empty(source: Source, line: int, count: int, options: ReadOptions, skipped: Counter[str]) -> None:
    if not options.skip_empty:
        advice = "Skip empty texts with --skip-empty"
        if source.format == "txt" and options.documents in (None, "line"):
            advice += "; if blank lines separate documents, give --documents block"
        raise UserError(f"{location(source.name, line, source.format)}: empty text. {advice}.")
    skipped["empty text"] += count
