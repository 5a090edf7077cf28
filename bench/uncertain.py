"""Whether labels for uncertain texts are worth more than labels for random ones, on the built-in film reviews.

    rehead data export imdb --out imdb
    rehead pretrain imdb/unlabelled.txt --out runs/base
    python bench/uncertain.py runs/base

A linear classifier is fitted on 100 reviews drawn at random from 4,000 (`rehead finetune --freeze base`), chooses 100
more, and is fitted again on all 200. Chosen are: random ones; the most uncertain; uncertain ones that lie apart, as
`rehead predict --most-uncertain 100` does. Accuracy is that on 2,000 other reviews, the same for all draws; the test
part is never looked at. The text of all of them, without labels, is among what the base was pretrained on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rehead.finetune.fit import fit_classifier
from rehead.finetune.metrics import compute_metrics
from rehead.finetune.options import FitOptions
from rehead.finetune.targets import subset, targets
from rehead.runs.run import load
from rehead.runs.scoring import class_probabilities
from rehead.text.datasets import load_dataset, read_reviews, to_labelled_data
from rehead.text.records import Record
from rehead.use.labeller import Labeller
from rehead.use.uncertain import CANDIDATES, Candidate, MostUncertain, choose, uncertainty

POOL, MEASURED, FIRST, MORE = 4000, 2000, 100, 100


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    base, unlabelled = load(given.run), set(load_dataset("imdb").unlabelled)
    reviews = [review for review in read_reviews("imdb")[0] if review.text in unlabelled]
    reviews = reviews[:: len(reviews) // (POOL + MEASURED)][: POOL + MEASURED]
    pool, others = to_labelled_data("imdb", reviews[::3] + reviews[1::3]), to_labelled_data("imdb", reviews[2::3])
    truth = targets(others, others.names, multilabel=False)
    records = [Record(text, {}, "", place) for place, text in enumerate(pool.texts)]

    def accuracy(places: list[int], seed: int) -> tuple[Labeller, float]:
        options = FitOptions(freeze="base", seed=seed)
        fitted = fit_classifier(subset(pool, np.array(places)), None, base=base, options=options)
        shares = class_probabilities(fitted.run, others.texts)
        return Labeller.of(fitted.run), 100 * compute_metrics(shares, truth, others.names).accuracy

    rows = []
    for seed in range(given.seeds):
        order = np.random.default_rng(seed).permutation(len(pool)).tolist()
        first, rest = order[:FIRST], order[FIRST:]
        labeller, before = accuracy(first, seed)
        shares = labeller.probabilities([pool.texts[place] for place in rest])
        kept = MostUncertain(CANDIDATES * MORE)
        kept.add([records[place] for place in rest], shares, uncertainty(shares, labeller))
        found = kept.found()
        ways: dict[str, Callable[[], list[Candidate]]] = {
            "uncertain": lambda found=found: found[:MORE],
            "apart": lambda found=found, labeller=labeller: choose(found, labeller, MORE),
        }
        row = [before, accuracy(order[: FIRST + MORE], seed)[1]]
        row += [accuracy(first + [each.record.line for each in way()], seed)[1] for way in ways.values()]
        rows.append(row)
        print(f"seed {seed}: " + "  ".join(f"{each:.2f}" for each in row), flush=True)
    table = np.array(rows)
    for name, column in zip(
        ("100 labels", "+ 100 random", "+ 100 uncertain", "+ 100 uncertain, apart"), table.T, strict=True
    ):
        ahead = column - table[:, 1]
        error = ahead.std(ddof=1) / np.sqrt(len(ahead)) if len(ahead) > 1 else float("nan")
        print(f"{name:<24}{column.mean():6.2f} ± {column.std():.2f}   against random {ahead.mean():+.2f} ± {error:.2f}")


if __name__ == "__main__":
    main()
