"""Csv that a spreadsheet shows as text: cells that it would take for a formula are quoted (`--spreadsheet`).

A cell that begins with one of `= + - @`, a tab or a line break may be computed when the file is opened, and a formula
can start programs or send data away (CSV injection). In East Asian settings that goes for the full-width forms, too. An
apostrophe in front makes it text. Numbers stay as they are.
The apostrophe is part of the file: without the option, texts and labels are written exactly as they were read.
"""

from __future__ import annotations

import re

FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # in full width, too
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def neutralise(cell: str) -> str:
    """Put an apostrophe in front of a cell that a spreadsheet would take for a formula."""
    return f"'{cell}" if FORMULA.match(cell) and not NUMBER.fullmatch(cell) else cell
