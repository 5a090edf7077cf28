"""How good the whole is: accuracy by number of labels, step by step up the ladder, beside linear baselines.

    python bench/results.py text imdb --more imdb-unsup.txt.gz > corpus.txt      # what may be pretrained on
    rehead pretrain corpus.txt --out runs/imdb
    python bench/results.py imdb --from runs/imdb --labels 100 500 1600 20000

    rehead data export imdb --out imdb && rehead pretrain imdb/unlabelled.txt --out runs/demo
    python bench/results.py demo --from runs/demo

    rehead pretrain fr-reviews.txt.gz --out runs/books
    python bench/results.py books --from runs/books --books cls-books

imdb    labels are drawn from 20,000 film reviews; measured on 2,875 others, none of which, nor any near copy, is in the
        text that `text imdb` gives.
demo    1,600 of the 2,000 reviews of the built-in train and valid parts, in five folds; fewer are drawn from the 2,000
        and measured on the others of these. The base has read the unlabelled part only.
books   the same with the 2,000 French book reviews of train and valid.

The built-in test part is never looked at. The same draws for every way. `--ways` are: tfidf, tfidf_chars, nbsvm (linear
baselines, tuned by cross-validation), frozen (linear head on the frozen base), layers and bag (the same on its hidden
states, and on its n-gram vectors), words (exact words beside it), recipe (what `rehead finetune --from` does), self
(the recipe with `--unlabelled`, the text that was pretrained on), scratch and pretrained (all weights trained by
gradient for `--epochs`, on all labels and with nothing chosen: the classic lab). The last two ways are compared in
pairs, where every document is measured once.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rehead.finetune.candidates import linear
from rehead.finetune.candidates.candidate import Task
from rehead.finetune.fit import fit_classifier
from rehead.finetune.network import train_network
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import first_copies, folds, nested_subsets
from rehead.finetune.targets import subset, targets
from rehead.runs.run import Run, load
from rehead.runs.scoring import class_logits
from rehead.text.datasets import load_dataset, read_reviews, to_labelled_data
from rehead.text.documents import LabelledData, ReadOptions
from rehead.text.duplicates import find_duplicates
from rehead.text.labelled import read_examples
from rehead.text.readers import Texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

POOL = 20_000
FOLDS = 5
DRAWS = {100: 10, 500: 6, 1600: 4, 20_000: 1}
FIELDS = ("texts", "labels", "sources")
WAYS = ("tfidf", "tfidf_chars", "nbsvm", "frozen", "words", "recipe")

Way = Callable[[LabelledData, LabelledData], "NDArray[np.int64]"]
"Learns from the first, guesses the classes of the second."


def film_reviews() -> tuple[LabelledData, LabelledData, list[str]]:
    """Split the built-in reviews: those that labels are drawn from, those that are measured on, and the test part."""
    data = load_dataset("imdb")
    label = {review.text: review for review in read_reviews("imdb")[0]}
    pool = to_labelled_data("imdb", (label[text] for text in data.unlabelled[:POOL]))
    measured = data.train.texts + data.valid.texts + data.unlabelled[POOL:]
    return pool, to_labelled_data("imdb", (label[text] for text in measured)), data.test.texts


def write_text(more: list[Path]) -> None:
    """Print what may be pretrained on: no review that is measured on or tested with, and no near copy of one."""
    pool, measured, test = film_reviews()
    texts = list(pool.texts)
    for path in more:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            texts += [" ".join(line.replace("<br />", " ").split()) for line in file if line.strip()]
    forbidden = measured.texts + test
    groups = find_duplicates(forbidden + texts).groups().tolist()
    for place, text in enumerate(texts, len(forbidden)):
        if groups[place] == place:  # a copy of anything before it is left out
            sys.stdout.write(text + "\n")


def book_reviews(folder: Path) -> LabelledData:
    """Read the French train and validation part as one."""
    parts = [read_examples([str(folder / f"{name}.review.spm")], ReadOptions()) for name in ("train", "valid")]
    texts, labels, sources = ([each for part in parts for each in getattr(part, name)] for name in FIELDS)
    return LabelledData(texts, labels, parts[0].names, False, sources)


def splits(data: LabelledData, size: int) -> Iterator[tuple[LabelledData, LabelledData]]:
    """Draw examples, the others are measured on; four fifths of the whole are five folds."""
    if size >= len(data) * (FOLDS - 1) // FOLDS:
        for inside, outside in folds(data, FOLDS):
            yield subset(data, inside), subset(data, outside)
        return
    first = first_copies(data.texts)
    for seed in range(DRAWS.get(size, 4)):
        inside = nested_subsets(data, [size], seed)[size]
        outside = np.flatnonzero(~np.isin(first, first[inside]))  # nor copies of the examples
        yield subset(data, inside), subset(data, outside)


def draws_of(pool: LabelledData, measured: LabelledData, size: int) -> Iterator[tuple[LabelledData, LabelledData]]:
    """Draw examples from a pool; the measured ones are always the same."""
    for seed in range(DRAWS.get(size, 4)):
        yield subset(pool, nested_subsets(pool, [size], seed)[size]), measured


def ways_of(given: argparse.Namespace) -> dict[str, Way]:
    """Make the ways that are asked for."""
    from rehead.compare.baselines import fit_baseline

    base = load(given.base)
    unlabelled = [each.text for each in Texts([str(given.unlabelled)])] if given.unlabelled else None
    frozen = FitOptions(freeze="base")
    trained = FitOptions(
        freeze="none",
        epochs=given.epochs,
        lr_scale=given.lr_scale,
        length=given.length,
        pooling=given.pooling,
        attention=given.attention,
        precision=given.precision,
    )
    quick = given.precision == "bfloat16"

    def by_run(make: Callable[[LabelledData], Run]) -> Way:
        return lambda train, test: class_logits(make(train), test.texts).argmax(1)

    def by_gradient(**start: Run) -> Way:
        def way(train: LabelledData, test: LabelledData) -> Ints:
            run = train_network(train, None, **start, options=trained, whole=True).run
            with torch.autocast("cpu", torch.bfloat16, enabled=quick):
                return class_logits(run, test.texts).argmax(1)

        return way

    def linear_on(train: LabelledData, view: str) -> Run:
        """Put a linear head on one neural view of the base."""
        if view not in base.model.config.views:
            raise SystemExit(f"{given.base} has no view {view!r}.")
        return linear.search_views(Task.make(train, base, frozen, None), view, beside=False).build()

    made: dict[str, Way] = {
        "tfidf": lambda train, test: fit_baseline("tfidf", train, train.names).predict(test.texts).argmax(1),
        "tfidf_chars": lambda train, test: (
            fit_baseline("tfidf_chars", train, train.names).predict(test.texts).argmax(1)
        ),
        "nbsvm": lambda train, test: fit_baseline("nbsvm", train, train.names).predict(test.texts).argmax(1),
        "frozen": by_run(lambda train: fit_classifier(train, None, base=base, options=frozen).run),
        "layers": by_run(lambda train: linear_on(train, "layers")),
        "bag": by_run(lambda train: linear_on(train, "bag")),
        "words": by_run(lambda train: linear.propose(Task.make(train, base, FitOptions(), None), None).build()),
        "recipe": by_run(lambda train: fit_classifier(train, None, base=base).run),
        "self": by_run(lambda train: fit_classifier(train, None, base=base, unlabelled=unlabelled).run),
        "scratch": by_gradient(like=base),
        "pretrained": by_gradient(base=base),
    }
    return {name: made[name] for name in given.ways}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("text", "imdb", "demo", "books"))
    parser.add_argument("of", nargs="?", choices=("imdb",), help="with text: for which measurement")
    parser.add_argument("--more", nargs="*", type=Path, default=[], help="with text: more of it, one document a line")
    parser.add_argument("--from", dest="base", type=Path)
    parser.add_argument("--books", type=Path, help="folder of the French reviews")
    parser.add_argument("--labels", type=int, nargs="+", default=[100, 500, 1600])
    parser.add_argument("--ways", nargs="+", default=WAYS)
    parser.add_argument("--unlabelled", type=Path, help="for the way self")
    parser.add_argument("--epochs", type=float, help="of the ways scratch and pretrained")
    parser.add_argument("--lr-scale", type=float, default=1.0, help="multiply their default learning rates by this")
    parser.add_argument("--length", type=int, help="tokens of a document that these two ways read")
    parser.add_argument("--pooling", choices=("last", "mean"), help="of these two ways")
    parser.add_argument("--attention", choices=("causal", "both"), help="of these two ways")
    parser.add_argument(
        "--precision", choices=("auto", "float32", "bfloat16"), default="auto", help="of these two ways"
    )
    parser.add_argument("--folds", type=int, default=FOLDS, help="of the five, measure on so many")
    parser.add_argument("--draws", type=int, help="of imdb: at most so many, not all")
    parser.add_argument("--powers", type=float, nargs="+", help="other powers of the spread than those that are tried")
    given = parser.parse_args()
    if given.powers:
        linear.POWERS = tuple(given.powers)
    if given.what == "text":
        write_text(given.more)
        return
    ways = ways_of(given)
    print(f"{'labels':>7}  {'way':<10}{'accuracy':>14}{'seconds':>9}")
    for size in given.labels:
        if given.what == "imdb":
            pool, measured, _ = film_reviews()
            cases = list(draws_of(pool, measured, size))
        elif given.what == "demo":
            data = load_dataset("imdb", train=2000, valid=0, test=2000)
            cases = list(splits(data.train, size))
        else:
            cases = list(splits(book_reviews(given.books), size))
        rights: list[NDArray[np.bool_]] = []
        for name, way in ways.items():
            found, clock = [], time.perf_counter()
            for train, test in cases[: given.draws if given.what == "imdb" else given.folds]:
                found.append(way(train, test) == targets(test, train.names, multilabel=False))
            took = (time.perf_counter() - clock) / len(found)
            shares = [100 * float(each.mean()) for each in found]
            print(f"{size:>7,}  {name:<10}{np.mean(shares):>7.2f} ± {np.std(shares):4.2f}{took:>9.1f}", flush=True)
            rights.append(np.concatenate(found))
        places = [place for _, test in cases for place in test.sources]
        if len(rights) > 1 and len(set(places)) == len(places):  # every document was measured once
            print(_paired(*list(ways)[-2:], *rights[-2:]), flush=True)


def _paired(first: str, second: str, one: NDArray[np.bool_], two: NDArray[np.bool_]) -> str:
    """Say how sure it is that one way is better; right or not: (N,)."""
    from rehead.compare.statistics import mcnemar, paired_bootstrap

    gain, test = paired_bootstrap(one[None], two[None]), mcnemar(one, two)
    low, high = 100 * gain.interval.low, 100 * gain.interval.high
    return (
        f"         {second} − {first}: {100 * gain.mean:+.2f} points ({low:+.2f} to {high:+.2f}); "
        f"{test.only_second} against {test.only_first} of {len(one):,}, McNemar p = {test.p:.2g}"
    )


if __name__ == "__main__":
    main()
