from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rehead.text.encoding
from rehead.errors import DamagedError, UserError
from rehead.text.documents import Document, ReadOptions
from rehead.text.encoding import split_into_chunks
from rehead.text.readers import Texts
from rehead.text.store import TokenStore, build_store
from rehead.text.tokenizer import Tokenizer

LINES = ["the cat sat on the mat", "naïve café ☃", "a", "the end of the cat </s> on the mat"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([Document(line, "", 1) for line in LINES * 5], vocab=300, quiet=True)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_a_store_holds_the_ids_with_an_end_mark_after_each_document(
    corpus: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    store = build_store(Texts([corpus]), tokenizer, tmp_path / "store", quiet=True)
    expected = [tokenizer.inner.encode(line, add_special_tokens=False).ids for line in LINES]
    assert [list(store[i]) for i in range(len(store))] == expected
    assert list(store.ids) == [each for ids in expected for each in [*ids, tokenizer.eos]]
    assert list(store.lengths) == [len(ids) for ids in expected]
    assert store.ids.dtype == np.uint16
    with pytest.raises(IndexError):
        store[len(LINES)]
    # The "</s>" in the last line is text: the only end marks are ours.
    assert int(np.sum(store.ids == tokenizer.eos)) == len(LINES)


def test_a_large_vocabulary_takes_four_bytes(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    spec = json.loads(tokenizer.to_json())
    spec["model"]["vocab"] |= {f"word{number}": number for number in range(tokenizer.vocab_size, 70_000)}
    large = Tokenizer.from_json(json.dumps(spec))
    store = build_store(Texts([corpus]), large, tmp_path / "store", quiet=True)
    assert large.vocab_size == 70_000
    assert store.ids.dtype == np.uint32
    assert list(store[1]) == tokenizer.encode(LINES[1])


def test_an_unchanged_store_is_used_again(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    build_store(Texts([corpus]), tokenizer, tmp_path / "store", quiet=True)
    before = (tmp_path / "store" / "ids.bin").stat()
    build_store(Texts([corpus]), tokenizer, tmp_path / "store", quiet=True)
    assert (tmp_path / "store" / "ids.bin").stat().st_ino == before.st_ino
    assert sorted(path.name for path in tmp_path.iterdir()) == [".store.lock", "corpus.txt", "store"]


def test_other_text_or_another_tokenizer_makes_it_anew(
    corpus: Path, tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    build_store(Texts([corpus]), tokenizer, tmp_path / "store", quiet=True)
    corpus.write_text("another text\n", encoding="utf-8")
    store = build_store(Texts([corpus]), tokenizer, tmp_path / "store")
    assert tokenizer.decode(store[0]) == "another text"
    assert "other text or with another tokenizer" in capsys.readouterr().err
    other = Tokenizer.train([Document("another text", "", 1)] * 5, vocab=270, quiet=True)
    store = build_store(Texts([corpus]), other, tmp_path / "store", quiet=True)
    assert list(store[0]) == other.encode("another text")
    assert other.encode("another text") != tokenizer.encode("another text")


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin", "store.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "delete", "empty"])
def test_a_damaged_store_is_never_used(
    name: str, damage: str, corpus: Path, tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = np.array(build_store(Texts([corpus]), tokenizer, tmp_path / "store", quiet=True).ids)
    path = tmp_path / "store" / name
    data = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(data[:-3])
    elif damage == "flip":
        data[len(data) // 2] ^= 0x55
        path.write_bytes(data)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    with pytest.raises(DamagedError) as refused:
        TokenStore.open(tmp_path / "store", check=True)
    assert "\n" not in str(refused.value)
    if (name, damage) == ("store.json", "delete"):  # then it could be anybody's folder
        with pytest.raises(DamagedError, match="not a token store"):
            build_store(Texts([corpus]), tokenizer, tmp_path / "store")
        return
    again = build_store(Texts([corpus]), tokenizer, tmp_path / "store")
    assert np.array_equal(again.ids, whole)
    assert "encoding again" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"format": 99}', '{"format": 1, "files": 3}', '{"format": 1, "files": {}}', "nul", "null"]
)
def test_a_strange_description_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text(text)
    with pytest.raises(DamagedError):
        TokenStore.open(tmp_path)


def test_somebody_elses_folder_is_left_alone(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-anna.txt").write_text("dear Anna")
    with pytest.raises(DamagedError, match="not a token store"):
        build_store(Texts([corpus]), tokenizer, tmp_path / "letters", quiet=True)
    assert (tmp_path / "letters" / "to-anna.txt").read_text() == "dear Anna"


def test_a_failure_leaves_nothing_behind(tmp_path: Path, tokenizer: Tokenizer) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\n" * 100 + b"\xff\xfe broken\n")
    with pytest.raises(UserError, match=r"bad\.txt line 101"):
        build_store(Texts([bad]), tokenizer, tmp_path / "store", quiet=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".store.lock", "bad.txt"]


def test_a_place_that_cannot_be_written_is_one_line(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        build_store(Texts([corpus]), tokenizer, corpus / "store", quiet=True)


def test_half_a_surrogate_pair_is_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    class Broken(Texts):
        def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
            yield Document("fine", "x.jsonl", 1)
            yield Document("half \ud83d a pair", "x.jsonl", 2)

    (tmp_path / "x.txt").write_text("fine\n")
    with pytest.raises(UserError, match=r"x\.jsonl line 2: a lone surrogate"):
        build_store(Broken([tmp_path / "x.txt"]), tokenizer, tmp_path / "store", quiet=True)


def test_many_small_batches_come_out_in_order(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehead.text.encoding, "BATCH_CHARACTERS", 50)
    monkeypatch.setattr(rehead.text.encoding, "PART_CHARACTERS", 20)
    words = random.Random(1)
    lines = [" ".join(words.choice(LINES) for _ in range(words.randint(1, 9))) for _ in range(300)]
    (tmp_path / "many.txt").write_text("\n".join(lines), encoding="utf-8")
    store = build_store(Texts([tmp_path / "many.txt"]), tokenizer, tmp_path / "store", quiet=True)
    assert len(store) == len(lines)
    for number, line in enumerate(lines):
        assert list(store[number]) == tokenizer.inner.encode(line, add_special_tokens=False).ids


def test_parts_join_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehead.text.encoding, "PART_CHARACTERS", 10)

    def parts(text: str) -> list[str]:
        found = list(split_into_chunks(Document(text, "", 1)))
        assert [part.last for part in found] == [False] * (len(found) - 1) + [True]
        return [part.text for part in found]

    assert parts("short") == ["short"]
    assert parts("") == [""]
    assert parts("one two three four") == ["one two", " three", " four"]
    assert parts("no. space! between? words") == ["no. space!", " between? ", "words"]
    assert parts("x" * 25) == ["x" * 10, "x" * 10, "x" * 5]


def test_builders_at_the_same_time_make_one_store(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    code = """
import sys
from rehead.text.readers import Texts
from rehead.text.store import build_store
from rehead.text.tokenizer import Tokenizer
store = build_store(Texts([sys.argv[1]]), Tokenizer.load(sys.argv[2]), sys.argv[3], quiet=True)
print((store.directory / "ids.bin").stat().st_ino, len(store))
"""
    arguments = [sys.executable, "-c", code, str(corpus), str(tmp_path / "tokenizer.json"), str(tmp_path / "store")]
    builders = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {builder.communicate()[0] for builder in builders}
    assert all(builder.returncode == 0 for builder in builders)
    assert len(answers) == 1
    assert answers.pop().split()[1] == str(len(LINES))
    assert sorted(path.name for path in tmp_path.iterdir() if "store" in path.name) == [".store.lock", "store"]


def test_without_locks_both_build_and_one_store_stands(
    corpus: Path, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    built: list[int] = []

    class Raced(Texts):
        def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
            built.append(len(build_store(Texts([corpus]), tokenizer, tmp_path / "store", quiet=True)))
            yield from super().__iter__()

    store = build_store(Raced([corpus]), tokenizer, tmp_path / "store", quiet=True)
    assert [*built, len(store)] == [len(LINES), len(LINES)]
    assert [path.name for path in tmp_path.iterdir() if "store" in path.name] == ["store"]
    assert TokenStore.open(tmp_path / "store", check=True).fingerprint == store.fingerprint


def test_a_tokenizer_that_begins_every_text_with_a_space_gets_whole_documents(tmp_path: Path) -> None:
    """Cut into parts, every part would begin with one more."""
    from tokenizers import Tokenizer as Inner
    from tokenizers import models, normalizers

    words = ["<s>", "<pad>", "</s>", "<unk>", "▁", "a", "b"]
    inner = Inner(models.BPE({word: number for number, word in enumerate(words)}, [], unk_token="<unk>"))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer = Tokenizer(inner)
    text = "ab " * 100_000 + "a"
    (tmp_path / "long.txt").write_text(text, encoding="utf-8")
    store = build_store(Texts([tmp_path / "long.txt"]), tokenizer, tmp_path / "store", quiet=True)
    assert store[0].tolist() == tokenizer.encode(text)


def test_what_a_killed_builder_left_is_cleared_away(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / ".store.abc.partial").mkdir()
    (tmp_path / ".store.abc.partial" / "ids.bin").write_bytes(b"half")
    build_store(Texts([corpus]), tokenizer, tmp_path / "store", quiet=True)
    assert not (tmp_path / ".store.abc.partial").exists()


def test_what_was_left_out_is_said(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gaps.txt").write_text("one\n\ntwo\n", encoding="utf-8")
    texts = Texts([tmp_path / "gaps.txt"], ReadOptions(skip_empty=True))
    build_store(texts, tokenizer, tmp_path / "store")
    assert "skipped: empty text: 1" in capsys.readouterr().err


def write_corpus(path: Path, size: int) -> None:
    """Write `size` bytes of made-up words, in lines of very different lengths."""
    dice = random.Random(7)
    syllables = [a + b for a in "bcdfghklmnprstvz" for b in ("a", "e", "i", "o", "u", "é", "an", "or")]
    words = ["".join(dice.choices(syllables, k=dice.randint(1, 4))) for _ in range(50_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    block = dice.choices(words, weights, k=3_000_000)
    written = turn = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            turn += 1
            at = dice.randrange(len(block))
            shifted = block[at:] + block[:at]
            start = 0
            while start < len(shifted) and written < size:
                length = min(int(dice.paretovariate(1.1) * 20), 1_000_000)
                line = " ".join(shifted[start : start + length]) + f" {turn}\n"
                written += len(line.encode())
                start += length
                file.write(line)


MEASURE = """
import sys, time
from rehead.text.readers import Texts
from rehead.text.store import build_store
from rehead.text.tokenizer import Tokenizer
started = time.perf_counter()
store = build_store(Texts([sys.argv[1]]), Tokenizer.load(sys.argv[2]), sys.argv[3], quiet=len(sys.argv) < 5)
seconds = time.perf_counter() - started
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(len(store), len(store.ids), int(peak.split()[1]) * 1024, seconds)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_two_gigabytes_are_encoded_in_less_than_one(tmp_path: Path) -> None:
    size = 2_000_000_000
    corpus = tmp_path / "corpus.txt"
    write_corpus(corpus, size)
    some = (Document(document.text, "", 1) for _, document in zip(range(2000), Texts([corpus]), strict=False))
    Tokenizer.train(some, quiet=True).save(tmp_path / "tokenizer.json")
    arguments = [str(corpus), str(tmp_path / "tokenizer.json"), str(tmp_path / "store")]
    done = subprocess.run([sys.executable, "-c", MEASURE, *arguments], check=True, capture_output=True, text=True)
    documents, tokens, peak, seconds = map(float, done.stdout.split())
    print(
        f"{documents:,.0f} documents, {tokens:,.0f} tokens, peak {peak / 1e6:.0f} MB, {size / seconds / 1e6:.1f} MB/s"
    )
    with corpus.open("rb") as lines:
        assert documents == sum(1 for _ in lines)
    assert peak < 1e9
    corpus.unlink()


def test_read_options_are_part_of_the_fingerprint(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    lines = build_store(Texts([corpus]), tokenizer, tmp_path / "lines", quiet=True)
    whole = build_store(Texts([corpus], ReadOptions(documents="file")), tokenizer, tmp_path / "whole", quiet=True)
    assert (len(lines), len(whole)) == (4, 1)
    assert lines.fingerprint != whole.fingerprint
