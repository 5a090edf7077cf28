"""Texts with all that stands beside them in their row: what is to be labelled, and handed back with its labels.

    records = Records("reviews.csv.gz", options)
    for record in records: ...   # record.text, record.own == {"id": "7", "review": "What a film!"}

Every row gives a record, in its order. Unlike `Texts`, which feeds training, an empty text is a record too, with an
empty `text`, so that rows stay side by side with those of the file; `--skip-empty` leaves such rows out and counts
them. Blank lines between the rows of a table, and at the end of any file, are no rows.
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

FILE = "file"  # the column that names the file, where several are read


class Record(NamedTuple):
    """One row."""

    text: str
    "Empty where there is nothing but space."
    own: dict[str, Any]
    "All columns of the row, by name; of plain text, `text` alone."
    source: str
    line: int


class Records:
    """The rows of a file, or of all files in a folder: re-iterable, streaming, in a stable order."""

    def __init__(self, given: InputPath, options: ReadOptions) -> None:
        """Find the files, and refuse options that apply to none of them."""
        self.texts = Texts(given, options)
        self.options = options
        self.several = len(self.texts.files) > 1

    @property
    def skipped(self) -> Counter[str]:
        """Reason → how often, for what the last iteration left out."""
        return self.texts.skipped

    def columns(self) -> list[str]:
        """Name all columns that rows may have. A jsonl file is read to its end for them."""
        names: dict[str, None] = {FILE: None} if self.several else {}
        for source in self.texts.files:
            with InputFile(source.path, source.name) as file:
                names |= dict.fromkeys(column_names(file, source.format, self.options))
        return list(names)

    def looks_like(self) -> str | None:
        """Tell which table standard input looks like by its first line, where it is read as plain text unasked."""
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
            blank = range(0)  # lines of a plain text file: documents, if they are not its last lines
            for line, text, own in rows:
                if text is None:
                    if table:
                        self.skipped["blank line"] += 1
                    else:
                        blank = range(blank.start if blank else line, line + 1)
                    continue
                if self.several:
                    own = self._with_file(own, source.name)
                for empty in blank:
                    yield from self._empty({**own, "text": ""}, source.name, empty)
                blank = range(0)
                if not text or text.isspace():
                    yield from self._empty(own, source.name, line)
                else:
                    yield Record(text, own, source.name, line)

    def _with_file(self, own: dict[str, Any], name: str) -> dict[str, Any]:
        if FILE in own:
            raise UserError(
                f"{name}: has a column {FILE!r}, which is to hold the file's name where several are read. "
                "Rename it, or read the files one by one."
            )
        return {FILE: name, **own}

    def _empty(self, own: dict[str, Any], source: str, line: int) -> Iterator[Record]:
        if self.options.skip_empty:
            self.skipped["empty text"] += 1
        else:
            yield Record("", own, source, line)
