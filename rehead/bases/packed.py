"""The engine of encoders of the BERT family: `tokenizer.json` → `Bert` → pooling, without transformers.

Texts are sorted by length, and those of a batch of about so many tokens are read without padding. The vectors are those
of `rehead.bases.encoder` within rounding.

In bfloat16 the work takes 0.6 of the time on processors that multiply it (AVX512-BF16, AMX; elsewhere it is slower),
and vectors change by 3e-3 at most. So it is done only where the user asks for it, `REHEAD_ENCODER=bfloat16`: the same
run has to give the same probabilities on every machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import tokenizers
import torch
from torch import Tensor

from rehead.bases.bert import WORDS, Bert, Precision, Shape, expected_tensors, read_weights, shape_of
from rehead.bases.encoder import UNLIMITED, check_room, read_sentence, read_steps
from rehead.bases.files import CONFIG, TOKENIZER_CONFIG, TOKENIZER_JSON, fields_of, inside
from rehead.bases.pieces import HEAD, Cutting, TextCutter
from rehead.bases.tokenizer_file import open_tokenizer
from rehead.bases.tokens import token_finder
from rehead.errors import UserError, short_repr

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH_TOKENS = 2_048  # on a CPU the activations stay in its cache
PRECISION = "REHEAD_ENCODER"  # the environment variable


def packed_shape(root: Path) -> Shape | None:
    """Say whether a directory can be read here: a model of the family, with a `tokenizer.json`."""
    home = read_sentence(root).home
    return shape_of(fields_of(home, CONFIG)) if (home / TOKENIZER_JSON).is_file() else None


def precision() -> Precision:
    """In what precision encoders compute: float32, unless the user says otherwise."""
    given = os.environ.get(PRECISION) or "float32"
    if given not in get_args(Precision):
        raise UserError(f"{PRECISION}={short_repr(given)} is not known. Choose {' or '.join(get_args(Precision))}.")
    return given  # type: ignore[return-value] # checked


class PackedEncoder:
    """An encoder that is loaded, and does not change."""

    def __init__(self, root: Path, shape: Shape) -> None:
        self.root, self.shape, self.sentence = root, shape, read_sentence(root)
        weights = read_weights(self.sentence.home, shape)
        self.precision: str = (how := precision())
        self.bert = Bert(shape, weights, how)
        self.steps = read_steps(root, self.sentence, shape.nhid)
        self.width = self.steps.width
        self.parameters = sum(
            each.numel() for name, each in weights.items() if name in expected_tensors(shape) or "pooler." in name
        )
        self.work = self.parameters - weights[f"{WORDS}.weight"].numel()
        fields = fields_of(self.sentence.home, TOKENIZER_CONFIG, required=False)
        longest = max_length(self.sentence.max_length, fields.get("model_max_length"), shape)
        self.max_length: int | None = longest
        self.tokenizer = read_tokenizer(self.sentence.home, fields)
        self.stated: dict[str, Any] = {
            "special": True, "prompt": self.sentence.prompt, "lowercase": self.sentence.lowercase, "strip": True,
            "longest": longest, "empty": shape.pad,
        }  # fmt: skip
        check_room(root, longest, self.tokenizer, self.sentence.prompt)
        self.token_ids = token_finder(self.tokenizer, self.stated)
        said = self.sentence
        self.cutter = TextCutter(
            self.token_ids, self.tokenizer, longest=longest, prompt=said.prompt, lowercase=said.lowercase, root=root
        )
        self.skipped = self._prompt_length() if self.sentence.prompt and not self.steps.prompt else 0

    def encode(self, texts: Sequence[str], how: Cutting = HEAD) -> NDArray[np.float32]:
        """Encode texts, the vectors of the pieces of a long one averaged: (N, W)."""
        if not texts:
            return np.zeros((0, self.width), np.float32)
        return self.cutter.encode(texts, how, lambda lengths: packed_batches(lengths, BATCH_TOKENS), self.vectors_of)

    @property
    def tokens_file(self) -> str:
        """What texts are tokenized by: the content of a tokenizer.json."""
        return self.tokenizer.to_str()

    def vectors_of(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Encode token ids, those of one length together, as one batch: (B, W)."""
        groups = [torch.tensor(list(some)) for _, some in groupby(ids, len)]
        if max(int(each.max()) for each in groups) >= self.shape.ntokens:
            raise UserError(f"{self.root}: the tokenizer has tokens that the model does not know. Copy it again.")
        with torch.inference_mode():
            vectors = [
                self.steps.vectors(hidden, torch.ones(hidden.shape[:2], dtype=torch.bool), self.skipped)
                for hidden in self.bert(groups)
            ]
            return torch.cat(vectors).clone()

    def _prompt_length(self) -> int:
        """Count the tokens of the prompt, the special one at its end left out."""
        encoded = self.tokenizer.encode(self.sentence.prompt)
        return len(encoded.ids) - sum(encoded.special_tokens_mask[-1:])


def packed_batches(lengths: Sequence[int], tokens: int) -> Iterator[NDArray[np.int64]]:
    """Put texts of about the same length together, the longest first, until a batch has so many tokens."""
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    ends = np.cumsum(np.asarray(lengths, np.int64)[order])
    begin = 0
    while begin < len(order):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + tokens, side="right")))
        yield order[begin:end]
        begin = end


def max_length(stated: object, tokenizer: object, shape: Shape) -> int:
    """Find how many tokens are read: what is stated, but never more than there are positions."""
    given = stated if isinstance(stated, int) and not isinstance(stated, bool) else tokenizer
    fits = isinstance(given, int | float) and 1 <= given < UNLIMITED
    return min(int(given), shape.longest) if fits else shape.longest  # type: ignore[call-overload]


def read_tokenizer(home: Path, fields: dict[str, Any]) -> tokenizers.Tokenizer:
    """Read `tokenizer.json`; `tokenizer_config.json` decides about case, as in transformers."""
    made = open_tokenizer(inside(home, TOKENIZER_JSON))
    if isinstance(old := made.normalizer, tokenizers.normalizers.BertNormalizer):
        stated = {
            "lowercase": fields.get("do_lower_case", old.lowercase),
            "strip_accents": fields.get("strip_accents", old.strip_accents),
            "handle_chinese_chars": fields.get("tokenize_chinese_chars", old.handle_chinese_chars),
        }
        if odd := next((each for each in stated.values() if each not in (True, False, None)), None):
            raise UserError(f"{home / TOKENIZER_CONFIG}: {short_repr(odd)} where true or false is expected.")
        made.normalizer = tokenizers.normalizers.BertNormalizer(clean_text=old.clean_text, **stated)
    return made
