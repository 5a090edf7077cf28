"""Tokenizers put together from any parts with any values: refused in one line, or bounded in time and output."""

from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rehead.errors import UserError
from rehead.text.tokenizer import Tokenizer
from rehead.text.tokenizer_gate import MAX_EXPANSION, PATTERNS
from tests.text.test_tokenizer_gate import BPE, BYTE_LEVEL, METASPACE, TEMPLATE, UNIGRAM, WORD_PIECE, charsmap, spec

Part = dict[str, Any]

TEXT = "aaaa film " * 20 + "ﷺ İ ½ \x00 </s>"
SECONDS = 2.0

NUMBERS = st.sampled_from([0, 1, 16, 17, 100, 200, 201, 10**9, 2**64, -1, 0.5, 1e300])
STRINGS = st.sampled_from(["", "a", "▁", "##", "a" * 16, "a" * 17, "a" * 10_000, "\u0301", "ﷺ", "</s>", "\x00"])
ANYTHING = st.none() | st.booleans() | NUMBERS | STRINGS | st.just([]) | st.just({})


def mostly(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Now and then, a value of another kind."""
    return st.integers(0, 19).flatmap(lambda draw: ANYTHING if draw == 0 else value)


REGEX = st.sampled_from([*sorted(PATTERNS), "(a+)+$", "(a|a)*b", "", "a*", ".*", "(?<=</s)>"])
PATTERN = STRINGS.map(lambda text: {"String": text}) | REGEX.map(lambda text: {"Regex": text})
REPLACE = st.fixed_dictionaries({"type": st.just("Replace"), "pattern": mostly(PATTERN), "content": mostly(STRINGS)})
PLAIN_NORMALIZERS = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel", "Nothing"]


def sequences(parts: st.SearchStrategy[Part], name: str) -> st.SearchStrategy[Part]:
    return st.recursive(
        parts,
        lambda inner: st.lists(inner, max_size=5).map(lambda steps: {"type": "Sequence", name: steps}),
        max_leaves=12,
    )


NORMALIZERS = sequences(
    REPLACE
    | st.sampled_from([{"type": kind} for kind in PLAIN_NORMALIZERS])
    | st.sampled_from([charsmap(b""), charsmap(b"a" * 18), charsmap(b"a" * 1000), charsmap(b"\xff\xfe")])
    | mostly(STRINGS).map(lambda text: {"type": "Prepend", "prepend": text}),
    "normalizers",
)
PRE_TOKENIZERS = sequences(
    st.sampled_from([BYTE_LEVEL, METASPACE, {"type": "BertPreTokenizer"}, {"type": "WhitespaceSplit"}, {"type": "x"}])
    | st.fixed_dictionaries(
        {"type": st.just("Split"), "pattern": PATTERN, "behavior": st.just("Isolated"), "invert": mostly(st.booleans())}
    ),
    "pretokenizers",
)
DECODERS = sequences(REPLACE | st.sampled_from([BYTE_LEVEL, METASPACE, {"type": "Fuse"}]), "decoders")
MODELS = st.one_of(
    st.builds(lambda most: {**WORD_PIECE, "max_input_chars_per_word": most}, mostly(NUMBERS)),
    st.builds(lambda dropout: {**BPE, "dropout": dropout}, st.none() | NUMBERS),
    st.builds(lambda piece, score: {**UNIGRAM, "vocab": [*UNIGRAM["vocab"], [piece, score]]}, STRINGS, NUMBERS),
    st.builds(lambda token, number: {**BPE, "vocab": {**BPE["vocab"], token: number}}, STRINGS, mostly(NUMBERS)),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    model=MODELS,
    normalizer=st.none() | NORMALIZERS,
    pre_tokenizer=st.none() | PRE_TOKENIZERS,
    post_processor=st.none() | st.just(TEMPLATE),
    decoder=st.none() | DECODERS,
)
def test_any_tokenizer_is_refused_or_bounded(model: Part, **parts: Part | None) -> None:
    text = json.dumps(spec(model, **parts))
    begin = time.perf_counter()
    try:
        tokenizer = Tokenizer.from_json(text)
        ids = tokenizer.encode(TEXT)
        again = tokenizer.encode(TEXT)
        tokenizer.decode(ids)
    except UserError as error:
        line = str(error)
    else:
        line = ""
        assert ids == again, "the same text has the same tokens"
        assert len(ids) <= 4 * MAX_EXPANSION * len(TEXT)
    assert line.isprintable()
    assert time.perf_counter() - begin < SECONDS
