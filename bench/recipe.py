"""How long the default recipe takes to fit, against TF-IDF of words and characters, tuned, in one run.

    python bench/recipe.py banking77.tsv.gz zh_hotel.tsv.gz --labels 100 1000 10000 --bases runs/sets

Each file has lines `label<TAB>text`. Bases are pretrained on the texts before the clock starts, and kept in `--bases`.
Sides take turns, and the best of `--rounds` counts. The recipe gets all texts as unlabelled text (`--alone`: none), and
reads everything anew: nothing comes from the cache of features. A size beyond the set stands for all of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sets import base_of, read

from rehead.compare.baselines import fit_baseline
from rehead.finetune.fit import fit_classifier
from rehead.finetune.splits import nested_subsets
from rehead.finetune.targets import subset


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--labels", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="without unlabelled text")
    parser.add_argument("--bases", type=Path, default=Path("runs/sets"), help="where pretrained bases are kept")
    given = parser.parse_args()
    os.environ["REHEAD_CACHE"] = "off"
    print(f"{'set':<12}{'classes':>8}{'labels':>8}{'recipe':>10}{'baseline':>10}{'ratio':>7}   seconds, best")
    for path in given.sets:
        data = read(path)
        base = base_of(f"{path.name.split('.')[0]}-all", data.texts, given.bases)
        for size in given.labels:
            count = min(len(data), max(size, 2 * len(data.names)))
            train = subset(data, nested_subsets(data, [count], 0)[count])
            best = {"recipe": float("inf"), "baseline": float("inf")}
            for _ in range(given.rounds):
                began = time.perf_counter()
                fit_classifier(train, None, base=base, unlabelled=None if given.alone else data.texts)
                best["recipe"] = min(best["recipe"], time.perf_counter() - began)
                began = time.perf_counter()
                fit_baseline("tfidf_chars", train, train.names)
                best["baseline"] = min(best["baseline"], time.perf_counter() - began)
            ratio = best["recipe"] / best["baseline"]
            name, classes = path.name.split(".")[0], len(data.names)
            line = f"{name:<12}{classes:>8}{count:>8,}{best['recipe']:>10.1f}{best['baseline']:>10.1f}{ratio:>7.1f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
