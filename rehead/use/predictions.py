"""The output format of predictions: the input rows, with label and probabilities appended.

    csv     id,review,label,p_neg,p_pos          jsonl   {"id": 7, "review": "…", "label": "pos",
            7,"What a film!",pos,0.031,0.969              "probabilities": {"neg": 0.031, "pos": 0.969}}

A multilabel classifier writes the column `labels`: `a|b` in csv, a list in jsonl. A text below the confidence threshold
gets the placeholder for that instead of a label; an empty text has neither label nor probabilities (empty cells, null).
If the input already has a column of that name, the output column gets the prefix `predicted_`. --explain adds the
column `explanation`.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rehead.errors import UserError
from rehead.text.spreadsheet import neutralise

if TYPE_CHECKING:
    from rehead.text.records import Record
    from rehead.use.explain import Explanation

Format = Literal["csv", "jsonl"]
EXTENSIONS: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
PREFIX = "predicted_"  # of an output column whose name the input has already
QUOTED = re.compile(r'[",\r\n]')


@dataclass
class Prediction:
    """The prediction for one text."""

    labels: tuple[str, ...] | None
    "None for an empty text."
    probabilities: Sequence[float] | None
    more: dict[str, Any] = field(default_factory=dict)
    "Values of further output columns, by name."


@dataclass
class Layout:
    """The columns of the output, and how a row is written."""

    format: Format
    own: list[str]
    "The input's columns."
    classes: list[str]
    multilabel: bool
    "Whether a text may have several labels."
    more: Sequence[str] = ()
    "Names of further output columns."
    spreadsheet: bool = False
    "Whether cells of csv that look like formulas are neutralised."

    def __post_init__(self) -> None:
        label = "labels" if self.multilabel else "label"
        each = [f"p_{name}" for name in self.classes] if self.format == "csv" else ["probabilities"]
        taken = set(self.own)
        self.names = {name: _free(name, taken) for name in (label, *each, *self.more)}
        self.label, self.probabilities = self.names[label], [self.names[name] for name in each]

    def renamed(self) -> dict[str, str]:
        """Return the output columns that were renamed because the input has a column of that name."""
        return {name: used for name, used in self.names.items() if name != used}

    def header(self) -> str:
        """Format the header line; empty for jsonl."""
        return self._csv_line([*self.own, *self.names.values()]) if self.format == "csv" else ""

    def row(self, record: Record, said: Prediction) -> str:
        """Format one row."""
        more = [said.more.get(name) for name in self.more]
        if self.format == "csv":
            labels = "" if said.labels is None else "|".join(said.labels)
            shares = [""] * len(self.classes)
            if said.probabilities is not None:
                shares = [f"{share:.6f}" for share in said.probabilities]
            return self._csv_line(
                [*(_cell(record.columns.get(name)) for name in self.own), labels, *shares, *map(_cell, more)]
            )
        label: Any = said.labels if said.labels is None else list(said.labels) if self.multilabel else said.labels[0]
        shares_by_name = None
        if said.probabilities is not None:
            rounded = (round(share, 6) for share in said.probabilities)
            shares_by_name = dict(zip(self.classes, rounded, strict=True))
        ours = {self.label: label, self.probabilities[0]: shares_by_name}
        return _json_line(
            {**record.columns, **ours, **{self.names[name]: each for name, each in zip(self.more, more, strict=True)}}
        )

    def _csv_line(self, cells: Sequence[str]) -> str:
        if self.spreadsheet:
            cells = [*map(neutralise, cells)]
        # Not the csv module: it writes a lone \r without quotes, which ends the row for most readers.
        return ",".join('"' + each.replace('"', '""') + '"' if QUOTED.search(each) else each for each in cells) + "\n"


def format_of_output(out: Path | None, chosen: Format | None, of_input: set[str]) -> tuple[Format, bool]:
    """Choose the output format, and whether to compress: as given, else by the file name, else as the input."""
    compressed = out is not None and out.suffix.lower() == ".gz"
    if chosen is not None:
        return chosen, compressed
    if out is None:
        return ("jsonl" if of_input == {"jsonl"} else "csv"), False
    extension = (out.with_suffix("") if compressed else out).suffix.lower()
    if extension not in EXTENSIONS:
        raise UserError(
            f"--out {out}: unknown file extension. Use {', '.join(EXTENSIONS)} (optionally with .gz), or give --format."
        )
    return EXTENSIONS[extension], compressed


def explanation_field(explanation: Explanation, format_: Format) -> Any:  # noqa: ANN401 (what JSON can hold)
    """Format an explanation for a row: all words with their weights in jsonl, the strongest in csv."""
    from rehead.use.highlight import summary

    if format_ == "csv":
        return "; ".join([explanation.label, *summary(explanation)[1:]])
    whole = explanation.as_json()
    words = [{**word, "weight": round(word["weight"], 6)} for word in whole["words"]]
    return {"label": explanation.label, "words": words}


def encoded(text: str, *, compressed: bool) -> bytes:
    """Encode rows as bytes; gzip members can be concatenated, and are deterministic."""
    data = text.encode(errors="backslashreplace")
    return gzip.compress(data, compresslevel=6, mtime=0) if compressed and data else data


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name = PREFIX + name
    taken.add(name)
    return name


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=_as_text)
    return _as_text(value)


def _json_line(fields: dict[str, Any]) -> str:
    try:
        line = json.dumps(fields, ensure_ascii=False, default=_as_text, allow_nan=False)
        line.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can represent
        line = json.dumps(fields, default=_as_text, allow_nan=False)
    except ValueError:  # NaN or infinity
        return _json_line(_finite(fields))
    return line + "\n"


def _finite(value: Any) -> Any:  # noqa: ANN401 (whatever JSON can hold)
    """Replace NaN and infinity, which JSON lacks, with null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def _as_text(value: object) -> str:
    """Format the types that only parquet has: dates, decimals, bytes."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
