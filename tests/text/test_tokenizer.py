from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from rehead.errors import UserError
from rehead.text.documents import Document
from rehead.text.tokenizer import SPECIALS, Tokenizer
from rehead.text.vocabulary import draw_sample, train_tokenizer

LINES = [f"the {a} {b} was {c}, wasn't it?" for a in ("old", "new") for b in ("film", "book") for c in ("bad", "good")]
DOCUMENTS = [Document(line, "lines.txt", number) for number, line in enumerate(LINES * 4, 1)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(DOCUMENTS, vocab=300, quiet=True)


def test_the_specials_are_where_everybody_expects_them(tokenizer: Tokenizer) -> None:
    assert (tokenizer.bos, tokenizer.pad, tokenizer.eos, tokenizer.unk, tokenizer.mask) == (0, 1, 2, 3, 4)
    assert tokenizer.tokens(range(5)) == list(SPECIALS)


@settings(deadline=None, max_examples=300)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & set(range(5)), "a special token out of plain text"
    assert all(each < tokenizer.vocab_size for each in ids)


@settings(deadline=None, max_examples=300)
@given(parts=st.lists(st.sampled_from([*SPECIALS, " ", "a", "<", "s>", "▁", "\n", "film"])))
def test_text_is_only_ever_text(tokenizer: Tokenizer, parts: list[str]) -> None:
    ids = tokenizer.encode("".join(parts))
    assert not set(ids) & set(range(5))
    assert tokenizer.decode(ids) == "".join(parts)


def test_a_mask_only_where_one_is_asked_for(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_with_masks("the old [MASK] was [MASK], </s>")
    assert ids.count(4) == 2
    assert 2 not in ids
    assert ids[: ids.index(4)] == tokenizer.encode("the old")
    assert ids[ids.index(4) + 1 :][: len(tokenizer.encode(" was"))] == tokenizer.encode(" was")
    assert tokenizer.encode_with_masks("no mask") == tokenizer.encode("no mask")
    assert tokenizer.encode_with_masks("[MASK][MASK]") == [4, 4]


def test_marks_stand_for_no_text(tokenizer: Tokenizer) -> None:
    """Its own, one that somebody has added, and the numbers in a gap."""
    assert tokenizer.special_ids() == [0, 1, 2, 3, 4]
    spec = json.loads(tokenizer.to_json())
    gap = tokenizer.vocab_size
    spec["added_tokens"].append({**spec["added_tokens"][0], "id": gap, "content": "<sep>"})
    assert Tokenizer.from_json(json.dumps(spec)).special_ids() == [0, 1, 2, 3, 4, gap]
    words = [*SPECIALS, "film"]
    gappy = models.WordLevel({word: 2 * number for number, word in enumerate(words)}, "<unk>")
    assert Tokenizer(tokenizers.Tokenizer(gappy)).special_ids() == list(range(10))


def test_batches_are_what_single_texts_are(tokenizer: Tokenizer) -> None:
    texts = ["", "the film", "☃", *LINES]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch([]) == []


def test_it_is_the_same_after_saving(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.fingerprint() == tokenizer.fingerprint()
    assert again.encode("the </s> old ☃") == tokenizer.encode("the </s> old ☃")


def test_the_same_text_gives_the_same_bytes_in_another_process() -> None:
    code = f"""
from rehead.text.documents import Document
from rehead.text.tokenizer import Tokenizer
lines = {LINES!r}
documents = [Document(line, "", 1) for line in lines * 4]
print(Tokenizer.train(documents, vocab=300, quiet=True).fingerprint())
"""
    prints = {subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout for _ in range(2)}
    here = Tokenizer.train(DOCUMENTS, vocab=300, quiet=True).fingerprint()
    assert prints == {here.encode() + b"\n"}


def test_little_text_gives_a_small_vocabulary_and_says_so() -> None:
    tokenizer = train_tokenizer(DOCUMENTS[:2], vocab=5000, quiet=True)
    assert tokenizer.vocab_size < 400
    assert any(f"{tokenizer.vocab_size:,} tokens instead of 5,000" in note for note in tokenizer.notes)


def test_a_megabyte_without_a_space_does_not_stop_training() -> None:
    tokenizer = train_tokenizer([*DOCUMENTS, Document("abcdefgh" * 125_000, "", 1)], vocab=280, quiet=True)
    assert tokenizer.decode(tokenizer.encode("abcdefgh" * 10)) == "abcdefgh" * 10


def test_a_vocabulary_without_room_for_the_bytes() -> None:
    with pytest.raises(UserError, match=r"--vocab 100 is too small.* need 261"):
        train_tokenizer(DOCUMENTS, vocab=100, quiet=True)


@pytest.mark.parametrize("documents", [[], [Document("", "", 1)]])
def test_no_text_at_all(documents: list[Document]) -> None:
    with pytest.raises(UserError, match="no text"):
        train_tokenizer(documents, quiet=True)


def test_a_sample_is_fair_bounded_and_repeatable() -> None:
    documents = [Document(f"{number:010}", "", number) for number in range(1000)]
    chosen = [0] * 1000
    for seed in range(200):
        sample = draw_sample(documents, 1005, seed)
        assert (len(sample.texts), sample.characters) == (100, 1000)
        assert (sample.documents_seen, sample.characters_seen) == (1000, 10_000)
        assert sample.texts == sorted(sample.texts), "not in the order of the corpus"
        for text in sample.texts:
            chosen[int(text)] += 1
    # Binomial(200, 0.1): mean 20, standard deviation 4.2; thirds of the corpus are equally represented.
    assert max(chosen) < 45
    assert all(abs(sum(chosen[start : start + 333]) / 333 - 20) < 1 for start in (0, 333, 666))
    assert draw_sample(documents, 1005, 3).texts == draw_sample(iter(documents), 1005, 3).texts
    assert "100 of 1,000 documents" in sample.describe()


def test_a_sample_of_one_document_that_is_too_long_keeps_it() -> None:
    assert draw_sample([Document("x" * 50, "", 1)], 10, 0).texts == ["x" * 50]


def bert_like(**without: bool) -> tokenizers.Tokenizer:
    names = [each for each in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if each not in without]
    vocab = {each: number for number, each in enumerate([*names, "a", "film", "##s", "[", "]"])}
    inner = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return inner


def test_the_tokenizer_of_another_house(tmp_path: Path) -> None:
    inner = bert_like()
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    inner.enable_truncation(4)
    inner.enable_padding(length=12)
    inner.save(str(tmp_path / "bert.json"))
    tokenizer = Tokenizer.load(tmp_path / "bert.json")
    assert (tokenizer.pad, tokenizer.unk, tokenizer.bos, tokenizer.eos, tokenizer.mask) == (0, 1, 2, 3, 4)
    assert tokenizer.vocab_size == 10
    # Nothing added, nothing cut off, nothing padded, whatever the file says.
    assert tokenizer.tokens(tokenizer.encode("a film films a film films")) == ["a", "film", "film", "##s"] * 2
    assert not set(tokenizer.encode("[SEP] a[PAD] [CLS]")) & {0, 2, 3}


def test_a_unigram_model_of_another_house_does_not_find_marks_in_text() -> None:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("<mask>", 0.0)]
    letters = [(letter, -5.0) for letter in "▁ab/s>pdmku"]  # no "<": the mark is the only way to cover it
    inner = tokenizers.Tokenizer(models.Unigram([*pieces, *letters], unk_id=3))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = Tokenizer(inner)
    ids = tokenizer.encode("a </s>b<s> <pad> <mask>")
    assert not set(ids) & {0, 1, 2, 4}
    assert tokenizer.tokens(ids)[:5] == ["▁", "a", "▁", "<unk>", "/"]
    assert Tokenizer.from_json(tokenizer.to_json()).encode("a </s>b") == tokenizer.encode("a </s>b")


def test_marks_that_are_ordinary_added_tokens_are_not_found_either() -> None:
    inner = bert_like()
    inner.add_tokens([tokenizers.AddedToken("<pad>", special=False), tokenizers.AddedToken("</s>", special=False)])
    tokenizer = Tokenizer(inner)
    assert not set(tokenizer.encode("a </s> film<pad>")) & {tokenizer.pad, tokenizer.eos}


def test_ids_have_room_in_a_vocabulary_with_holes() -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2, "late": 90}, "<unk>"))
    assert Tokenizer(inner).vocab_size == 91


@pytest.mark.parametrize(("missing", "message"), [("[PAD]", "no padding token"), ("[SEP]", "no end-of-text token")])
def test_a_missing_special_is_named(missing: str, message: str, tmp_path: Path) -> None:
    bert_like(**{missing: True}).save(str(tmp_path / "bert.json"))
    with pytest.raises(UserError, match=message) as error:
        Tokenizer.load(tmp_path / "bert.json")
    assert str(tmp_path / "bert.json") in str(error.value)


def test_asking_for_a_mask_where_there_is_none() -> None:
    tokenizer = Tokenizer(bert_like(**{"[MASK]": True}))
    assert tokenizer.mask is None
    with pytest.raises(UserError, match="no mask token"):
        tokenizer.encode_with_masks("a [MASK]")


def test_a_model_that_fails_at_unknown_characters_is_refused_at_once() -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "a": 2}, "<unk>"))
    with pytest.raises(UserError, match="unknown characters"):
        Tokenizer(inner)


CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{}", "[]", "null", "\x00", "[" * 10_000),
        '{"model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}}',
        # This one makes the Rust code panic.
        json.dumps({**json.loads(tokenizers.Tokenizer(models.BPE()).to_str()), "normalizer": CHARSMAP}),
    ],
)
def test_what_is_no_tokenizer_is_one_line(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match=r"tokenizer\.json") as error:
        Tokenizer.load(tmp_path / "tokenizer.json")
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        Tokenizer.load(tmp_path / "nothing.json")
    with pytest.raises(UserError, match="cannot be read"):
        Tokenizer.load(tmp_path)
    (tmp_path / "image.json").write_bytes(bytes(range(256)))
    with pytest.raises(UserError, match="tokenizer"):
        Tokenizer.load(tmp_path / "image.json")


def test_pieces_that_are_not_there(tokenizer: Tokenizer) -> None:
    assert tokenizer.ids_of(["<s>", "no such piece", "a"])[:2] == [0, 3]
    without_unknown = Tokenizer(tokenizers.Tokenizer(models.BPE({"<pad>": 0, "</s>": 1}, [])))
    with pytest.raises(UserError, match="'x'"):
        without_unknown.ids_of(["x"])


def test_what_cannot_be_trained_on_is_named() -> None:
    with pytest.raises(UserError, match="not on str"):
        Tokenizer.train(["a b"], quiet=True)  # type: ignore[list-item]


def test_a_tokenizer_of_small_letters(tmp_path: Path) -> None:
    documents = [Document(f"Great GREAT great Éclair number {n} </s>", "x.txt", n) for n in range(1, 200)]
    tokenizer = Tokenizer.train(documents, vocab=320, lowercase=True, quiet=True)
    tokenizer.save(tmp_path / "tokenizer.json")
    for each in (tokenizer, Tokenizer.load(tmp_path / "tokenizer.json")):
        assert each.encode("A GREAT Éclair") == each.encode("a great éclair")
        assert each.decode(each.encode("A GREAT Éclair </S>")) == "a great éclair </s>"
        ids = each.encode_with_masks("A [MASK] Éclair")
        assert ids.count(each.mask) == 1
    cased = Tokenizer.train(documents, vocab=320, quiet=True)
    assert cased.encode("GREAT") != cased.encode("great")
