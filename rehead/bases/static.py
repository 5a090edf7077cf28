"""A static table: one vector per token or word, averaged over a text. No layers, so it takes next to no time.

    model2vec       config.json, tokenizer.json, model.safetensors (embeddings, and weights and mapping if it has them)
    StaticEmbedding of sentence-transformers: the same, in the folder that modules.json names
    WordLlama       weights/NAME.safetensors and tokenizers/NAME….json
    words           words.json and vectors.safetensors: what word vectors are converted to (`rehead.bases.words`)

Texts are read whole, however long. A word that is not in a table of words is looked up in lower case, then in parts;
one that is not there at all counts nothing. A text of which nothing is known gets zeros.

Shapes: N texts, V rows, W values of a vector.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rehead.bases.files import (
    CONFIG,
    VECTORS,
    WEIGHTS,
    WORDS,
    fields_of,
    inside,
    recognise,
    sentence_modules,
    wordllama_files,
)
from rehead.bases.tensors import read_tensors
from rehead.disk import read_json
from rehead.errors import UserError
from rehead.terminal import print_note
from rehead.text.spans import word_spans
from rehead.text.tokenizer_gate import check_tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

GROUP = 1_024  # texts at once
PARTS = re.compile(r"['’-]")
Find = Callable[[Sequence[str]], list[list[int]]]


class StaticTable:
    """A table that is loaded, and does not change."""

    work = 0
    max_length: int | None = None

    def __init__(self, root: Path) -> None:
        kind, self.normalize, self.find = recognise(root), False, None
        if kind == "words":
            table, self.find = _words(root)
        elif kind == "wordllama":
            weights, tokenizer = (inside(root, each.relative_to(root).as_posix()) for each in wordllama_files(root))
            table = _table(read_tensors(weights), weights)
            self.find = _token_finder(tokenizer, len(table))
        elif kind in ("model2vec", "sentence-static"):
            folder = ""
            if kind == "model2vec":
                self.normalize = bool(fields_of(root, CONFIG).get("normalize"))
            else:
                (_, folder), *rest = sentence_modules(root)
                if odd := next((name for name, _ in rest if name != "Normalize"), None):
                    raise UserError(f"{root}: the module {odd} after a static table is not known.")
                self.normalize = bool(rest)
            home = root / folder
            table = _table(read_tensors(inside(home, WEIGHTS)), home / WEIGHTS)
            self.find = _token_finder(inside(home, "tokenizer.json"), len(table), known=kind == "model2vec")
        else:
            raise UserError(f"{root}: not a static table.")
        self.table = table
        self.width, self.parameters = int(table.shape[1]), table.numel()

    def encode(self, texts: Sequence[str], progress: Callable[[int], None] = lambda done: None) -> NDArray[np.float32]:
        """Average the vectors of each text: (N, W)."""
        assert self.find is not None  # noqa: S101 (for the type checker)
        vectors = np.zeros((len(texts), self.width), np.float32)
        for begin in range(0, len(texts), GROUP):
            some = texts[begin : begin + GROUP]
            rows = self.find(some)
            flat = torch.tensor([row for each in rows for row in each], dtype=torch.int64)
            offsets = torch.from_numpy(np.cumsum([0, *map(len, rows[:-1])]))
            found = F.embedding_bag(flat, self.table, offsets, mode="mean")
            vectors[begin : begin + len(some)] = (F.normalize(found, dim=1) if self.normalize else found).numpy()
            progress(len(some))
        return vectors


def _table(tensors: dict[str, Tensor], file: Path) -> Tensor:
    """Find the table, with one row per token: rows that tokens share, and weights of tokens, are folded in."""
    table = tensors.get("embedding.weight", tensors.get("embeddings"))
    if table is None or table.ndim != 2 or not table.numel():
        raise UserError(f"{file}: no table named embeddings or embedding.weight.")
    table = table.float()
    if (mapping := tensors.get("mapping")) is not None:
        if (
            mapping.ndim != 1
            or mapping.is_floating_point()
            or not 0 <= int(mapping.min()) <= int(mapping.max()) < len(table)
        ):
            raise UserError(f"{file}: mapping names rows that do not exist.")
        table = table[mapping.long()]
    if (weights := tensors.get("weights")) is not None:
        if weights.shape != (len(table),):
            raise UserError(f"{file}: weights has the shape {tuple(weights.shape)} for {len(table)} tokens.")
        table = table * weights[:, None].float()
    return table.contiguous()


def _token_finder(file: Path, rows: int, *, known: bool = False) -> Find:
    """Make what tokenizes texts. `known` leaves unknown tokens out; ids past the table's end are its last row."""
    import tokenizers

    text, notes = check_tokenizer(file)
    for note in notes:
        print_note(note)
    try:
        inner = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises nothing more specific
        raise UserError(f"{file} is not a readable tokenizer.json: {error}") from error
    inner.no_padding()
    inner.no_truncation()
    unknown = _unknown(json.loads(text), inner) if known else None

    def find(texts: Sequence[str]) -> list[list[int]]:
        encoded = inner.encode_batch_fast(list(texts), add_special_tokens=False)
        return [[min(row, rows - 1) for row in each.ids if row != unknown] for each in encoded]

    return find


def _unknown(fields: dict[str, Any], inner: Any) -> int | None:  # noqa: ANN401 (a tokenizers.Tokenizer)
    """Find the id of the unknown token, as model2vec does."""
    model = fields["model"]
    found = inner.token_to_id(model["unk_token"]) if model.get("unk_token") else model.get("unk_id")
    return None if found is None else int(found)


def _words(root: Path) -> tuple[Tensor, Find]:
    words = read_json(inside(root, WORDS))
    table = read_tensors(inside(root, VECTORS)).get("vectors")
    fits = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if not fits or table is None or table.ndim != 2 or len(table) != len(words):
        raise UserError(f"{root}: {WORDS} and {VECTORS} do not belong together.")
    rows = {word: row for row, word in reversed(list(enumerate(words)))}
    seen: dict[str, list[int]] = {}

    def find_word(word: str) -> list[int]:
        for form in (word, word.lower()):
            if form in rows:
                return [rows[form]]
        parts = [part for part in PARTS.split(word) if part]
        return [row for part in parts for row in find_word(part)] if len(parts) > 1 else []

    def find(texts: Sequence[str]) -> list[list[int]]:
        found = []
        for text in texts:
            here = []
            for begin, end in word_spans(text):
                word = text[begin:end]
                if word not in seen:
                    if len(seen) > 1 << 20:
                        seen.clear()
                    seen[word] = find_word(word)
                here += seen[word]
            found.append(here)
        return found

    return table, find
