"""`rehead data export`: write a built-in set as files, the way a user's own data would be.

    unlabelled.txt     a document per line
    train.csv, valid.csv, test.csv     columns text and label

The directory appears whole or not at all: it is written beside its place and then renamed.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

from rehead.disk import check_free, whole_directory
from rehead.options import CommonOptions, positional
from rehead.text.datasets import Name, Split, load_dataset
from rehead.text.documents import LabelledData

FILES = ("unlabelled.txt", "train.csv", "valid.csv", "test.csv")


@dataclass(kw_only=True)
class ExportOptions(CommonOptions):
    """Options of `rehead data export`."""

    name: Name = positional(metavar="NAME")
    "imdb or rotten-tomatoes."

    out: Path
    "Directory to write."

    train: int = 1600
    "Labelled documents to train on."

    valid: int = 400
    "Labelled documents to choose with."

    test: int = 2000
    "Labelled documents to test on."

    seed: int = 0
    "Which documents go where."

    overwrite: bool = False
    "Replace the directory if it exists and holds nothing but an earlier export."


def export(options: ExportOptions) -> None:
    """Write the parts and say what they are."""
    replace = FILES if options.overwrite else None
    check_free(options.out, replace)  # before the work
    split = load_dataset(options.name, options.train, options.valid, options.test, options.seed)
    write_split(split, options.out, overwrite=options.overwrite)
    counts = (len(split.unlabelled), len(split.train), len(split.valid), len(split.test))
    for file, count in zip(FILES, counts, strict=True):
        print(f"{options.out / file}: {count:,} documents")
    if not options.quiet:
        print(f"{split.removed} reviews left out: they repeat another one, exactly or nearly.", file=sys.stderr)


def write_split(split: Split, out: Path, *, overwrite: bool = False) -> None:
    """Write the parts of a set as files."""
    with whole_directory(out, replace=FILES if overwrite else None) as made:
        with (made / "unlabelled.txt").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{text}\n" for text in split.unlabelled)
        for name in ("train", "valid", "test"):
            _write_table(made / f"{name}.csv", getattr(split, name))


def _write_table(path: Path, data: LabelledData) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["text", "label"])
        rows.writerows((text, "|".join(labels)) for text, labels in zip(data.texts, data.labels, strict=True))
