"""A `tokenizer.json` of a base that others pretrained: through the gate, then opened."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from rehead.errors import UserError
from rehead.terminal import print_note
from rehead.text.tokenizer_gate import check_tokenizer


def open_tokenizer(file: Path) -> tokenizers.Tokenizer:
    """Open a tokenizer that passes the gate, and say what the gate has switched off."""
    text, notes = check_tokenizer(file)
    for note in notes:
        print_note(note)
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises nothing more specific
        raise UserError(f"{file} is not a readable tokenizer.json: {error}") from error
