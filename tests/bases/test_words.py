"""Word vectors as text and of spaCy, against direct computation."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from rehead.bases.sources import open_brought
from rehead.bases.words import hash_string, read_integer_map
from rehead.errors import UserError
from tests.bases.tiny import WORDS, make_vectors, write


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("name", ["v.vec", "v.txt", "v.vec.gz"])
def test_a_text_is_the_mean_of_its_words(header: bool, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    table = make_vectors(path, header=header)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    brought = open_brought(path)
    texts = ["the film", "The FILM!", "unheard the", "good-bad city", "unheard", ""]
    rows = [["the", "film"], ["the", "film"], ["the"], ["good", "bad", "city"], [], []]
    expected = [table[[WORDS.index(word) for word in each]].mean(0) if each else np.zeros(5) for each in rows]
    np.testing.assert_allclose(brought.engine.encode(texts), np.stack(expected), atol=1e-6)
    assert brought.name == "static:v"
    assert not open_brought(path, link=True).linked  # it is converted, so what was converted is carried


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the 1 2 3\nfilm 1 2\n", "line 2"),
        ("the 1 2 3\nfilm 1 x 3\n", "line 2"),
        ("the 1 2 3\nfilm 1 nan 3\n", "NaN"),
        ("justaword\n", "line 1"),
        ("", "no word vectors"),
    ],
)
def test_damaged_files_are_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "v.vec").write_text(text)
    with pytest.raises(UserError, match=said):
        open_brought(tmp_path / "v.vec")


def test_words_with_spaces_and_doubles(tmp_path: Path) -> None:
    (tmp_path / "v.vec").write_text("a 1 0\nNew York 0 1\na 9 9\n")
    found = open_brought(tmp_path / "v.vec")
    np.testing.assert_allclose(found.engine.encode(["a"]), [[1, 0]])


def packed(rows: dict[int, int]) -> bytes:
    """A MessagePack map, as srsly writes it."""
    data = bytes([0xDE]) + len(rows).to_bytes(2, "big")
    for key, row in rows.items():
        data += bytes([0xCF]) + key.to_bytes(8, "big")
        data += bytes([row]) if row < 128 else bytes([0xCD]) + row.to_bytes(2, "big")
    return data


def make_spacy(root: Path, *, mode: str = "default", shared: int = len(WORDS)) -> np.ndarray:
    """Save vectors as spaCy does; from the row `shared` on, words share the rows before."""
    home = root / "vocab"
    home.mkdir(parents=True)
    table = np.random.RandomState(0).randn(shared, 5).astype(np.float32)
    with (home / "vectors").open("wb") as file:
        np.save(file, table)
    (home / "key2row").write_bytes(packed({hash_string(word): row % shared for row, word in enumerate(WORDS)}))
    write(home / "strings.json", ["", "ROOT", *WORDS])
    write(home / "vectors.cfg", {"mode": mode})
    return table


def test_vectors_of_spacy(tmp_path: Path) -> None:
    table = make_spacy(tmp_path / "en_core_web_md")
    brought = open_brought(tmp_path / "en_core_web_md")
    expected = table[[WORDS.index("the"), WORDS.index("film")]].mean(0)
    np.testing.assert_allclose(brought.engine.encode(["The film"])[0], expected, atol=1e-6)
    assert brought.name == "static:en_core_web_md"


def test_words_of_spacy_that_share_a_row_are_stored_once(tmp_path: Path) -> None:
    table = make_spacy(tmp_path / "md", shared=5)
    engine = open_brought(tmp_path / "md").engine
    assert engine.parameters == table.size
    expected = np.stack([table[WORDS.index(word) % 5] for word in WORDS])
    np.testing.assert_allclose(engine.encode(WORDS), expected, atol=1e-6)


@pytest.mark.parametrize("words", [{"a": 2}, {"a": -1}, {"a": True}, {"a": "0"}, ["a"], ["a", 1], "a"])
def test_words_that_do_not_fit_the_table_are_refused(words: object, tmp_path: Path) -> None:
    write(tmp_path / "words.json", words)
    save_file({"vectors": np.ones((2, 3), np.float32)}, tmp_path / "vectors.safetensors")
    with pytest.raises(UserError, match="do not belong together"):
        _ = open_brought(tmp_path).engine


def test_vectors_of_spacy_that_are_not_known_are_refused(tmp_path: Path) -> None:
    make_spacy(tmp_path / "floret", mode="floret")
    with pytest.raises(UserError, match="floret"):
        open_brought(tmp_path / "floret")
    make_spacy(tmp_path / "pickled")
    with (tmp_path / "pickled" / "vocab" / "vectors").open("wb") as file:
        np.save(file, np.array([{}], object))
    with pytest.raises(UserError, match="not a table"):
        open_brought(tmp_path / "pickled")


# By the package murmurhash, as spacy.strings.hash_string calls it: mrmr.hash(…, seed=1), 64 bit.
@pytest.mark.parametrize(
    ("word", "value"),
    [("coffee", 3197928453018144401), ("the", 7425985699627899538), ("apple", 8566208034543834098)],
)
def test_hashes_are_those_of_spacy(word: str, value: int) -> None:
    assert hash_string(word) == value


@pytest.mark.parametrize(
    "data", [b"", b"\xde\x00", b"\x81\x01", b"\x81\x01\xa1x", b"\x93\x01\x02\x03", b"\xdf\xff\xff\xff\xff"]
)
def test_damaged_maps_are_refused(data: bytes) -> None:
    with pytest.raises(UserError):
        read_integer_map(data, "key2row")


def test_integers_of_all_sizes() -> None:
    data = b"\x84\x01\x7f\xcc\xff\xcd\x01\x00\xff\xd0\x80\xcf" + b"\xff" * 8 + b"\xce\x00\x01\x00\x00"
    assert read_integer_map(data, "key2row") == {1: 127, 255: 256, -1: -128, 2**64 - 1: 65536}
