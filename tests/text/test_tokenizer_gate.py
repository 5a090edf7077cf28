"""The gate of tokenizers: what usual models come with passes unchanged, and nothing else does."""

from __future__ import annotations

import base64
import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from rehead.errors import UserError
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
from rehead.text.tokenizer_gate import MAX_BYTES, MAX_VALUES, PATTERNS, check_tokenizer

Spec = dict[str, Any]
NAMES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
LETTERS = [*"abcdefghijklmnopqrstuvwxyz.,!", "##a", "##b", "▁", "Ġ", "▁film", "film"]
VOCABULARY = {token: number for number, token in enumerate([*NAMES, *LETTERS])}
SENTENCE = "a film, <s> a film!  (ﬁn) Éa\n"


def special(number: int) -> Spec:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": NAMES[number], "special": True, **flags}


def spec(model: Spec, **parts: Spec | None) -> Spec:
    sections = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    added = [special(number) for number in range(5)]
    return {"version": "1.0", **sections, "added_tokens": added, "model": model, **parts}


WORD_PIECE = {
    "type": "WordPiece",
    "unk_token": "<unk>",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
    "vocab": VOCABULARY,
}
BPE = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": False, "vocab": VOCABULARY, "merges": []}
UNIGRAM = {"type": "Unigram", "unk_id": 3, "vocab": [[token, -1.0 * number] for token, number in VOCABULARY.items()]}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
LLAMA = next(each for each in PATTERNS if r"\p{N}{1,3}|" in each and "Lu" not in each)
SPLIT = {"type": "Split", "pattern": {"Regex": LLAMA}, "behavior": "Isolated", "invert": False}


def charsmap(replacement: bytes) -> Spec:
    table = struct.pack("<I", 4) + bytes(4) + replacement + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


USUAL: dict[str, Spec] = {
    "bert": spec(
        WORD_PIECE,
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=TEMPLATE,
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
    ),
    "roberta": spec(
        BPE,
        pre_tokenizer=BYTE_LEVEL,
        post_processor={
            "type": "RobertaProcessing",
            "sep": ["</s>", 2],
            "cls": ["<s>", 0],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
        decoder=BYTE_LEVEL,
    ),
    "gpt-2, whose model has no type": spec(
        {key: value for key, value in BPE.items() if key != "type"}, pre_tokenizer=BYTE_LEVEL
    ),
    "modernbert": spec(
        BPE, normalizer={"type": "NFC"}, pre_tokenizer={**BYTE_LEVEL, "use_regex": True}, post_processor=TEMPLATE
    ),
    "xlm-r": spec(
        UNIGRAM,
        normalizer={
            "type": "Sequence",
            "normalizers": [
                {"type": "Nmt"},
                {"type": "NFKC"},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]},
        post_processor=TEMPLATE,
        decoder=METASPACE,
    ),
    "llama 3": spec(
        {**BPE, "ignore_merges": True, "byte_fallback": False},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [SPLIT, {**BYTE_LEVEL, "use_regex": False}]},
        post_processor={"type": "Sequence", "processors": [BYTE_LEVEL, TEMPLATE]},
    ),
    "gemma": spec(
        {**BPE, "byte_fallback": True, "fuse_unk": True},
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        pre_tokenizer={
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        decoder={
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
    ),
}


@pytest.mark.parametrize("name", list(USUAL))
def test_usual_tokenizers_pass_and_give_the_same_ids(name: str) -> None:
    text = json.dumps(USUAL[name])
    checked = check_tokenizer(text)
    assert checked.notes == []
    inner = tokenizers.Tokenizer.from_str(text)
    inner.no_truncation()
    gated = tokenizers.Tokenizer.from_str(checked.text)
    assert gated.encode(SENTENCE).ids == inner.encode(SENTENCE).ids
    assert Tokenizer.from_json(text).encode("a film")


# fmt: off
OF_TRANSFORMERS = [
    "AlbertTokenizer", "BertTokenizer", "CamembertTokenizer", "DebertaV2Tokenizer", "GPT2Tokenizer", "GPTNeoXTokenizer",
    "GemmaTokenizer", "LlamaTokenizer", "MPNetTokenizer", "Qwen2Tokenizer", "RobertaTokenizer", "T5Tokenizer",
    "XLMRobertaTokenizer",
]
# fmt: on


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_components_as_transformers_writes_them_pass(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    check_tokenizer(getattr(transformers, name)().backend_tokenizer.to_str())


def test_what_rehead_writes_passes_again() -> None:
    documents = [Document(f"a film </s> of number {number}", "x", number) for number in range(200)]
    for lowercase in (False, True):
        own = Tokenizer.train(documents, vocab=300, lowercase=lowercase, quiet=True)
        assert Tokenizer.from_json(own.to_json()).to_json() == own.to_json()
    # A unigram model that finds its special tokens in text gets a pre-tokenizer with a pattern of rehead's own.
    guarded = Tokenizer.from_json(json.dumps(spec(UNIGRAM, pre_tokenizer=METASPACE)))
    assert "(?<=" in guarded.to_json()
    assert Tokenizer.from_json(guarded.to_json()).encode(SENTENCE) == guarded.encode(SENTENCE)


def replaced(times: int, content: str = "a" * 16) -> Spec:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": content}
    return {"type": "Sequence", "normalizers": [step] * times}


def nested(times: int) -> Spec:
    return replaced(1) if not times else {"type": "Sequence", "normalizers": [nested(times - 1)]}


def regex(pattern: str) -> Spec:
    return {**SPLIT, "pattern": {"Regex": pattern}}


FORGED: dict[str, tuple[Spec, str]] = {
    "replace in replace": (spec(BPE, normalizer=replaced(8)), "4,294,967,296 characters of one"),
    "a long replacement": (spec(BPE, normalizer=replaced(1, "a" * 10**6)), "0 to 16 characters"),
    "replace what is empty": (
        spec(BPE, normalizer={"type": "Replace", "pattern": {"String": ""}, "content": "a"}),
        "1 to 512 characters",
    ),
    "replace in a decoder": (
        spec(BPE, decoder={"type": "Sequence", "decoders": replaced(8)["normalizers"]}),
        "characters of one",
    ),
    "nested": (spec(BPE, normalizer=nested(5)), "4 deep"),
    "very many steps": (
        spec(BPE, normalizer={"type": "Sequence", "normalizers": [{"type": "Strip"}] * 17}),
        "at most 16",
    ),
    "a table of long texts": (spec(BPE, normalizer=charsmap(b"a" * 2000)), "2,000 characters of one"),
    "a table that ends early": (
        spec(BPE, normalizer={"type": "Precompiled", "precompiled_charsmap": "AQAAAA=="}),
        "ends early",
    ),
    "a regular expression that backtracks": (spec(BPE, pre_tokenizer=regex(r"(a+)+$")), "not on the list"),
    "one that looks like rehead's": (spec(BPE, pre_tokenizer=regex(r"(?<=</s)>|(?<=(a+)+)x")), "not on the list"),
    "one with an empty end": (spec(BPE, pre_tokenizer=regex(r"(?<=</s)>|")), "not on the list"),
    "words without end": (spec({**WORD_PIECE, "max_input_chars_per_word": 10**9}), "1 to 200"),
    "a piece without end": (spec({**UNIGRAM, "vocab": [*UNIGRAM["vocab"], ["a" * 129, -1.0]]}), "128 characters"),
    "a score that is no number": (spec({**UNIGRAM, "vocab": [["a", "b"]]}), "each with a score"),
    "an infinite score": (spec({**UNIGRAM, "vocab": [["a", 1e999]]}), "Infinity is not JSON"),
    "an id of billions": (spec({**BPE, "vocab": {**VOCABULARY, "late": 2**31}}), "ids below"),
    "an id twice": (spec({**BPE, "vocab": {**VOCABULARY, "again": 3}}), "different id"),
    "an id that is a flag": (spec({**BPE, "vocab": {**VOCABULARY, "flag": True}}), "ids below"),
    "half a character": (spec({**BPE, "vocab": {**VOCABULARY, "\ud800": 99}}), "characters of Unicode"),
    "no vocabulary": (spec({"type": "BPE", "merges": []}), "no vocab"),
    "merges of three": (spec({**BPE, "merges": ["a b c"]}), "pairs of tokens"),
    "an unknown model": (spec({"type": "Python", "vocab": {}}), "'Python' is not on the list"),
    "an unknown part": (spec(BPE, pre_tokenizer={"type": "Exec"}), "'Exec' is not on the list"),
    "a type that is a list": (spec(BPE, pre_tokenizer={"type": ["ByteLevel"]}), "object with a type"),
    "an unknown field": (spec({**BPE, "hook": "x"}), "'hook'"),
    "an unknown section": ({**spec(BPE), "code": "x"}, "'code'"),
    "a text repeated": (
        spec(BPE, post_processor={**TEMPLATE, "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2}),
        "each text once",
    ),
    "a long template": (spec(BPE, post_processor={**TEMPLATE, "single": TEMPLATE["single"] * 100}), "at most 16"),
    "very many added tokens": (
        {**spec(BPE), "added_tokens": [{**special(0), "content": f"<{number}>"} for number in range(2000)]},
        "at most 1,024",
    ),
    "an added token without content": ({**spec(BPE), "added_tokens": [{"id": 3}]}, "lacks 'content'"),
    "a decoder that strips very much": (
        spec(BPE, decoder={"type": "Strip", "content": "a", "start": 10**12, "stop": 0}),
        "0 to 16",
    ),
}


@pytest.mark.parametrize("name", list(FORGED))
def test_what_is_not_on_the_list_is_refused_before_it_is_loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forged, said = FORGED[name]

    def loaded(_: str) -> None:
        raise AssertionError("it was loaded")

    monkeypatch.setattr(tokenizers.Tokenizer, "from_str", loaded)
    begin = time.perf_counter()
    with pytest.raises(UserError, match=r"tokenizer\.json") as error:
        Tokenizer.from_json(json.dumps(forged))
    assert said in str(error.value), error.value
    assert time.perf_counter() - begin < 5


def test_dropout_is_switched_off_and_said() -> None:
    text = " ".join(["films"] * 50)
    vocabulary = {**VOCABULARY, "fi": 90, "fil": 91, "films": 92, "lm": 93}
    merges = [["f", "i"], ["fi", "l"], ["l", "m"], ["film", "s"], ["fil", "m"]]
    dropping = spec({**BPE, "dropout": 0.5, "vocab": vocabulary, "merges": merges}, pre_tokenizer=BYTE_LEVEL)
    tokenizer = Tokenizer.from_json(json.dumps(dropping), name="brought.json")
    assert len({tuple(tokenizer.encode(text)) for _ in range(10)}) == 1
    [note] = tokenizer.notes
    assert note.startswith("brought.json: BPE dropout of 0.5 is switched off")
    without = Tokenizer.from_json(json.dumps({**dropping, "model": {**dropping["model"], "dropout": None}}))
    assert without.notes == []
    assert without.encode(text) == tokenizer.encode(text)


def test_sampling_of_pieces_is_switched_off_and_said() -> None:
    """Whether or not the installed version of tokenizers samples."""
    checked = check_tokenizer(json.dumps(spec({**UNIGRAM, "alpha": 0.1, "nbest_size": -1})), "brought.json")
    assert json.loads(checked.text)["model"]["alpha"] is None
    [note] = checked.notes
    assert note.startswith("brought.json: Unigram sampling of 0.1 is switched off")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    """Sparse: 3 GB in name, no block on disk."""
    with (tmp_path / "tokenizer.json").open("wb") as file:
        os.truncate(file.fileno(), 3 * 2**30)
    begin = time.perf_counter()
    with pytest.raises(UserError, match=f"{MAX_BYTES:,} bytes"):
        Tokenizer.load(tmp_path / "tokenizer.json")
    assert time.perf_counter() - begin < 5


def test_very_many_values_are_not_parsed() -> None:
    with pytest.raises(UserError, match=f"{MAX_VALUES:,} values"):
        check_tokenizer(b"[" + b"[]," * (MAX_VALUES // 2) + b"[]]")


def test_a_tokenizer_that_fails_on_special_tokens_only(capfd: pytest.CaptureFixture[str]) -> None:
    """It has no unknown token, and knows every character but those of its own special tokens."""
    inner = tokenizers.Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "a": 2, "☃": 3, "\U000f0000": 4}, "<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    inner.normalizer = normalizers.Replace("☃\U000f0000", "a")
    with pytest.raises(UserError, match=r"special tokens|readable"):
        Tokenizer.from_json(inner.to_str())
    assert capfd.readouterr().err == ""
