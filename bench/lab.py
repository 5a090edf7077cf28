"""What pretraining a Transformer buys: fine-tuned through its layers, against the same network from random weights.

    python bench/lab.py text > corpus.txt                   # built-in reviews that nothing is measured on
    rehead pretrain corpus.txt --out runs/lab --preset lab --vocab 8192 --lowercase --length 128 --batch 1024 \
      --objective bag:0.8,causal:0.2 --tokens 5_000_000
    python bench/lab.py measure --from runs/lab --epochs 3 --length 128 --pooling mean --attention both
    python bench/lab.py states --from runs/lab              # a linear head on frozen states, of few reviews

Labels: the 1,600 built-in training reviews. Measured on the 400 of the built-in validation part, and on 2,000 of the
unlabelled part, which `text` leaves out. All networks are trained in the same way to the end, and nothing is chosen.
The built-in test part is never looked at. Runs are compared with scratch, and with the first run, in pairs.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rehead.compare.statistics import paired_bootstrap, permutation_test
from rehead.finetune.linear_start import solve_head
from rehead.finetune.network import train_network
from rehead.finetune.options import FitOptions
from rehead.finetune.targets import subset, targets
from rehead.runs.run import Run, load
from rehead.runs.scoring import class_logits
from rehead.text.datasets import load_dataset, read_reviews, to_labelled_data
from rehead.text.documents import LabelledData
from rehead.views.encoded import EncodedTexts
from rehead.views.neural import neural_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

MEASURED, STATES = 2_000, 600


def reviews() -> tuple[LabelledData, LabelledData, list[str]]:
    """Give the training reviews, those that are measured on (validation part first), and the text for pretraining."""
    data = load_dataset("imdb")
    known = {review.text: review for review in read_reviews("imdb")[0]}
    more = to_labelled_data("imdb", (known[text] for text in data.unlabelled[:MEASURED]))
    parts = [data.valid, more]
    texts, labels, sources = ([each for part in parts for each in getattr(part, name)] for name in FIELDS)
    measured = LabelledData(texts, labels, data.train.names, False, sources)
    return data.train, measured, data.unlabelled[MEASURED:]


FIELDS = ("texts", "labels", "sources")


def measure(given: argparse.Namespace) -> None:
    """Fine-tune every run and the same network from scratch, seed by seed."""
    train, measured, _ = reviews()
    truth = targets(measured, train.names, multilabel=False)
    options = FitOptions(
        freeze="none",
        epochs=given.epochs,
        length=given.length,
        pooling=given.pooling,
        attention=given.attention,
        lr_scale=given.lr_scale,
        layer_decay=given.layer_decay,
        dropout=given.dropout,
        precision=given.precision,
    )
    bases: dict[str, tuple[Run, Run | None]] = {}
    for path in given.base:
        run = load(path)
        bases.setdefault("scratch", (run, None))
        bases[str(path)] = (run, run)
    right: dict[str, list[Flags]] = {name: [] for name in bases}
    for seed in range(given.seeds):
        for name, (like, base) in bases.items():
            chosen, clock = dataclasses.replace(options, seed=seed), time.process_time()
            fitted = train_network(train, None, base=base, like=like, options=chosen, whole=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=given.precision == "bfloat16"):
                right[name].append(class_logits(fitted.run, measured.texts).argmax(1) == truth)
            share, took = 100 * right[name][-1].mean(), time.process_time() - clock
            print(f"seed {seed}  {name:<24}{share:6.2f}, {took:.0f} CPU s", flush=True)
    for name, found in right.items():
        shares = 100 * np.stack(found).mean(1)
        valid = 100 * np.stack(found)[:, : len(truth) - MEASURED].mean()
        print(f"{name:<24}{shares.mean():6.2f} ± {shares.std():.2f}, validation part {valid:.2f}")
    first = list(right)[1]
    for one, two in [("scratch", name) for name in list(right)[1:]] + [(first, name) for name in list(right)[2:]]:
        gain = paired_bootstrap(np.stack(right[one]), np.stack(right[two]))
        low, high = 100 * gain.interval.low, 100 * gain.interval.high
        p = permutation_test(np.stack(right[one]), np.stack(right[two]))
        print(f"{two} − {one}: {100 * gain.mean:+.2f} points ({low:+.2f} to {high:+.2f}), permutation test p = {p:.2g}")


def states(given: argparse.Namespace) -> None:
    """Put a linear head on the mean of the frozen hidden states, of some reviews, read both ways."""
    train, measured, _ = reviews()
    parts = subset(train, range(STATES)), subset(measured, range(STATES))
    truth = [targets(part, train.names, multilabel=False) for part in parts]
    for path in given.base:
        run = load(path)
        for causal in (True, False):
            reading = {"pooling": "mean", "causal": causal, "max_length": given.length, "long": "head+tail"}
            view = neural_view(run.model, "layers", unit=False, **reading)
            own, other = (view.read(EncodedTexts(part.texts, run.tokenizer)).matrix for part in parts)
            shift, scale = own.mean(0), own.std(0) + 1e-6
            weight, bias = solve_head((own - shift) / scale, truth[0], len(train.names))
            share = (((other - shift) / scale @ weight.T + bias).argmax(1) == truth[1]).mean()
            print(f"{path}  {'causal' if causal else 'both':<8}{100 * share:6.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("text", "measure", "states"))
    parser.add_argument("--from", dest="base", type=Path, nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--pooling", choices=("last", "mean"))
    parser.add_argument("--attention", choices=("causal", "both"))
    parser.add_argument("--lr-scale", type=float, default=1.0)
    parser.add_argument("--layer-decay", type=float, default=1.0)
    parser.add_argument("--dropout", type=float)
    parser.add_argument("--precision", choices=("auto", "float32", "bfloat16"), default="auto")
    given = parser.parse_args()
    if given.what == "text":
        sys.stdout.writelines(f"{text}\n" for text in reviews()[2])
    elif not given.base:
        parser.error("give runs: --from RUN")
    else:
        (measure if given.what == "measure" else states)(given)


if __name__ == "__main__":
    main()
