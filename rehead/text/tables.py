r"""Stream the rows of csv, tsv, jsonl and parquet files, and find the text and label columns.

A table is never in memory as a whole: csv and jsonl are read by line, parquet in batches of about 4 MB of a row group.

    csv, tsv   the first row is the header; quoted fields may contain line breaks, which are kept, and doubled quotes.
               Parsing is strict: an unclosed quote, or a row with more or fewer fields than the header, is an error
               with its line (`--delimiter` and `--no-quotes` are for other dialects)
    jsonl      one object per line; the columns are the keys of the first hundred objects
    parquet    the text column contains strings

A column is the one that the user named, or else the first of the usual names that exists, ignoring case.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from rehead.errors import UserError
from rehead.text.decoding import InputFile, line_blocks, line_ends, utf8_size
from rehead.text.documents import ReadOptions, location
from rehead.text.parquet_pages import read_pages

# In order of priority: a file with both "text" and "title" has its text in "text".
# fmt: off
TEXT_NAMES = (
    "text", "review", "sentence", "content", "body", "comment", "message", "document", "tweet", "post", "article",
    "abstract", "description", "utterance", "question", "review_body", "review_text", "reviewtext", "texte", "title",
)
LABEL_NAMES = (
    "label", "labels", "class", "classes", "category", "categories", "sentiment", "target", "rating", "stars", "score",
    "tag", "tags", "topic", "topics", "intent", "emotion", "polarity", "y", "label_name", "label_text",
)
# fmt: on

# Approximate bytes of text in a batch of a parquet file.
PARQUET_BATCH = 4_000_000

# Delimiters to suggest when the given one does not fit.
SEPARATORS = ";\t|,"

# Number of JSON objects in which a column is searched.
SAMPLE = 100


class UnknownColumnError(UserError):
    """The text or label column was not found."""

    def __init__(self, message: str, role: str, columns: Sequence[str], wanted: str | None) -> None:
        super().__init__(message)
        self.role = role
        "text or label"
        self.columns = columns
        self.wanted = wanted
        "The name that the user gave, if any."


# (line, text, label); the text of a blank line is None. A plain tuple for speed, since there may be millions.
# With `all_columns`, a dict of all columns takes the place of the label.
Row = tuple[int, str | None, Any]


def find_columns(columns: Sequence[str], options: ReadOptions, at: str, *, labelled: bool) -> list[int]:
    """Find the indices of the text column and, if `labelled`, of the label column."""
    text = _find_column("text", columns, options.text_column, TEXT_NAMES, at)
    if not labelled:
        return [text]
    # The text column cannot be the label column too.
    usual = [name for name in LABEL_NAMES if name != _folded(columns[text])]
    label = _find_column("label", columns, options.label_column, usual, at)
    if text == label:
        raise UserError(f"{at}: {columns[text]!r} cannot be both text and label: see --text-column, --label-column.")
    return [text, label]


def csv_rows(
    file: InputFile, options: ReadOptions, kind: str, *, labelled: bool = False, all_columns: bool = False
) -> Iterator[Row]:
    """Read a csv or tsv file."""
    delimiter = options.delimiter_in(kind)
    header: list[str] = []
    at: list[int] = []
    for line, fields in _csv_records(file, options.document_limit, delimiter, options.no_quotes):
        if not header:
            header = fields
            at = (
                _header_columns(header, options, location(file.name, line, kind), delimiter, labelled) if header else []
            )
            if all_columns:
                _check_names(header, location(file.name, line, kind))
        elif not fields:
            yield line, None, None
        elif len(fields) != len(header):
            advice = (
                f"With --no-quotes, no field can hold a {_delimiter_name(delimiter)}."
                if options.no_quotes
                else f"Put quotes around a field that holds a {_delimiter_name(delimiter)} or a line break."
            )
            raise UserError(
                f"{location(file.name, line, kind)}: {_count(len(fields), 'field')}, but the header names "
                f"{len(header)} ({list_columns(header)}). {advice}"
            )
        elif all_columns:
            yield line, fields[at[0]], dict(zip(header, fields, strict=True))
        else:
            yield line, fields[at[0]], fields[at[1]] if labelled else None


def json_rows(
    file: InputFile, options: ReadOptions, *, labelled: bool = False, all_columns: bool = False
) -> Iterator[Row]:
    """Read a file with one JSON object per line."""
    records = _json_records(file, options.document_limit)
    first, chosen = _json_columns(records, file.name, options, labelled)
    for number, line, record in itertools.chain(first, records):
        if record is None:
            yield number, None, None
            continue
        at = location(file.name, number, "jsonl")
        if chosen[0] not in record:
            raise UserError(
                f"{at}: no {_clipped(chosen[0])!r} in this object. There are: {list_columns(list(record))}. "
                "Give every object one, or choose with --text-column."
            )
        if labelled and chosen[1] not in record and not options.skip_empty:
            raise UserError(
                f"{at}: no {_clipped(chosen[1])!r} in this object. There are: {list_columns(list(record))}. "
                "Give every object one, or drop those without with --skip-empty."
            )
        text = _text(record[chosen[0]], at)
        if "\\u" in line:
            check_surrogates(text, at)
        yield number, text, record if all_columns else record.get(chosen[1]) if labelled else None


def parquet_rows(
    file: InputFile, options: ReadOptions, *, labelled: bool = False, all_columns: bool = False
) -> Iterator[Row]:
    """Read a parquet file."""
    number = 1
    with _parquet(file, lambda: number) as table:
        columns = list(table.schema_arrow.names)
        chosen = [columns[each] for each in find_columns(columns, options, file.name, labelled=labelled)]
        read = columns if all_columns else chosen
        _check_names([name for name in columns if name in read], file.name)
        total = max(1, table.metadata.num_rows)
        size = sum(table.metadata.row_group(each).total_byte_size for each in range(table.num_row_groups))
        file.fraction = 0.0
        pages = read_pages(file.seekable(), read)
        rows = pages.rows(min(1024, PARQUET_BATCH * total // max(1, size) + 1))
        for batch in table.iter_batches(rows, columns=read):
            texts = batch.column(chosen[0]).to_pylist()
            if all_columns:
                more = batch.to_pylist()
            else:
                more = batch.column(chosen[1]).to_pylist() if labelled else [None] * len(texts)
            for row, (value, label) in enumerate(zip(texts, more, strict=True), number):
                at = location(file.name, row, "parquet")
                if utf8_size(text := _text(value, at)) > options.document_limit:
                    raise UserError(
                        f"{at}: the text is longer than {options.max_document_mb:g} MB. Raise --max-document-mb."
                    )
                yield row, text, label
            number += len(texts)
            file.fraction = min(1.0, (number - 1) / total)


@contextmanager
def _parquet(file: InputFile, row: Callable[[], int] = lambda: 1) -> Iterator[Any]:
    """Open a parquet file; errors name the row that was being read."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise UserError(f"{file.name}: parquet needs the pyarrow package: pip install 'rehead[formats]'.") from error
    try:
        # Without pre_buffer, pages are read on demand instead of a whole row group ahead.
        yield pyarrow.parquet.ParquetFile(file.seekable(), pre_buffer=False, buffer_size=1 << 20)
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError) as error:
        raise UserError(f"{file.name}: not a parquet file, or damaged from row {row()} on ({error}).") from error


def column_names(file: InputFile, kind: str, options: ReadOptions) -> list[str]:
    """List all columns of a file. A jsonl file has to be read to its end for this."""
    if kind in ("csv", "tsv"):
        records = _csv_records(file, options.document_limit, options.delimiter_in(kind), options.no_quotes)
        return next((fields for _, fields in records if fields), [])
    if kind == "jsonl":
        objects = (record for _, _, record in _json_records(file, options.document_limit) if record)
        return list(dict.fromkeys(itertools.chain.from_iterable(objects)))
    if kind == "parquet":
        with _parquet(file) as table:
            return list(table.schema_arrow.names)
    return ["text"]


def list_columns(columns: Sequence[str]) -> str:
    """List columns for a message, at most 20."""
    shown = ", ".join(map(_clipped, columns[:20]))
    return (shown or "none") + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")


def _check_names(columns: Sequence[str], at: str) -> None:
    """Refuse duplicate column names."""
    seen: set[str] = set()
    for name in columns:
        if name in seen:
            raise UserError(f"{at}: two columns are called {_clipped(name)!r}. Rename one in the file.")
        seen.add(name)


def _find_column(role: str, columns: Sequence[str], wanted: str | None, usual: Sequence[str], at: str) -> int:
    if wanted is not None and list(columns).count(wanted) == 1:
        return list(columns).index(wanted)
    folded = list(map(_folded, columns))
    for each in usual if wanted is None else [_folded(wanted)]:
        if folded.count(each) > 1:
            alike = [column for column in columns if _folded(column) == each]
            if len(set(alike)) < len(alike):
                raise UserError(f"{at}: two columns are called {_clipped(each)!r}. Rename one in the file.")
            both = " and ".join(repr(_clipped(column)) for column in alike)
            raise UserError(f"{at}: {both} may both hold the {role}. Choose one of them with --{role}-column.")
        if each in folded:
            return folded.index(each)
    if wanted is not None:
        message = f"no column {wanted!r}. There are: {list_columns(columns)}. Choose one of them with --{role}-column."
    else:
        message = f"cannot tell which column holds the {role}. There are: {list_columns(columns)}. "
        message += f"Choose one of them with --{role}-column."
    raise UnknownColumnError(f"{at}: {message}", role, columns, wanted)


def _folded(column: str) -> str:
    return column.strip().casefold()


def _header_columns(header: list[str], options: ReadOptions, at: str, delimiter: str, labelled: bool) -> list[int]:
    """Find the columns of a csv file; suggest another delimiter if the header looks as if it had one."""
    try:
        return find_columns(header, options, at, labelled=labelled)
    except UnknownColumnError as error:
        other = max((each for each in SEPARATORS if each != delimiter), key=header[0].count)
        if len(header) > 1 or other not in header[0]:
            raise
        raise UserError(
            f"{at}: the header is one column, {_clipped(header[0])!r}, with a {_delimiter_name(other)} in it. "
            f"If that separates the columns, give --delimiter {_delimiter_argument(other)}."
        ) from error


def _csv_records(file: InputFile, limit: int, delimiter: str, no_quotes: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of every record, with the line where it starts."""
    csv.field_size_limit(max(csv.field_size_limit(), limit))
    lines: list[str] = []  # of the current record

    def feed() -> Iterator[str]:
        size = 0
        for _, block in line_blocks(file, limit, keep_ends=True):
            for line in block:
                lines.append(line)
                if len(lines) > 1:  # line_blocks has checked single lines already
                    size = (utf8_size(lines[0]) if len(lines) == 2 else size) + utf8_size(line)
                    if size > limit:
                        raise too_long()
                yield line

    def too_long() -> UserError:
        opened = _open_quote(lines, delimiter)
        if opened is None:
            what, advice = "the row", "Shorten it"
        else:
            what, advice = "the quote that opens here is not closed, or the row", f"Close the quote, {PLAIN_QUOTES}"
        return UserError(
            f"{location(file.name, begin + (opened[0] if opened else 0), 'csv')}: {what} is longer than "
            f"{limit / 1e6:g} MB. {advice}, or raise the limit with --max-document-mb."
        )

    begin = 1
    quoting: Literal[0, 3] = csv.QUOTE_NONE if no_quotes else csv.QUOTE_MINIMAL
    reader = csv.reader(feed(), delimiter=delimiter, quoting=quoting, strict=True)
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            opened = _open_quote(lines, delimiter)
            if opened is None or no_quotes:
                raise UserError(f"{location(file.name, begin, 'csv')}: cannot be read as csv ({error}).") from error
            at = location(file.name, begin + opened[0], "csv")
            if opened[1] and opened[1] in SEPARATORS:
                raise UserError(
                    f"{at}: a quoted field ends with a {_delimiter_name(opened[1])} after it. "
                    f"If that separates the columns, give --delimiter {_delimiter_argument(opened[1])}."
                ) from error
            raise UserError(
                f"{at}: the quote that opens here is not closed properly. "
                f'Close it, and double every quote inside a quoted field (""), {PLAIN_QUOTES}.'
            ) from error
        if fields is None:
            return
        yield begin, fields
        begin += len(lines)
        lines.clear()


PLAIN_QUOTES = "or give --no-quotes if quotes are ordinary characters here"


def _open_quote(lines: list[str], delimiter: str) -> tuple[int, str] | None:
    """Find the improperly closed quote in a record that could not be parsed.

    Returns the index of the line where it opens, and the character after the closing quote, if there is one.
    """
    record = "".join(lines)
    at = 0
    while at < len(record):
        if record[at] != '"':
            at = record.find(delimiter, at) + 1
            if not at:
                return None
            continue
        end = record.find('"', at + 1)
        while end >= 0 and record.startswith('""', end):
            end = record.find('"', end + 2)
        after = record[end + 1 : end + 2] if end >= 0 else ""
        if end < 0 or after not in ("", delimiter, "\r", "\n"):
            return line_ends(record[:at]), after
        at = end + 2
    return None


# (line number, raw line, parsed object); the object of a blank line is None.
Record = tuple[int, str, dict[str, Any] | None]


def _json_records(file: InputFile, limit: int) -> Iterator[Record]:
    for first, lines in line_blocks(file, limit):
        for number, line in enumerate(lines, first):
            blank = not line or line.isspace()
            yield number, line, None if blank else _json_object(line, location(file.name, number, "jsonl"))


def _json_columns(
    records: Iterator[Record], name: str, options: ReadOptions, labelled: bool
) -> tuple[list[Record], list[str]]:
    """Find the keys of the text and, if `labelled`, of the label, in the first objects.

    Also returns the records consumed for this: at most a hundred, and not much more text than the maximum document.
    """
    taken: list[Record] = []
    lines: list[int] = []  # of objects
    keys: dict[str, None] = {}
    size = 0
    unknown: UnknownColumnError | None = None
    for number, line, record in records:
        taken.append((number, line, record))
        size += len(line)
        if record is None:
            continue
        lines.append(number)
        if unknown is None or not record.keys() <= keys.keys():
            keys.update(dict.fromkeys(record))
            columns = list(keys)
            at = location(name, lines[0], "jsonl")
            try:
                return taken, [columns[each] for each in find_columns(columns, options, at, labelled=labelled)]
            except UnknownColumnError as error:
                unknown = error
        if len(lines) == SAMPLE or size > options.document_limit:
            break
    if unknown is not None:
        raise unknown
    return taken, []


def _json_object(line: str, at: str) -> dict[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_keys_once)
    except _RepeatedKeyError as error:
        raise UserError(f"{at}: the key {error} is there twice in one object. Remove or rename one of them.") from None
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        raise UserError(f"{at}: not JSON: {reason}. Write one object per line.") from error
    if not isinstance(record, dict):
        raise UserError(f"{at}: of type {type(record).__name__}, not an object. Write one object per line.")
    return record


class _RepeatedKeyError(ValueError):
    """A key that an object has twice."""


def _keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs; readers of JSON disagree about which of two values for one key counts."""
    record = dict(pairs)
    if len(record) < len(pairs):
        seen: set[str] = set()
        raise _RepeatedKeyError(repr(_clipped(next(key for key, _ in pairs if key in seen or seen.add(key)))))  # type: ignore[func-returns-value]
    return record


def check_surrogates(text: str, at: str) -> None:
    """Refuse lone surrogates, which JSON escapes can express but UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise UserError(
            f"{at}: \\u{half:04x} is a lone surrogate, not a character. "
            "Write the full surrogate pair, or \\ufffd instead."
        ) from error


def _text(value: object, at: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{at}: the text is of type {type(value).__name__}, not a string. Choose with --text-column.")
    return value


def _clipped(name: str) -> str:
    name = name if len(name) <= 40 else name[:39] + "…"
    return name.encode(errors="backslashreplace").decode()


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _delimiter_name(delimiter: str) -> str:
    return {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", " ": "space"}.get(delimiter, repr(delimiter))


def _delimiter_argument(delimiter: str) -> str:
    """Spell a delimiter as on the command line."""
    return "tab" if delimiter == "\t" else f"'{delimiter}'"
