r"""Unlabelled text, streamed: whatever files the user has → `Document`s.

    texts = Texts(["reviews/", "more/*.csv.gz"], ReadOptions(skip_empty=True))
    for document in texts: ...

A corpus is never in memory: what is held is a chunk of 64 KB, or one document if that is longer, and no document may be
longer than `--max-document-mb`; reading a 2 GB text file takes 18 MB in all. A `Texts` can be read again and again,
standard input included.

On one core, movie reviews of 1.3 KB come as documents at 590 MB/s from .txt, 220 from .txt.zst, 190 from .parquet and
about 145 from .txt.gz, .csv and .jsonl; French ones of 0.5 KB at 280 MB/s from .txt. Making a document costs about a
microsecond, so that lines of 100 bytes come at 120 MB/s.

A plain text file is cut into documents by `--documents`:

    line    every line; a blank one is an empty document, except at the end of the file
    block   lines up to a blank line, joined by `\n`
    file    all of it, without the line ends at its end

An `.spm` file has a document per line, cut into SentencePiece pieces, which are put together again.
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
    """The documents of some files: re-iterable, streaming, in a stable order. One iteration at a time."""

    def __init__(
        self, paths: Iterable[InputPath] | InputPath, options: ReadOptions | None = None, *, check: bool = True
    ) -> None:
        """Find the files. With `check`, refuse options that apply to none of them (`sources.check_options_apply`)."""
        self.options = ReadOptions() if options is None else options
        check_values(self.options)
        self._left_out: Counter[str] = Counter()
        self.files = find_sources(paths, self.options, self._left_out)
        "What will be read, in this order."
        if check:
            check_options_apply({source.format for source in self.files}, self.options)
        self.skipped = Counter(self._left_out)
        "Reason → how often, for what the last iteration left out: see `documents.describe_skipped`."
        self.total_bytes = sum(source.size for source in self.files)
        "Bytes on disk, compressed files as they are."
        self._finished_bytes = 0
        self._reading: InputFile | None = None

    @property
    def bytes_read(self) -> int:
        """How many of `total_bytes` the current iteration has used."""
        return self._finished_bytes + (self._reading.position if self._reading else 0)

    def __iter__(self) -> Iterator[Document]:
        anything = False
        for source, rows in self.each_file():
            for line, text, _ in kept_rows(rows, source, self.options, self.skipped):
                anything = True
                yield Document(text, source.name, line)
        if not anything:
            raise UserError(f"{self.files[0].name}: no text is left: all that was found is empty.")

    def each_file(self, *, all_columns: bool = False) -> Iterator[tuple[Source, Iterator[Row]]]:
        """Give every file with its rows, empty ones and blank lines among them; `all_columns` as in `read_rows`."""
        self.skipped = Counter(self._left_out)
        self._finished_bytes = 0
        for source in self.files:
            with InputFile(source.path, source.name) as self._reading:
                yield source, read_rows(self._reading, source.format, self.options, all_columns=all_columns)
            self._reading = None
            self._finished_bytes += source.size

    def fingerprint(self) -> str:
        """Hash of the files' contents and of the options that change what is read out of them."""
        digest = hashlib.sha256()
        for source in self.files:
            digest.update(repr((source.format, source.size, *_what_counts(source.format, self.options))).encode())
            with InputFile(source.path, source.name) as file:
                for chunk in iter(lambda: file.raw.read(CHUNK), b""):
                    digest.update(chunk)
        return digest.hexdigest()


def _what_counts(kind: str, options: ReadOptions) -> tuple[object, ...]:
    """List the options that change what is read out of a file of this format."""
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
    """Read a file of any format, as rows of (line, text, label); without `labelled`, the label is None.

    With `all_columns`, all columns of the row stand in the place of the label; plain text has one, called text.
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
    """Read plain text, cut into documents as the options say."""
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
    """Pass on the rows that have a text. An empty one is an error, or counted, as the options say.

    Blank lines at the end of a file are no rows at all. A file without any row counts as empty too.
    """
    blank_at = blanks = rows_seen = 0
    for line, text, label in rows:
        rows_seen += 1
        if text is None:
            blank_at = blank_at or line
            blanks += 1
            continue
        if blanks:
            _leave_out(source, blank_at, blanks, options, skipped)
            blank_at = blanks = 0
        if not text or text.isspace():
            _leave_out(source, line, 1, options, skipped)
        else:
            yield line, text, label
    if rows_seen == blanks:
        if not options.skip_empty:
            raise UserError(
                f"{source.name}: there is no text in it. Leave it out, or pass over such files with --skip-empty."
            )
        skipped["empty file"] += 1


def join_pieces(line: str) -> str:
    """Put SentencePiece pieces, separated by spaces, together: `▁the ▁cat s` → `the cats`."""
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
        "Cut it into documents (see --documents), or allow longer ones with --max-document-mb."
    )


def _leave_out(source: Source, line: int, count: int, options: ReadOptions, skipped: Counter[str]) -> None:
    if not options.skip_empty:
        advice = "Drop such texts with --skip-empty"
        if source.format == "txt" and options.documents in (None, "line"):
            advice += "; if blank lines separate documents, say --documents block"
        raise UserError(f"{location(source.name, line, source.format)}: empty text. {advice}.")
    skipped["empty text"] += count
