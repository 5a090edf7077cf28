"""How large a classifier is on disk, beside one whose weights are all stored, and what storing fewer of them changes.

    python bench/size.py SETS/banking77.tsv.gz --examples 9003
    python bench/size.py SETS/banking77.tsv.gz --examples 5000 --classes 1000

The file has lines `label<TAB>text`; a classifier is trained on the first texts of it by `TextClassifier` with its
defaults. `--classes` puts the texts, in the order of the alphabet, into so many classes of one size instead: no such
set is at hand, and the size of a run does not depend on what its classes mean.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from sets import read

from rehead import TextClassifier
from rehead.runs.run import WEIGHTS


def main() -> None:
    """Train, save, load, and print a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--classes", type=int, help="this many classes of one size, instead of the labels")
    given = parser.parse_args()
    data = read(given.file)
    texts, labels = data.texts[: given.examples], [each for (each,) in data.labels[: given.examples]]
    if given.classes:
        texts.sort()
        labels = [f"class {number * given.classes // len(texts)}" for number in range(len(texts))]
    trained = TextClassifier().fit(texts, labels)
    whole = sum(4 * each.numel() for each in trained.run_.model.state_dict().values())
    before = trained.predict_proba(texts)
    with tempfile.TemporaryDirectory() as folder:
        path = trained.save(Path(folder) / "run")
        stored = (path / WEIGHTS).stat().st_size
        after = TextClassifier.load(path).predict_proba(texts)
    changed = int((before.argmax(1) != after.argmax(1)).sum())
    views = ", ".join(each.name for each in trained.run_.model.head_config.views)
    print(f"{len(set(labels)):,} classes, {len(texts):,} texts; views: {views}")
    print(f"all weights {whole / 1e6:,.0f} MB, stored {stored / 1e6:,.0f} MB")
    print(f"probabilities change by at most {np.abs(before - after).max():.1g}, labels of {changed:,} texts")


if __name__ == "__main__":
    main()
