"""`rehead data export`: write a built-in dataset to files, in the formats of a user's own data.

    unlabelled.txt     a document per line
    train.csv, valid.csv, test.csv     columns text and label

The directory is written atomically: to a temporary directory beside it, which is then renamed.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rehead.disk import atomic_directory, check_overwrite
from rehead.options import CommonOptions, flag, positional
from rehead.replacing import writing
from rehead.text.datasets import DatasetSplits, Name, load_dataset
from rehead.text.documents import LabelledData
from rehead.text.spreadsheet import neutralise

FILES = ("unlabelled.txt", "train.csv", "valid.csv", "test.csv")


@dataclass(kw_only=True)
class ExportOptions(CommonOptions):
    """Write a built-in dataset to files: unlabelled text, training, validation and test set."""

    GROUP = "writes"
    MOST_USED = ("out", "train", "valid", "test", "seed")

    name: Name = positional(metavar="NAME")
    "Dataset: imdb or rotten-tomatoes."

    out: Path = flag(metavar="DIR")
    "Output directory."

    train: int = flag(1600, metavar="N")
    "Size of the training set."

    valid: int = flag(400, metavar="N")
    "Size of the validation set."

    test: int = flag(2000, metavar="N")
    "Size of the test set."

    seed: int = flag(0, metavar="N")
    "Random seed of the split."

    spreadsheet: bool = False
    "For a spreadsheet: put an apostrophe in front of cells that it would take for a formula (=, +, -, @)."

    overwrite: bool = False
    "Replace the output directory if it holds nothing but an earlier export."


def export(options: ExportOptions) -> None:
    """Write the files and print how many documents each has."""
    replace = FILES if options.overwrite else None
    check_overwrite(options.out, replace)
    splits = load_dataset(options.name, options.train, options.valid, options.test, options.seed)
    write_splits(splits, options.out, overwrite=options.overwrite, spreadsheet=options.spreadsheet)
    counts = (len(splits.unlabelled), len(splits.train), len(splits.valid), len(splits.test))
    for file, count in zip(FILES, counts, strict=True):
        print(f"{options.out / file}: {count:,} documents")
    if not options.quiet:
        print(f"{splits.removed} reviews removed as exact or near duplicates.", file=sys.stderr)


def write_splits(splits: DatasetSplits, out: Path, *, overwrite: bool = False, spreadsheet: bool = False) -> None:
    """Write the splits of a dataset to files; `spreadsheet`: neutralise cells that look like formulas."""
    with writing(out), atomic_directory(out, replace=FILES if overwrite else None) as made:
        with (made / "unlabelled.txt").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{text}\n" for text in splits.unlabelled)
        for name in ("train", "valid", "test"):
            _write_table(made / f"{name}.csv", getattr(splits, name), neutralise if spreadsheet else str)


def _write_table(path: Path, data: LabelledData, cell: Callable[[str], str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["text", "label"])
        pairs = zip(data.texts, data.labels, strict=True)
        rows.writerows((cell(text), cell("|".join(labels))) for text, labels in pairs)
