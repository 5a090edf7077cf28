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
Words = list[str] | dict[str, int]  # a word for each row, or the row of each word
MAX_SEEN = 1 << 20  # words whose rows are remembered


def open_finder(file: Path, stated: Mapping[str, Any]) -> Callable[[Sequence[str]], list[Any]]:
    """Make what finds the tokens of texts, or of their pieces, by a tokenizer.json or a list of words."""
    text = file.read_text(encoding="utf-8")
    if "word" in stated:
        return word_finder(json.loads(text), stated)
    return (piece_finder if "before" in stated else token_finder)(Tokenizer.from_str(text), stated)


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


def piece_finder(tokenizer: Tokenizer, stated: Mapping[str, Any]) -> Callable[[Sequence[str]], list[list[list[int]]]]:
    """Make what tokenizes texts, and cuts those that are too long into pieces, all of a text of one length.

    What `token_finder` takes, and `long`, `windows` (`cut_tokens`), `before`, `after`: tokens around those of a piece.
    """
    whole = token_finder(Tokenizer.from_str(tokenizer.to_str()), stated)
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def find(texts: Sequence[str]) -> list[list[list[int]]]:
        found = []
        for text, ids in zip(texts, whole(texts), strict=True):
            pieces = [ids]
            if len(ids) >= stated["longest"] and stated["long"] != "head":
                given = text.strip().lower() if stated.get("lowercase") else text.strip()
                bare = tokenizer.encode(given, add_special_tokens=False).ids
                pieces = pieces_around(ids, bare, stated)
            found.append(pieces)
        return found

    return find


def pieces_around(ids: list[int], bare: list[int], stated: Mapping[str, Any]) -> list[list[int]]:
    """Cut the tokens of a text, `bare` without special ones, if they are too many; otherwise give `ids`, the whole."""
    before, after = stated["before"], stated["after"]
    limit = max(1, stated["longest"] - len(before) - len(after))
    if len(bare) <= limit:
        return [ids]
    return [[*before, *part, *after] for part in cut_tokens(bare, limit, stated["long"], stated["windows"])]


def cut_tokens(ids: list[int], limit: int, rule: str, most: int) -> list[list[int]]:
    """Cut more than `limit` tokens as `rehead.text.long_documents` does; of too many windows, evenly spaced ones."""
    if rule == "windows":
        count = -(-len(ids) // limit)
        spaced = [round(place * (count - 1) / (most - 1)) for place in range(most)] if most > 1 else [0]
        starts = [each * (len(ids) - limit) // (count - 1) for each in (range(count) if count <= most else spaced)]
        return [ids[start : start + limit] for start in starts]
    head = {"head": limit, "tail": 0}.get(rule, limit // 4)
    return [ids[:head] + ids[len(ids) - (limit - head) :]]


def word_finder(words: Words, stated: Mapping[str, Any]) -> Find:
    """Make what looks up words: as they are, in lower case, or else in parts. `word`, `parts`: regular expressions."""
    rows = words if isinstance(words, dict) else {word: row for row, word in reversed(list(enumerate(words)))}
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
