"""How good the baselines of `rehead compare` are: accuracy and F1 on labelled files, with the training time.

    python bench/baselines.py banking77.tsv.gz --labels 1500 8000
    python bench/baselines.py goemotions.tsv.gz --multilabel --labels 500 --draws 2
    python bench/baselines.py imdb --labels 20 100 500 --draws 2

A file has a label, a tab and a text on each line; with --multilabel, labels are separated by `|`. A fifth of the lines
is held out, at most 4,000; of multilabel data a tenth. For `imdb`, labels are drawn from 1,600 film reviews and
measured on 5,000 others; the built-in test part is not used. Every method has the same draws.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path

import numpy as np

from rehead.compare.baselines import fit_baseline
from rehead.finetune.metrics import macro_f1, micro_f1, predicted_labels
from rehead.finetune.targets import subset, targets
from rehead.text.documents import LabelledData

METHODS = ("tfidf", "tfidf_chars", "nbsvm")
HELD_OUT = 4_000


def read(path: Path, *, multilabel: bool) -> LabelledData:
    """Read lines of label, tab, text."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [line.split("\t", 1) for line in content.decode("utf-8").removesuffix("\n").split("\n")]
    labels = [tuple(filter(None, row[0].split("|"))) if multilabel else (row[0],) for row in rows]
    names = sorted({name for each in labels for name in each})
    sources = [(path.name, line) for line in range(1, len(rows) + 1)]
    return LabelledData([row[1] for row in rows], labels, names, multilabel, sources)


def main() -> None:
    """Print a line for each number of labels and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a file, or imdb")
    parser.add_argument("--labels", type=int, nargs="+", default=[500])
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--multilabel", action="store_true")
    given = parser.parse_args()
    if given.data == "imdb":
        from rehead.text.datasets import load_dataset

        data, size = load_dataset("imdb", train=6_600, test=2_000, seed=0).train, 5_000
    else:
        data = read(Path(given.data), multilabel=given.multilabel)
        size = len(data) // 10 if given.multilabel else min(len(data) // 5, HELD_OUT)
    mixed = np.random.default_rng(0).permutation(len(data))
    test, rest = subset(data, mixed[:size]), mixed[size:]
    truth = targets(test, data.names, multilabel=True) > 0
    print(f"{given.data}: {len(rest):,} examples to draw from, {size:,} held out, {len(data.names)} classes")
    for count in given.labels:
        for method in given.methods:
            found, seconds = [], []
            for draw in range(1, given.draws + 1):
                train = subset(data, np.random.default_rng(draw).permutation(rest)[:count])
                began = time.process_time()
                baseline = fit_baseline(method, train, data.names, draw)
                seconds.append(time.process_time() - began)
                probabilities = baseline.predict(test.texts)
                said = predicted_labels(probabilities, multilabel=data.multilabel, rule=baseline.rule)
                said = said if data.multilabel else np.eye(len(data.names), dtype=bool)[said]
                found.append(
                    ((said == truth).all(1).mean(), micro_f1(truth, said), macro_f1(truth, said, truth.shape[1]))
                )
            accuracy, micro, macro = 100 * np.mean(found, 0)
            print(
                f"{count:>7,} labels  {method:<12} accuracy {accuracy:.1f}  micro-F1 {micro:.1f}  "
                f"macro-F1 {macro:.1f}  training {np.mean(seconds):.1f} s of CPU time  {baseline.notes[0]}",
                flush=True,
            )


if __name__ == "__main__":
    main()
