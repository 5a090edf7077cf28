r"""Rows of csv, tsv, jsonl and parquet files, as they come, with the columns that hold text and label.

A table is never held whole: csv and jsonl go by the line, parquet by batches of about 4 MB out of one row group.

    csv, tsv   the first row names the columns; fields may be quoted, and then hold line breaks, which are kept as they
               are; quotes inside a quoted field are doubled. Read strictly: a quote that is not closed, or a row with
               more or fewer fields than the header, is an error at the line where it begins, never a guess
               (`--delimiter` and `--no-quotes` are for files that are written otherwise)
    jsonl      one object per line; the keys are the columns, those of the first hundred objects
    parquet    the text column holds strings

The column is the one that was asked for, or else the first of the usual names that is there, case ignored.
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

# Text of a parquet file that is held at a time, if its rows are about equally long.
PARQUET_BATCH = 4_000_000


# What else may separate columns than what was expected to.
SEPARATORS = ";\t|,"

# Objects in which a column is looked for.
SAMPLE = 100


class UnknownColumnError(UserError):
    """None of the columns holds what was looked for."""

    def __init__(self, message: str, role: str, columns: Sequence[str], wanted: str | None) -> None:
        super().__init__(message)
        self.role = role
        "text or label"
        self.columns = columns
        self.wanted = wanted
        "The name that was asked for, if one was."


# (line, text, label): a blank line between rows has None for its text. A plain tuple, since there may be millions.
# Where rows are asked for whole, all their columns stand in the place of the label: {name: value}.
Row = tuple[int, str | None, Any]


def find_columns(columns: Sequence[str], options: ReadOptions, at: str, *, labelled: bool) -> list[int]:
    """Find the places of the text column and, in a labelled table, of the label column."""
    text = _find_column("text", columns, options.text_column, TEXT_NAMES, at)
    if not labelled:
        return [text]
    # The column that was chosen for the text is not free to be found as the label.
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
                f"With --no-quotes, no field can hold a {_spelt(delimiter)}."
                if options.no_quotes
                else f"Put quotes around a field that holds a {_spelt(delimiter)} or a line break."
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
        for batch in table.iter_batches(min(1024, PARQUET_BATCH * total // max(1, size) + 1), columns=read):
            texts = batch.column(chosen[0]).to_pylist()
            if all_columns:
                more = batch.to_pylist()
            else:
                more = batch.column(chosen[1]).to_pylist() if labelled else [None] * len(texts)
            for row, (value, label) in enumerate(zip(texts, more, strict=True), number):
                at = location(file.name, row, "parquet")
                if utf8_size(text := _text(value, at)) > options.document_limit:
                    raise UserError(f"{at}: the text is longer than --max-document-mb allows. Cut it, or allow more.")
                yield row, text, label
            number += len(texts)
            file.fraction = min(1.0, (number - 1) / total)


@contextmanager
def _parquet(file: InputFile, row: Callable[[], int] = lambda: 1) -> Iterator[Any]:
    """Open a parquet file; what goes wrong with it is said with the row that it has come to."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise UserError(f"{file.name}: parquet needs the pyarrow package: pip install 'rehead[formats]'.") from error
    try:
        # Without pre-buffering, pages are read as they are needed, not a whole row group ahead.
        yield pyarrow.parquet.ParquetFile(file.seekable(), pre_buffer=False, buffer_size=1 << 20)
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError) as error:
        raise UserError(f"{file.name}: not a parquet file, or a damaged one, from row {row()} on ({error}).") from error


def column_names(file: InputFile, kind: str, options: ReadOptions) -> list[str]:
    """Name all columns of a file. Those of jsonl are only known when it has been read to its end."""
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
    """List columns for a message, in not too many words."""
    shown = ", ".join(map(_clipped, columns[:20]))
    return (shown or "none") + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")


def _check_names(columns: Sequence[str], at: str) -> None:
    """Refuse columns that cannot be told apart by their names."""
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
    """Find the columns of a csv file; say so if its header looks as if another character separated them."""
    try:
        return find_columns(header, options, at, labelled=labelled)
    except UnknownColumnError as error:
        other = max((each for each in SEPARATORS if each != delimiter), key=header[0].count)
        if len(header) > 1 or other not in header[0]:
            raise
        raise UserError(
            f"{at}: the header is one column, {_clipped(header[0])!r}, with a {_spelt(other)} in it. "
            f"If that separates the columns, say --delimiter {_typed(other)}."
        ) from error


def _csv_records(file: InputFile, limit: int, delimiter: str, no_quotes: bool) -> Iterator[tuple[int, list[str]]]:
    """Give the fields of every record, with the line where it begins."""
    csv.field_size_limit(max(csv.field_size_limit(), limit))
    lines: list[str] = []  # of the record that is being read

    def feed() -> Iterator[str]:
        size = 0
        for _, block in line_blocks(file, limit, keep_ends=True):
            for line in block:
                lines.append(line)
                if len(lines) > 1:  # a line by itself has been measured already
                    size = (utf8_size(lines[0]) if len(lines) == 2 else size) + utf8_size(line)
                    if size > limit:
                        raise too_long()
                yield line

    def too_long() -> UserError:
        opened = _open_quote(lines, delimiter)
        if opened is None:
            what, advice = "the row", "Cut it"
        else:
            what, advice = "the quote that opens here is not closed, or the row", f"Close the quote, {PLAIN_QUOTES}"
        return UserError(
            f"{location(file.name, begin + (opened[0] if opened else 0), 'csv')}: {what} goes on for more than "
            f"{limit / 1e6:g} MB. {advice}, or allow longer rows with --max-document-mb."
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
                    f"{at}: a quoted field ends with a {_spelt(opened[1])} after it. If that separates the columns, "
                    f"say --delimiter {_typed(opened[1])}."
                ) from error
            raise UserError(
                f"{at}: the quote that opens here is not closed as it should be. "
                f'Close it, and double every quote inside a quoted field (""), {PLAIN_QUOTES}.'
            ) from error
        if fields is None:
            return
        yield begin, fields
        begin += len(lines)
        lines.clear()


PLAIN_QUOTES = "or say --no-quotes if quotes are ordinary characters here"


def _open_quote(lines: list[str], delimiter: str) -> tuple[int, str] | None:
    """Find, in a record that could not be read, the quote that is wrongly closed.

    Returns on which of the lines it opens, and what stands after the quote that closes it, if one does.
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


# (line, as it is in the file, what it says): None for a blank one.
Record = tuple[int, str, dict[str, Any] | None]


def _json_records(file: InputFile, limit: int) -> Iterator[Record]:
    for first, lines in line_blocks(file, limit):
        for number, line in enumerate(lines, first):
            blank = not line or line.isspace()
            yield number, line, None if blank else _json_object(line, location(file.name, number, "jsonl"))


def _json_columns(
    records: Iterator[Record], name: str, options: ReadOptions, labelled: bool
) -> tuple[list[Record], list[str]]:
    """Find the keys of the text and, if wanted, of the label: in the first object, or else in one soon after it.

    Returns also the records that were taken to find them. They are a hundred at most, and not
    much longer than one document may be.
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
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        raise UserError(f"{at}: not JSON: {reason}. Write one object per line.") from error
    if not isinstance(record, dict):
        raise UserError(f"{at}: of type {type(record).__name__}, not an object. Write one object per line.")
    return record


def check_surrogates(text: str, at: str) -> None:
    """Refuse half a surrogate pair, which JSON can write as an escape and which no encoder would take later."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise UserError(
            f"{at}: \\u{half:04x} is half a character (a surrogate without its other half). "
            "Write the character whole, or \\ufffd in its place."
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


def _spelt(delimiter: str) -> str:
    return {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", " ": "space"}.get(delimiter, repr(delimiter))


def _typed(delimiter: str) -> str:
    """Write a delimiter as one would on the command line."""
    return "tab" if delimiter == "\t" else f"'{delimiter}'"
