"""Rows with all their columns, for prediction: what is to be labelled, and written back with its labels.

    records = Records("reviews.csv.gz", options)
    for record in records: ...   # record.text, record.columns == {"id": "7", "review": "What a film!"}

Every row is a record, in order. Unlike in `Texts`, which is for training, an empty text gives a record with an empty
`text`, so that output rows correspond to input rows; `--skip-empty` skips and counts such rows. Blank lines between the
rows of a table, and at the end of any file, are not rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from rehead.errors import UserError
from rehead.text.decoding import InputFile, line_blocks
from rehead.text.documents import TABLES, ReadOptions
from rehead.text.readers import Texts
from rehead.text.sources import InputPath
from rehead.text.tables import TEXT_NAMES, column_names

FILE = "file"  # column with the file name, added if there are several files


class Record(NamedTuple):
    """One row."""

    text: str
    "Empty if the row has only white space."
    columns: dict[str, Any]
    "All columns of the row by name; for plain text, only `text`."
    source: str
    line: int


class Records:
    """The rows of a file, or of all files in a folder: a re-iterable stream in a stable order."""

    def __init__(self, given: InputPath, options: ReadOptions) -> None:
        """Find the files, and refuse options that apply to none of them."""
        self.texts = Texts(given, options)
        self.options = options
        self.multiple_files = len(self.texts.files) > 1

    @property
    def skipped(self) -> Counter[str]:
        """Number of rows that the last iteration skipped, by reason."""
        return self.texts.skipped

    def columns(self) -> list[str]:
        """List all columns that rows may have. A jsonl file is read to its end for this."""
        names: dict[str, None] = {FILE: None} if self.multiple_files else {}
        for source in self.texts.files:
            with InputFile(source.path, source.name) as file:
                names |= dict.fromkeys(column_names(file, source.format, self.options))
        return list(names)

    def looks_like(self) -> str | None:
        """Guess the table format of standard input from its first line, if it is read as plain text by default."""
        source = self.texts.files[0]
        if source.name != "-" or self.options.input_format is not None:
            return None
        with InputFile(source.path, source.name) as file:
            _, lines = next(line_blocks(file, self.options.document_limit), (1, [""]))
        if lines[0].startswith("{") and lines[0].endswith("}"):
            return "jsonl"
        for kind, separator in (("csv", ","), ("tsv", "\t")):
            if {each.strip('"').casefold() for each in lines[0].split(separator)} & set(TEXT_NAMES):
                return kind
        return None

    def __iter__(self) -> Iterator[Record]:
        for source, rows in self.texts.each_file(all_columns=True):
            table = source.format in TABLES
            blank = range(0)  # blank lines of a plain-text file: empty documents, unless they are at its end
            for line, text, columns in rows:
                if text is None:
                    if table:
                        self.skipped["blank line"] += 1
                    else:
                        blank = range(blank.start if blank else line, line + 1)
                    continue
                if self.multiple_files:
                    columns = self._with_file(columns, source.name)
                for empty in blank:
                    yield from self._empty({**columns, "text": ""}, source.name, empty)
                blank = range(0)
                if not text or text.isspace():
                    yield from self._empty(columns, source.name, line)
                else:
                    yield Record(text, columns, source.name, line)

    def _with_file(self, columns: dict[str, Any], name: str) -> dict[str, Any]:
        if FILE in columns:
            raise UserError(
                f"{name}: has a column {FILE!r}, the name of the column that is added for several files. "
                "Rename it, or read the files one by one."
            )
        return {FILE: name, **columns}

    def _empty(self, columns: dict[str, Any], source: str, line: int) -> Iterator[Record]:
        if self.options.skip_empty:
            self.skipped["empty text"] += 1
        else:
            yield Record("", columns, source, line)
