"""A `tokenizer.json` of a base that others pretrained: through the gate, then opened."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from rehead.errors import UserError
from rehead.terminal import print_note
from rehead.text.tokenizer_gate import check_tokenizer

UNKNOWN = "\U0010fffd a\u0378"  # what no vocabulary has


def open_tokenizer(file: Path) -> tokenizers.Tokenizer:
    """Open a tokenizer that passes the gate, and say what the gate has switched off."""
    text, notes = check_tokenizer(file)
    for note in notes:
        print_note(note)
    try:
        made = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises nothing more specific
        raise UserError(f"{file} is not a readable tokenizer.json: {error}") from error
    check_reads(made, str(file))
    return made


def check_reads(tokenizer: tokenizers.Tokenizer, name: str) -> None:
    """Refuse a tokenizer that fails on what it does not know, as one without its unknown token does."""
    try:
        tokenizer.encode(UNKNOWN)
    except Exception as error:  # tokenizers raises nothing more specific
        raise UserError(f"{name}: this tokenizer cannot read every text ({error}).") from error
