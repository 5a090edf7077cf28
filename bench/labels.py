"""Accuracy of fine-tuning by gradient, by number of labels, against the linear classifier it starts from.

    rehead data export imdb --out imdb
    rehead pretrain imdb/unlabelled.txt --out runs/base
    python bench/labels.py runs/base

The built-in film reviews. Up to 1,600 labels are drawn from the training part, more from the reviews that the base was
pretrained on without their labels. The best epoch is chosen on the validation part of 400, or on a fifth of the
examples (`own`); accuracy is that on 2,000 reviews that are neither. The test part is never looked at. The text of the
2,000 is among what the base was pretrained on, which makes all figures a little too good.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from rehead.finetune.metrics import compute_metrics
from rehead.finetune.network import train_network
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import nested_subsets
from rehead.finetune.targets import subset, targets
from rehead.runs.run import load
from rehead.runs.scoring import class_probabilities
from rehead.text.datasets import load_dataset, read_reviews, to_labelled_data

SIZES = (20, 100, 500, 1600, 8000)
MEASURED = 2000
# A rate that moves nothing leaves the linear classifier that the head starts at.
WAYS: dict[str, tuple[bool, FitOptions]] = {
    "linear": (True, FitOptions(lr_scale=1e-9, epochs=1)),
    "fine-tuned": (True, FitOptions()),
    "own": (False, FitOptions()),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, default=3, help="for up to 100 labels; fewer for more")
    given = parser.parse_args()
    base, data = load(given.run), load_dataset("imdb")
    unlabelled = set(data.unlabelled)
    rest = [review for review in read_reviews("imdb")[0] if review.text in unlabelled]
    step = len(rest) // MEASURED
    others = to_labelled_data("imdb", rest[::step][:MEASURED])
    seen = set(others.texts)
    more = to_labelled_data("imdb", (review for review in rest if review.text not in seen))
    truth = targets(others, others.names, multilabel=False)
    print(f"{'labels':>7}  {'':<12}{'accuracy':>14}{'calibration error':>20}{'seconds':>9}")
    for size in given.sizes:
        source = data.train if size <= len(data.train) else more
        for name, (valid, options) in WAYS.items():
            found = []
            for seed in range(max(1, given.seeds - (size > 100) - (size > 500))):
                options.seed = seed
                train = subset(source, nested_subsets(source, [size], seed)[size])
                began = time.perf_counter()
                fitted = train_network(train, data.valid if valid else None, base=base, options=options)
                took = time.perf_counter() - began
                measured = compute_metrics(class_probabilities(fitted.run, others.texts), truth, others.names)
                found.append((100 * measured.accuracy, 100 * measured.calibration_error, took))
            accuracy, error, seconds = np.array(found).T
            spread = f"{accuracy.mean():.1f} ± {accuracy.std():.1f}"
            print(f"{size:>7,}  {name:<12}{spread:>14}{error.mean():>18.1f} %{seconds.mean():>9.0f}", flush=True)


if __name__ == "__main__":
    main()
