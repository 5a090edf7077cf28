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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers
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
from rehead.bases.pieces import HEAD, Cutting
from rehead.bases.tensors import read_tensors
from rehead.bases.tokenizer_file import open_tokenizer
from rehead.bases.tokens import Words, token_finder, word_finder
from rehead.disk import read_json
from rehead.errors import UserError
from rehead.text.spans import WORD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

GROUP = 1_024  # texts at once
MAX_GROWTH, FREE_GROWTH = 64, 2**29  # how much larger than its file a table may become: times its size, plus bytes
PARTS = r"['’-]"  # where words are taken apart


class StaticTable:
    """A table that is loaded, and does not change."""

    work = 0
    max_length: int | None = None
    precision = "float32"
    stated: dict[str, Any]
    "How texts are tokenized (`rehead.bases.tokens`)."
    _source: tokenizers.Tokenizer | Words

    def __init__(self, root: Path) -> None:
        kind, self.normalize = recognise(root), False
        if kind == "words":
            table, words = _words(root)
            self.stated = {"word": WORD.pattern, "parts": PARTS}
            self.token_ids, self._source = word_finder(words, self.stated), words
        elif kind in ("wordllama", "model2vec", "sentence-static"):
            if kind == "wordllama":
                weights, file = (inside(root, each.relative_to(root).as_posix()) for each in wordllama_files(root))
            else:
                home = root / self._read_modules(root, kind)
                weights, file = inside(home, WEIGHTS), inside(home, "tokenizer.json")
            table, tokenizer = _table(read_tensors(weights), weights), open_tokenizer(file)
            # Ids past the table's end are its last row; model2vec leaves unknown tokens out.
            unknown = _unknown(tokenizer) if kind == "model2vec" else None
            self.stated = {"special": False, "unknown": unknown, "last": len(table) - 1}
            self.token_ids, self._source = token_finder(tokenizer, self.stated), tokenizer
        else:
            raise UserError(f"{root}: not a static table.")
        self.table = table
        self.width, self.parameters = int(table.shape[1]), table.numel()

    @property
    def tokens_file(self) -> str:
        """What texts are tokenized by: the content of a tokenizer.json, or of a list of words."""
        source = self._source
        return source.to_str() if isinstance(source, tokenizers.Tokenizer) else json.dumps(source)

    def _read_modules(self, root: Path, kind: str) -> str:
        """Read whether vectors are brought to unit length; name the folder of the table."""
        if kind == "model2vec":
            self.normalize = bool(fields_of(root, CONFIG).get("normalize"))
            return ""
        (_, folder), *rest = sentence_modules(root)
        if odd := next((name for name, _ in rest if name != "Normalize"), None):
            raise UserError(f"{root}: the module {odd} after a static table is not known.")
        self.normalize = bool(rest)
        return folder

    def encode(self, texts: Sequence[str], how: Cutting = HEAD) -> NDArray[np.float32]:
        """Average the vectors of each text: (N, W)."""
        vectors = np.zeros((len(texts), self.width), np.float32)
        for begin in range(0, len(texts), GROUP):
            some = texts[begin : begin + GROUP]
            rows = self.token_ids(some)
            flat = torch.tensor([row for each in rows for row in each], dtype=torch.int64)
            offsets = torch.from_numpy(np.cumsum([0, *map(len, rows[:-1])]))
            found = F.embedding_bag(flat, self.table, offsets, mode="mean")
            vectors[begin : begin + len(some)] = (F.normalize(found, dim=1) if self.normalize else found).numpy()
        return vectors


def _table(tensors: dict[str, Tensor], file: Path) -> Tensor:
    """Find the table, with one row per token: rows that tokens share, and weights of tokens, are folded in."""
    table = tensors.get("embedding.weight", tensors.get("embeddings"))
    if table is None or table.ndim != 2 or not table.numel():
        raise UserError(f"{file}: no table named embeddings or embedding.weight.")
    table = table.float()
    if (mapping := tensors.get("mapping")) is not None:
        rows = mapping.long() if mapping.ndim == 1 and not mapping.is_floating_point() else mapping.new_full((1,), -1)
        if not len(rows) or int(rows.min()) < 0 or int(rows.max()) >= len(table):
            raise UserError(f"{file}: mapping names rows that do not exist.")
        if (needed := 4 * len(rows) * table.shape[1]) > MAX_GROWTH * file.stat().st_size + FREE_GROWTH:
            raise UserError(f"{file}: with its mapping, the table would take {needed:,} bytes of memory.")
        table = table[rows]
    if (weights := tensors.get("weights")) is not None:
        if weights.shape != (len(table),):
            raise UserError(f"{file}: weights has the shape {tuple(weights.shape)} for {len(table)} tokens.")
        table = table * weights[:, None].float()
        if not table.isfinite().all():
            raise UserError(f"{file}: the table, times the weights of its tokens, holds infinity.")
    return table.contiguous()


def _unknown(inner: tokenizers.Tokenizer) -> int | None:
    """Find the id of the unknown token, as model2vec does."""
    model = json.loads(inner.to_str())["model"]
    found = inner.token_to_id(model["unk_token"]) if model.get("unk_token") else model.get("unk_id")
    return None if found is None else int(found)


def _words(root: Path) -> tuple[Tensor, Words]:
    words = read_json(inside(root, WORDS))
    table = read_tensors(inside(root, VECTORS)).get("vectors")
    count = 0 if table is None or table.ndim != 2 else len(table)
    if isinstance(words, dict):  # words that share rows
        fits = all(type(row) is int and 0 <= row < count for row in words.values())
    else:
        fits = isinstance(words, list) and len(words) == count and all(isinstance(word, str) for word in words)
    if not fits or not count or table is None or not table.is_floating_point():
        raise UserError(f"{root}: {WORDS} and {VECTORS} do not belong together.")
    return table, words
