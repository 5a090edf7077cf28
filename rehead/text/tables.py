r"""Rows of csv, tsv, jsonl and parquet files, as they come, with the columns that hold text and label.

A table is never held whole: csv and jsonl go by the line, parquet by batches of about 4 MB out of one row group.

    csv, tsv   the first row names the columns; fields may be quoted, and then hold line breaks, which are kept as they
               are; quotes inside a quoted field are doubled. Read strictly: a quote that is not closed, or a row with
               more or fewer fields than the header, is an error at the line where it begins, never a guess
    jsonl      one object per line; the keys are the columns
    parquet    the text column holds strings

The column is the one that was asked for, or else the first of the usual names that is there, case ignored.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from typing import Any

from rehead.errors import UserError
from rehead.text.decoding import InputFile, line_blocks, line_ends, utf8_size
from rehead.text.documents import ReadOptions, place

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


# (line, text, label): a blank line between rows has None for its text. A plain tuple, since there may be millions.
Row = tuple[int, str | None, Any]


def find_columns(columns: Sequence[str], options: ReadOptions, name: str, *, labelled: bool) -> list[int]:
    """Find the places of the text column and, in a labelled table, of the label column."""
    text = _find_column("text", columns, options.text_column, TEXT_NAMES, name)
    if not labelled:
        return [text]
    label = _find_column("label", columns, options.label_column, LABEL_NAMES, name)
    if text == label:
        raise UserError(f"{name}: {columns[text]!r} cannot be both text and label: see --text-column, --label-column.")
    return [text, label]


def csv_rows(file: InputFile, options: ReadOptions, delimiter: str, *, labelled: bool) -> Iterator[Row]:
    """Read a csv or tsv file."""
    header: list[str] = []
    at: list[int] = []
    for line, fields in _csv_records(file, options.document_limit, delimiter):
        if not header:
            header = fields
            at = find_columns(header, options, file.name, labelled=labelled) if header else []
        elif not fields:
            yield line, None, None
        elif len(fields) != len(header):
            raise UserError(
                f"{place(file.name, line)}: {_count(len(fields), 'field')}, but the header names {len(header)} "
                f"({_listed(header)}). Put quotes around a field that holds a {_spelt(delimiter)} or a line break."
            )
        else:
            yield line, fields[at[0]], fields[at[1]] if labelled else None


def json_rows(file: InputFile, options: ReadOptions, *, labelled: bool) -> Iterator[Row]:
    """Read a file with one JSON object per line."""
    chosen: list[str] = []  # the keys of the text and, if wanted, of the label
    for first, lines in line_blocks(file, options.document_limit):
        for number, line in enumerate(lines, first):
            if not line or line.isspace():
                yield number, None, None
                continue
            at = place(file.name, number)
            record = _json_object(line, at)
            if not chosen:
                keys = list(record)
                chosen = [keys[each] for each in find_columns(keys, options, at, labelled=labelled)]
            for key in chosen:
                if key not in record:
                    raise UserError(f"{at}: no {_clipped(key)!r} in this object. There are: {_listed(list(record))}.")
            text = _text(record[chosen[0]], at)
            if "\\u" in line:
                check_whole(text, at)
            yield number, text, record[chosen[1]] if labelled else None


def parquet_rows(file: InputFile, options: ReadOptions, *, labelled: bool) -> Iterator[Row]:
    """Read a parquet file."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise UserError(f"{file.name}: parquet needs the pyarrow package: pip install 'rehead[formats]'.") from error
    number = 1
    try:
        # Without pre-buffering, pages are read as they are needed, not a whole row group ahead.
        table = pyarrow.parquet.ParquetFile(file.seekable(), pre_buffer=False, buffer_size=1 << 20)
        columns = list(table.schema_arrow.names)
        chosen = [columns[each] for each in find_columns(columns, options, file.name, labelled=labelled)]
        for name in chosen:
            if columns.count(name) > 1:
                raise UserError(f"{file.name}: two columns are called {name!r}. Rename one.")
        total = max(1, table.metadata.num_rows)
        size = sum(table.metadata.row_group(each).total_byte_size for each in range(table.num_row_groups))
        file.fraction = 0.0
        for batch in table.iter_batches(min(1024, PARQUET_BATCH * total // max(1, size) + 1), columns=chosen):
            texts = batch.column(chosen[0]).to_pylist()
            labels = batch.column(chosen[1]).to_pylist() if labelled else [None] * len(texts)
            for row, (value, label) in enumerate(zip(texts, labels, strict=True), number):
                at = place(file.name, row)
                if utf8_size(text := _text(value, at)) > options.document_limit:
                    raise UserError(f"{at}: the text is longer than --max-document-mb allows. Cut it, or allow more.")
                yield row, text, label
            number += len(texts)
            file.fraction = min(1.0, (number - 1) / total)
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError) as error:
        raise UserError(
            f"{file.name}: not a parquet file, or a damaged one, from row {number} on ({error})."
        ) from error


def _find_column(role: str, columns: Sequence[str], wanted: str | None, usual: Sequence[str], name: str) -> int:
    folded = [column.strip().casefold() for column in columns]
    if wanted is not None and list(columns).count(wanted) == 1:
        return list(columns).index(wanted)
    for each in usual if wanted is None else [wanted.strip().casefold()]:
        if folded.count(each) > 1:
            raise UserError(f"{name}: two columns are called {each!r}. Choose with --{role}-column, or rename one.")
        if each in folded:
            return folded.index(each)
    if wanted is not None:
        raise UserError(f"{name}: no column {wanted!r}. There are: {_listed(columns)}.")
    raise UserError(
        f"{name}: cannot tell which column holds the {role}. "
        f"Choose with --{role}-column; there are: {_listed(columns)}."
    )


def _csv_records(file: InputFile, limit: int, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Give the fields of every record, with the line where it begins."""
    csv.field_size_limit(max(csv.field_size_limit(), limit))
    lines: list[str] = []  # of the record that is being read

    def feed() -> Iterator[str]:
        size = 0
        for _, block in line_blocks(file, limit, keep_ends=True):
            for line in block:
                size = size + len(line) if lines else len(line)
                lines.append(line)
                if size > limit:
                    raise too_long()
                yield line

    def too_long() -> UserError:
        opened = _open_quote(lines, delimiter)
        what = "the row" if opened is None else "the quote that opens here is not closed, or the row"
        return UserError(
            f"{place(file.name, begin + (opened or 0))}: {what} goes on for more than {limit / 1e6:g} MB. "
            "Close the quote, or allow longer rows with --max-document-mb."
        )

    begin = 1
    reader = csv.reader(feed(), delimiter=delimiter, strict=True)
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            opened = _open_quote(lines, delimiter)
            if opened is None:
                raise UserError(f"{place(file.name, begin)}: cannot be read as csv ({error}).") from error
            raise UserError(
                f"{place(file.name, begin + opened)}: the quote that opens here is not closed as it should be. "
                'Close it, and double every quote inside a quoted field ("").'
            ) from error
        if fields is None:
            return
        yield begin, fields
        begin += len(lines)
        lines.clear()


def _open_quote(lines: list[str], delimiter: str) -> int | None:
    """Find, in a record that could not be read, on which of its lines the quote opens that is wrongly closed."""
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
        if end < 0 or record[end + 1 : end + 2] not in ("", delimiter, "\r", "\n"):
            return line_ends(record[:at])
        at = end + 2
    return None


def _json_object(line: str, at: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        raise UserError(f"{at}: not JSON: {reason}. Write one object per line.") from error
    if not isinstance(record, dict):
        raise UserError(f"{at}: of type {type(record).__name__}, not an object. Write one object per line.")
    return record


def check_whole(text: str, at: str) -> None:
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


def _listed(columns: Sequence[str]) -> str:
    shown = ", ".join(map(_clipped, columns[:20]))
    return (shown or "none") + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")


def _clipped(name: str) -> str:
    name = name if len(name) <= 40 else name[:39] + "…"
    return name.encode(errors="backslashreplace").decode()


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _spelt(delimiter: str) -> str:
    return {",": "comma", "\t": "tab"}[delimiter]
