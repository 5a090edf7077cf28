r"""What a `tokenizer.json` may hold before `tokenizers` is given it: an allow-list of components, each with bounds.

A `tokenizer.json` is a small program. Without bounds, a file of one kilobyte can turn a text into a billion characters
(`Replace` in `Replace`), search for hours in one word (a regular expression that backtracks, WordPiece without a limit
per word) or give other tokens at each call (BPE dropout). Everything that loads one comes through `check_tokenizer`:
runs, `--tokenizer`, and what rehead converts itself.

What passes is what rehead writes, and what the usual models come with: WordPiece (BERT), byte-level BPE (GPT-2,
RoBERTa, ModernBERT, Llama 3) and Unigram (XLM-R, T5), with their normalizers, pre-tokenizers, post-processors and
decoders. Anything else is refused by name. Regular expressions are not analysed: only those in `PATTERNS`, and the one
that rehead writes itself, pass.

    file          at most 32 MB and 4 million values: parsing it takes seconds and less than 1 GB at worst
    vocabulary    at most 2^20 tokens of 512 characters, ids below 2^21; pieces of Unigram 128 characters
    WordPiece     at most 200 characters per word: its time is cubic in them
    normalizers   together make at most 1,000 characters of one; 16 steps, nested 4 deep
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rehead.disk import parse_json, read_whole
from rehead.errors import DamagedError, UserError, short_repr

MAX_BYTES = 32 * 2**20
MAX_VALUES = 2**22
MAX_TOKENS, MAX_ID = 2**20, 2**21
MAX_TOKEN, MAX_PIECE, MAX_ADDED = 512, 128, 1024
MAX_WORD = 200  # characters of a word that WordPiece looks at
MAX_STEPS, MAX_DEPTH = 16, 4
MAX_CONTENT = 16  # characters that a text is replaced by, or that are put before it
MAX_EXPANSION = 1000  # characters that the normalizers make of one
MAX_CHARSMAP = 4 * 2**20
MAX_TEMPLATE = 16

# Regular expressions of published tokenizers, as they stand there. None of them backtracks without end.
_ENDINGS = "'s|'t|'re|'ve|'m|'ll|'d"
_LINES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = rf"(?i:{_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*" + _LINES
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = frozenset(
    {
        *(" {2,}", r"\s{2,}|[\n\r\t]", r"[\n\r\t]", r"\s+"),  # SentencePiece models, converted by transformers
        r"\A +| +\z|(?<= ) +",  # and by rehead
        _ENDINGS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
        _WORDS + r"\p{N}{1,3}|" + _MARKS,  # GPT-4 (cl100k), Llama 3
        _WORDS + r"\p{N}|" + _MARKS,  # Qwen 2
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+(?i:{_ENDINGS})?|"  # GPT-4o (o200k)
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*(?i:{_ENDINGS})?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _LINES,
    }
)


class CheckedTokenizer(NamedTuple):
    """A `tokenizer.json` that is safe to load."""

    text: str
    "The file, as `tokenizers` may read it: without dropout, truncation or padding."
    notes: list[str]
    "What was switched off that would have made a difference, one sentence each."


def check_tokenizer(given: Path | bytes | str, name: str | None = None) -> CheckedTokenizer:
    """Check a `tokenizer.json`, given by its path or content; refuse all that is not on the list.

    `name` is for messages.
    """
    name = name or (str(given) if isinstance(given, Path) else "tokenizer.json")
    if isinstance(given, Path):
        given = read_limited(given, MAX_BYTES, "tokenizer")
    if isinstance(given, str):
        given = given.encode("utf-8", "surrogatepass")
    if len(given) > MAX_BYTES:
        raise UserError(f"{name}: {len(given):,} bytes exceed the limit of {MAX_BYTES:,} for a tokenizer.")
    if sum(given.count(each) for each in b",[{") > MAX_VALUES:
        raise UserError(f"{name}: more than {MAX_VALUES:,} values, which no tokenizer has.")
    try:
        spec = parse_json(given, name)
    except DamagedError as error:
        raise UserError(f"{name} is not a readable tokenizer.json: {error}") from None
    try:
        notes = _check(spec)
    except _RefusedError as error:
        raise UserError(
            f"{name}: {error}. It is refused: only the parts of usual tokenizers are loaded, within limits "
            "(docs/security.md)."
        ) from None
    return CheckedTokenizer(json.dumps(spec, ensure_ascii=False), [f"{name}: {note}" for note in notes])


def read_limited(path: Path, limit: int, what: str) -> bytes:
    """Read a file that the user gave, up to `limit` bytes."""
    try:
        return read_whole(path, limit)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file. Give the path of a {what}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read as a {what}: {error.strerror}.") from None


class _RefusedError(Exception):
    """What is wrong, without the name of the file."""


Check = Callable[[Any, str], None]
"Takes a value and the name of its place; raises `_RefusedError`."


def _need(fits: bool, value: object, at: str, wanted: str) -> None:
    if not fits:
        raise _RefusedError(f"{at} is {short_repr(value)}; expected {wanted}")


def _flag(value: Any, at: str) -> None:  # noqa: ANN401 (anything JSON may hold)
    _need(isinstance(value, bool), value, at, "true or false")


def _optional_flag(value: Any, at: str) -> None:  # noqa: ANN401
    _need(value is None or isinstance(value, bool), value, at, "true, false or null")


def _whole(low: int, high: int) -> Check:
    def check(value: Any, at: str) -> None:  # noqa: ANN401
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        _need(fits, value, at, f"a whole number from {low:,} to {high:,}")

    return check


def _optional(check: Check) -> Check:
    return lambda value, at: None if value is None else check(value, at)


def _string(longest: int, shortest: int = 0) -> Check:
    def check(value: Any, at: str) -> None:  # noqa: ANN401
        fits = isinstance(value, str) and shortest <= len(value) <= longest and _encodes(value)
        _need(fits, value, at, f"a text of {shortest} to {longest} characters")

    return check


def _one_of(*choices: str) -> Check:
    return lambda value, at: _need(value in choices, value, at, " or ".join(choices))


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _fields(value: Any, at: str, checks: Mapping[str, Check], required: tuple[str, ...] = ()) -> None:  # noqa: ANN401
    """Check an object: no field that is not listed, and each as its check demands."""
    _need(isinstance(value, dict), value, at, "an object")
    for key in required:
        if key not in value:
            raise _RefusedError(f"{at} lacks {key!r}")
    for key, each in value.items():
        if key not in checks:
            raise _RefusedError(f"{at} has a field {short_repr(key)}, which is not known here")
        checks[key](each, f"{at}.{key}")


def _list(value: Any, at: str, longest: int, check: Check) -> None:  # noqa: ANN401
    _need(isinstance(value, list) and len(value) <= longest, value, at, f"a list of at most {longest:,}")
    for number, each in enumerate(value):
        check(each, f"{at}[{number}]")


# Patterns ------------------------------------------------------------------------------------------------------------

# `(?<=\[MASK)\]|(?<=</s)>`: the last character of special tokens (`rehead.text.tokenizer`).
_LITERAL = r"(?:\\.|[^\\()\[\]{}.*+?^$|])"
_OWN_PATTERN = re.compile(rf"(?:\(\?<={_LITERAL}{{0,{MAX_TOKEN}}}\){_LITERAL}(?:\||\Z))+", re.DOTALL)


def _pattern(value: Any, at: str) -> None:  # noqa: ANN401
    _need(isinstance(value, dict) and len(value) == 1, value, at, "String or Regex")
    [(kind, text)] = value.items()
    _need(kind in ("String", "Regex"), kind, at, "String or Regex")
    if kind == "String":
        _string(MAX_TOKEN, 1)(text, at)
    elif not isinstance(text, str) or not (text in PATTERNS or _own_pattern(text)):
        raise _RefusedError(f"{at} is the regular expression {short_repr(text)}, which is not on the list")


def _own_pattern(text: str) -> bool:
    return len(text) <= MAX_ADDED * MAX_PIECE and _OWN_PATTERN.fullmatch(text) is not None and not text.endswith("|")


# Normalizers: what a character may become ----------------------------------------------------------------------------


def _charsmap(value: Any, at: str) -> None:  # noqa: ANN401
    _need(isinstance(value, str) and len(value) <= MAX_CHARSMAP, value, at, f"at most {MAX_CHARSMAP:,} bytes of base64")
    _longest_in_charsmap(value, at)


def _longest_in_charsmap(value: str, at: str) -> int:
    """Find the longest text that a compiled table of SentencePiece puts in place of a character."""
    try:
        data = base64.b64decode(value, validate=True)
        (size,) = struct.unpack_from("<I", data)
    except (binascii.Error, ValueError, struct.error):
        raise _RefusedError(f"{at} is not a table of SentencePiece") from None
    if size % 4 or 4 + size > len(data):
        raise _RefusedError(f"{at} is not a table of SentencePiece: it ends early")
    return max(len(each.decode(errors="replace")) for each in data[4 + size :].split(b"\0"))


_LOWERCASE, _CANONICAL, _COMPATIBLE, _BYTES = 3, 4, 18, 4  # most characters that Unicode, or bytes, make of one


def _expansion(step: Mapping[str, Any]) -> int:
    """Most characters that a normalizer makes of one."""
    kind = step["type"]
    if kind == "Sequence":
        return math.prod(map(_expansion, step["normalizers"]))
    if kind == "Replace":
        [(pattern, text)] = step["pattern"].items()
        return max(1, -(-len(step["content"]) // (len(text) if pattern == "String" else 1)))
    if kind == "Precompiled":
        return max(1, _longest_in_charsmap(step["precompiled_charsmap"], kind))
    return {
        "Lowercase": _LOWERCASE,
        "BertNormalizer": _LOWERCASE,
        "NFC": _CANONICAL,
        "NFD": _CANONICAL,
        "NFKC": _COMPATIBLE,
        "NFKD": _COMPATIBLE,
        "ByteLevel": _BYTES,
    }.get(kind, 1)


# Components by kind: their fields -------------------------------------------------------------------------------------

Components = Mapping[str, Mapping[str, Check]]

_BYTE_LEVEL: Mapping[str, Check] = {"add_prefix_space": _flag, "trim_offsets": _flag, "use_regex": _flag}
_METASPACE: Mapping[str, Check] = {
    "replacement": _string(1, 1),
    "str_rep": _string(1, 1),
    "add_prefix_space": _flag,
    "prepend_scheme": _one_of("always", "never", "first"),
    "split": _flag,
}
_BEHAVIOR = _one_of("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
_REPLACE: Mapping[str, Check] = {"pattern": _pattern, "content": _string(MAX_CONTENT)}

NORMALIZERS: Components = {
    "BertNormalizer": {
        "clean_text": _flag,
        "handle_chinese_chars": _flag,
        "strip_accents": _optional_flag,
        "lowercase": _flag,
    },
    **{name: {} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")},
    "Strip": {"strip_left": _flag, "strip_right": _flag},
    "Precompiled": {"precompiled_charsmap": _charsmap},
    "Replace": _REPLACE,
    "Prepend": {"prepend": _string(MAX_CONTENT)},
}

PRE_TOKENIZERS: Components = {
    "ByteLevel": _BYTE_LEVEL,
    "Metaspace": _METASPACE,
    **{name: {} for name in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")},
    "Punctuation": {"behavior": _BEHAVIOR},
    "Digits": {"individual_digits": _flag},
    "Split": {"pattern": _pattern, "behavior": _BEHAVIOR, "invert": _flag},
}

DECODERS: Components = {
    "ByteLevel": _BYTE_LEVEL,
    "Metaspace": _METASPACE,
    "WordPiece": {"prefix": _string(MAX_CONTENT), "cleanup": _flag},
    "BPEDecoder": {"suffix": _string(MAX_CONTENT)},
    **{name: {} for name in ("ByteFallback", "Fuse")},
    "Strip": {"content": _string(1, 1), "start": _whole(0, MAX_CONTENT), "stop": _whole(0, MAX_CONTENT)},
    "Replace": _REPLACE,
}


def _token_and_id(value: Any, at: str) -> None:  # noqa: ANN401
    _need(isinstance(value, list) and len(value) == 2, value, at, "a token and its id")
    _string(MAX_TOKEN)(value[0], at)
    _whole(0, MAX_ID)(value[1], at)


def _template(value: Any, at: str) -> None:  # noqa: ANN401
    """One text with special tokens round it: each sequence of the template at most once."""
    piece: Mapping[str, Check] = {"id": _string(MAX_TOKEN), "type_id": _whole(0, 255)}
    kinds: Mapping[str, Check] = dict.fromkeys(
        ("SpecialToken", "Sequence"), lambda each, at: _fields(each, at, piece, ("id", "type_id"))
    )
    _list(value, at, MAX_TEMPLATE, lambda each, at: _fields(each, at, kinds))
    sequences = [each["Sequence"]["id"] for each in value if "Sequence" in each]
    _need(len(sequences) == len(set(sequences)), sequences, at, "each text once")


def _template_tokens(value: Any, at: str) -> None:  # noqa: ANN401
    _need(isinstance(value, dict) and len(value) <= MAX_TEMPLATE, value, at, f"at most {MAX_TEMPLATE} tokens")
    checks: Mapping[str, Check] = {
        "id": _string(MAX_TOKEN),
        "ids": lambda ids, at: _list(ids, at, MAX_TEMPLATE, _whole(0, MAX_ID)),
        "tokens": lambda tokens, at: _list(tokens, at, MAX_TEMPLATE, _string(MAX_TOKEN)),
    }
    for each in value.values():
        _fields(each, at, checks)


_ENDS: Mapping[str, Check] = {"sep": _token_and_id, "cls": _token_and_id}
POST_PROCESSORS: Components = {
    "ByteLevel": _BYTE_LEVEL,
    "BertProcessing": _ENDS,
    "RobertaProcessing": {**_ENDS, "trim_offsets": _flag, "add_prefix_space": _flag},
    "TemplateProcessing": {"single": _template, "pair": _template, "special_tokens": _template_tokens},
}

# By section: what a Sequence calls its parts, and which there may be.
PARTS: Mapping[str, tuple[str, Components]] = {
    "normalizer": ("normalizers", NORMALIZERS),
    "pre_tokenizer": ("pretokenizers", PRE_TOKENIZERS),
    "post_processor": ("processors", POST_PROCESSORS),
    "decoder": ("decoders", DECODERS),
}


def _steps(value: Any, at: str, parts: str, known: Components, depth: int = 1) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401
    """Check a component, or a sequence of them; yield those that are no sequence."""
    _need(isinstance(value, dict) and isinstance(value.get("type"), str), value, at, "an object with a type")
    kind, fields = value["type"], {key: each for key, each in value.items() if key != "type"}
    if kind == "Sequence":
        if depth == MAX_DEPTH:
            raise _RefusedError(f"{at} is nested more than {MAX_DEPTH} deep")
        _fields(fields, at, {parts: lambda each, at: _list(each, at, MAX_STEPS, lambda *_: None)}, (parts,))
        for number, each in enumerate(fields[parts]):
            yield from _steps(each, f"{at}[{number}]", parts, known, depth + 1)
    elif kind in known:
        _fields(fields, f"{at} {kind}", known[kind])
        yield value
    else:
        raise _RefusedError(f"{at} {short_repr(kind)} is not on the list ({', '.join(known)})")


# Models ---------------------------------------------------------------------------------------------------------------


def _vocabulary(value: Any, at: str) -> None:  # noqa: ANN401
    _need(
        isinstance(value, dict) and len(value) <= MAX_TOKENS, value, at, f"an object of at most {MAX_TOKENS:,} tokens"
    )
    _need(all(type(each) is int and 0 <= each < MAX_ID for each in value.values()), value, at, f"ids below {MAX_ID:,}")
    _need(len(set(value.values())) == len(value), value, at, "a different id for each token")
    _short_tokens(value, at, MAX_TOKEN)


def _short_tokens(tokens: Any, at: str, longest: int) -> None:  # noqa: ANN401
    if odd := next((each for each in tokens if len(each) > longest or not _encodes(each)), None):
        raise _RefusedError(f"{at} has the token {short_repr(odd)}; expected at most {longest} characters of Unicode")


def _scores(value: Any, at: str) -> None:  # noqa: ANN401
    _need(isinstance(value, list) and len(value) <= MAX_TOKENS, value, at, f"a list of at most {MAX_TOKENS:,} pieces")
    for each in value:
        fits = isinstance(each, list) and len(each) == 2 and isinstance(each[0], str)
        fits = fits and type(each[1]) in (int, float) and abs(each[1]) <= 1e9
        _need(fits, each, at, "pieces, each with a score")
    _short_tokens((each[0] for each in value), at, MAX_PIECE)


def _merges(value: Any, at: str) -> None:  # noqa: ANN401
    _need(isinstance(value, list) and len(value) <= MAX_TOKENS, value, at, f"a list of at most {MAX_TOKENS:,} merges")
    for each in value:
        pair = each.split(" ") if isinstance(each, str) else each
        fits = isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
        _need(fits, each, at, "pairs of tokens")


def _dropout(value: Any, at: str) -> None:  # noqa: ANN401
    _need(value is None or type(value) in (int, float), value, at, "a probability or null")


_UNKNOWN = _optional(_string(MAX_TOKEN))
_AFFIX = _optional(_string(MAX_CONTENT))
MODELS: Components = {
    "BPE": {
        "dropout": _dropout,
        "unk_token": _UNKNOWN,
        "continuing_subword_prefix": _AFFIX,
        "end_of_word_suffix": _AFFIX,
        "fuse_unk": _flag,
        "byte_fallback": _flag,
        "ignore_merges": _flag,
        "vocab": _vocabulary,
        "merges": _merges,
    },
    "WordPiece": {
        "unk_token": _UNKNOWN,
        "continuing_subword_prefix": _AFFIX,
        "max_input_chars_per_word": _whole(1, MAX_WORD),
        "vocab": _vocabulary,
    },
    "Unigram": {
        "unk_id": _optional(_whole(0, MAX_TOKENS)),
        "byte_fallback": _flag,
        "alpha": _dropout,
        "nbest_size": _dropout,
        "vocab": _scores,
    },
    "WordLevel": {"unk_token": _UNKNOWN, "vocab": _vocabulary},
}
# Older files do not name the type of their model: these fields tell.
_TELLING = {"merges": "BPE", "max_input_chars_per_word": "WordPiece", "unk_id": "Unigram"}


def _model(value: Any) -> None:  # noqa: ANN401
    _need(isinstance(value, dict), value, "model", "an object")
    value.setdefault("type", next((kind for field, kind in _TELLING.items() if field in value), None))
    list(_steps(value, "model", "models", MODELS))
    if "vocab" not in value:
        raise _RefusedError("model has no vocab")


def _added(value: Any, at: str) -> None:  # noqa: ANN401
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    _fields(
        value,
        at,
        {"id": _whole(0, MAX_ID), "content": _string(MAX_PIECE, 1), **dict.fromkeys(flags, _flag)},
        ("id", "content"),
    )


# The whole ------------------------------------------------------------------------------------------------------------

_SECTIONS = ("version", "truncation", "padding", "added_tokens", "model", *PARTS)


def _check(spec: Any) -> list[str]:  # noqa: ANN401 (anything JSON may hold)
    """Check a whole tokenizer, and switch off in it what rehead never uses; return notes on that."""
    _fields(spec, "the file", dict.fromkeys(_SECTIONS, lambda *_: None), ("model",))
    _model(spec["model"])
    spec["added_tokens"] = spec.get("added_tokens") or []
    _list(spec["added_tokens"], "added_tokens", MAX_ADDED, _added)
    for section, (parts, known) in PARTS.items():
        if (value := spec.get(section)) is None:
            continue
        steps = list(_steps(value, section, parts, known))
        _need(len(steps) <= MAX_STEPS, len(steps), f"the number of steps of {section}", f"at most {MAX_STEPS}")
        factor = math.prod(_expansion(each) for each in steps)
        if section in ("normalizer", "decoder") and factor > MAX_EXPANSION:
            raise _RefusedError(f"{section} makes {factor:,} characters of one; the limit is {MAX_EXPANSION:,}")
    notes = []
    model = spec["model"]
    for field, name in (("dropout", "BPE dropout"), ("alpha", "Unigram sampling")):
        if strength := model.get(field):
            model[field] = None
            notes.append(
                f"{name} of {strength:g} is switched off: with it, the same text would get other tokens, and another "
                "prediction, at each call."
            )
    spec["truncation"] = spec["padding"] = None
    return notes
