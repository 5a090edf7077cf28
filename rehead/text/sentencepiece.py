"""Convert a SentencePiece model, with its fairseq dictionary, to a `Tokenizer`.

    sentencepiece.french.model     pieces with scores, and normalisation rules: a protocol buffer
    dict.txt                       a piece and a count per line; line k (from 0) has the id 4 + k

The ids are `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the dictionary in order (or, without one, the model's pieces
in order). The result is an ordinary `tokenizer.json` that tokenizes raw text as SentencePiece does: same normalisation,
`▁` for spaces, merges (BPE) or scores (unigram) from the model.

The few fields needed are parsed from the protocol buffer in the forty lines of `read_model`, without a dependency. The
`sentencepiece` package is the reference in the tests. All 2,000 French book reviews of Webis-CLS-10 get the same pieces
as from the package. So do raw French reviews, except 3 of 89,640: a letter of more than three bytes with a combining
accent (a mathematical 𝑒 with ´) is composed by SentencePiece and not by `tokenizers`.

A run of characters that are not in the dictionary becomes one `<unk>`, as in SentencePiece, and cannot be decoded.

Where dictionary and model disagree, the tokenizer's `notes` say so: a piece that is only in the dictionary keeps its id
and is never produced; a piece that is only in the model gets no id, and text is split into others. User-defined symbols
are special tokens: they keep their ids but are never produced from text, which is noted too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from rehead.errors import UserError, short_repr
from rehead.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from rehead.text.tokenizer_gate import MAX_BYTES, MAX_PIECE, read_limited

SPECIAL_TOKENS = (BOS, PAD, EOS, UNK)
SPACE = "▁"
NEVER = -1000.0  # score of a unigram piece that must not be produced; others have about -3 to -20


class Type(IntEnum):
    """Type of a piece, as numbered in the protocol buffer."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass
class SentencePieceModel:
    """The fields of a SentencePiece model that are used. The defaults are those of its protocol buffer."""

    pieces: dict[str, tuple[float, Type]] = field(default_factory=dict)
    "Piece → (score, type), in the model's order."
    algorithm: int = 1
    "1 unigram, 2 BPE; 3 (words) and 4 (characters) are not supported."
    space_at_end: bool = False
    byte_fallback: bool = False
    charsmap: bytes = b""
    "Precompiled normalisation rules."
    dummy_prefix: bool = True
    remove_extra_spaces: bool = True
    escape_spaces: bool = True


def read_sentencepiece(model: str | Path, dict_txt: str | Path | None = None) -> Tokenizer:
    """Create a tokenizer from a `.model` file and its `dict.txt`."""
    path = Path(model)
    spec = read_model(read_limited(path, MAX_BYTES, "SentencePiece model"), str(path))
    if spec.algorithm not in (1, 2):
        raise UserError(f"{path}: only unigram and BPE models are supported, not word or character models.")
    if spec.space_at_end or not spec.escape_spaces:
        raise UserError(f"{path}: models that treat white space as a suffix, or do not escape it, are not supported.")

    usable = {
        piece: score
        for piece, (score, kind) in spec.pieces.items()
        if kind not in (Type.UNKNOWN, Type.CONTROL) and piece not in SPECIAL_TOKENS
    }
    listed = list(usable) if dict_txt is None else read_dictionary(Path(dict_txt))
    notes = []
    if only_listed := [piece for piece in listed if piece not in usable]:
        notes.append(f"{dict_txt}: {_some(only_listed)} not in {path}: they keep their ids and are never produced.")
    if only_usable := sorted(usable.keys() - set(listed)):
        notes.append(f"{path}: {_some(only_usable)} not in {dict_txt}: they get no ids, text is split into others.")
    if user_defined := [piece for piece, (_, kind) in spec.pieces.items() if kind is Type.USER_DEFINED]:
        notes.append(
            f"{path}: {_some(user_defined)} user-defined symbols: they keep their ids, but text never produces them."
        )
    return Tokenizer.from_json(_assemble(spec, [*SPECIAL_TOKENS, *listed]).to_str(), str(path), notes)


def read_dictionary(path: Path) -> list[str]:
    """Read the pieces of a `dict.txt`, in order."""
    pieces: dict[str, int] = {}
    try:
        text = read_limited(path, MAX_BYTES, "dictionary").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 (byte {error.start}). Give the dict.txt of the model.") from None
    # Only "\n" ends a line: other characters that str.splitlines would split at can be pieces.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        piece, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not piece or not count.rstrip("\r").isdigit():
            raise UserError(f"{path} line {number}: expected a piece, a space and a count. Give the model's dict.txt.")
        if piece in SPECIAL_TOKENS:
            raise UserError(f"{path} line {number}: {piece} is a special token and has an id already. Remove the line.")
        if piece in pieces:
            raise UserError(f"{path} line {number}: {piece!r} is already on line {pieces[piece]}. Remove one of them.")
        pieces[piece] = number
    return list(pieces)


def read_model(data: bytes, name: str) -> SentencePieceModel:
    """Parse the fields needed from the protocol buffer; `name` is for messages."""
    spec = SentencePieceModel()
    try:
        for number, value in _fields(data):
            if number == 1:
                entry = dict(_fields(value))
                spec.pieces[entry[1].decode()] = (entry.get(2, 0.0), Type(entry.get(3, 1)))
            elif number == 2:  # trainer_spec
                trainer = dict(_fields(value))
                spec.algorithm = trainer.get(3, 1)
                spec.space_at_end, spec.byte_fallback = bool(trainer.get(24, 0)), bool(trainer.get(35, 0))
            elif number == 3:  # normalizer_spec
                rules = dict(_fields(value))
                spec.charsmap = rules.get(2, b"")
                spec.dummy_prefix, spec.remove_extra_spaces = bool(rules.get(3, 1)), bool(rules.get(4, 1))
                spec.escape_spaces = bool(rules.get(5, 1))
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, struct.error):
        raise UserError(f"{name} is damaged or not a SentencePiece model.") from None
    if long := next((piece for piece in spec.pieces if len(piece) > MAX_PIECE), None):
        raise UserError(f"{name}: the piece {short_repr(long)} is longer than the limit of {MAX_PIECE} characters.")
    if not spec.pieces:
        raise UserError(f"{name} is not a SentencePiece model: it has no pieces.")
    return spec


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protocol-buffer message: (field number, value), where a value is int, float or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value: int | float | bytes
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 1:
            (value,) = struct.unpack_from("<d", data, at)
            at += 8
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise ValueError("the message ends in the middle of a field")
        elif wire == 5:
            (value,) = struct.unpack_from("<f", data, at)
            at += 4
        else:
            raise ValueError(f"wire type {wire}")
        yield number, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
        at, result, shift = at + 1, result | (byte & 127) << shift, shift + 7
        if byte < 128:
            return result, at


def _assemble(spec: SentencePieceModel, tokens: list[str]) -> Any:  # noqa: ANN401 (a tokenizers.Tokenizer)
    import tokenizers
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

    ids = {token: number for number, token in enumerate(tokens)}
    produced = {
        token: spec.pieces[token][0]
        for token in tokens[len(SPECIAL_TOKENS) :]
        if token in spec.pieces and spec.pieces[token][1] is Type.NORMAL
    }
    if spec.algorithm == 2:
        inner = tokenizers.Tokenizer(
            models.BPE(
                vocab=ids,
                merges=_merges(produced),
                unk_token=UNK,
                fuse_unk=True,
                byte_fallback=spec.byte_fallback,
            )
        )
    else:
        scored = [(token, produced.get(token, NEVER)) for token in tokens]
        inner = tokenizers.Tokenizer(models.Unigram(scored, ids[UNK], byte_fallback=spec.byte_fallback))

    steps: list[Any] = [normalizers.Precompiled(spec.charsmap)] if spec.charsmap else []
    if spec.remove_extra_spaces:
        steps.append(normalizers.Replace(Regex(r"\A +| +\z|(?<= ) +"), ""))
    inner.normalizer = normalizers.Sequence(steps)
    # Splitting into words first lets `tokenizers` cache them; it is not possible if pieces span several words.
    split = not any(SPACE in piece.lstrip(SPACE) for piece in produced)
    scheme = "always" if spec.dummy_prefix else "never"
    inner.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=split)
    metaspace = decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), metaspace]) if spec.byte_fallback else metaspace
    user_defined = [token for token in tokens if token in spec.pieces and spec.pieces[token][1] is Type.USER_DEFINED]
    inner.add_special_tokens([*SPECIAL_TOKENS, *user_defined])
    return inner


def _merges(scores: dict[str, float]) -> list[tuple[str, str]]:
    """List the merges of SentencePiece's BPE by priority: all pairs of pieces whose concatenation is a piece."""
    found = []
    for piece, score in scores.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in scores and right in scores:
                found.append((-score, left, right))
    found.sort(key=lambda each: each[0])
    return [(left, right) for _, left, right in found]


def _some(pieces: list[str]) -> str:
    shown = " ".join(pieces[:5]) + (" …" if len(pieces) > 5 else "")
    return f"{len(pieces):,} pieces ({shown}) are"
