"""From texts to the tokens of a base that others pretrained: the rows of its table that a text stands for.

This module needs tokenizers alone: it is copied into exported classifiers, whose `model.json` states what `stated` is.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

Find = Callable[[Sequence[str]], list[list[int]]]
MAX_SEEN = 1 << 20  # words whose rows are remembered


def open_finder(file: Path, stated: Mapping[str, Any]) -> Find:
    """Make what finds the tokens of texts, by a tokenizer.json or a list of words."""
    text = file.read_text(encoding="utf-8")
    return word_finder(json.loads(text), stated) if "word" in stated else token_finder(Tokenizer.from_str(text), stated)


def token_finder(tokenizer: Tokenizer, stated: Mapping[str, Any]) -> Find:
    """Make what tokenizes texts.

    `special`: with special tokens; `prompt`: what goes before a text; `lowercase`; `strip`; `longest`: tokens that are
    read; `unknown`: a token that is left out; `last`: the highest token, which all higher ones become; `empty`: the
    token that stands for a text without any.
    """
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if stated.get("longest") is not None:
        tokenizer.enable_truncation(stated["longest"])
    prompt, unknown, last, empty = (stated.get(name) for name in ("prompt", "unknown", "last", "empty"))

    def find(texts: Sequence[str]) -> list[list[int]]:
        given = [(prompt or "") + (text.strip() if stated.get("strip") else text) for text in texts]
        if stated.get("lowercase"):
            given = [text.lower() for text in given]
        found = [each.ids for each in tokenizer.encode_batch_fast(given, add_special_tokens=bool(stated["special"]))]
        if last is not None:
            found = [[min(token, last) for token in each if token != unknown] for each in found]
        return found if empty is None else [each or [empty] for each in found]

    return find


def word_finder(words: Sequence[str], stated: Mapping[str, Any]) -> Find:
    """Make what looks up words: as they are, in lower case, or else in parts. `word`, `parts`: regular expressions."""
    rows = {word: row for row, word in reversed(list(enumerate(words)))}
    word, parts = re.compile(stated["word"]), re.compile(stated["parts"])
    seen: dict[str, list[int]] = {}

    def find_word(given: str) -> list[int]:
        for form in (given, given.lower()):
            if form in rows:
                return [rows[form]]
        pieces = [piece for piece in parts.split(given) if piece]
        return [row for piece in pieces for row in find_word(piece)] if len(pieces) > 1 else []

    def find(texts: Sequence[str]) -> list[list[int]]:
        found = []
        for text in texts:
            here = []
            for given in word.findall(text):
                if given not in seen:
                    if len(seen) > MAX_SEEN:
                        seen.clear()
                    seen[given] = find_word(given)
                here += seen[given]
            found.append(here)
        return found

    return find
