"""Few-label accuracy of pretrained runs: a linear probe on their frozen features, on the built-in film reviews.

    python bench/probe.py runs/base runs/other

A document's feature is the mean of its hidden states (of a long one, over stretches of at most `--longest` tokens).
Features are standardised, and a logistic regression (`rehead.finetune.logistic`) is fitted with its penalty chosen by
cross-validation on the labels it is given:

- 100 and 500 labels, drawn 10 times from the 2,000 reviews of train and valid, tested on the others of these;
- 1,600 labels: five folds of the 2,000.

The test part is never looked at. Neither should these 2,000 be pretrained on: `rehead data export imdb` writes the
unlabelled part, and docs/experiments/pretraining.md says how the figures in it were made.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rehead.finetune.logistic import fit_logistic, one_thread
from rehead.finetune.losses import log_losses
from rehead.model import Model
from rehead.runs.run import load
from rehead.text.datasets import load_dataset
from rehead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

STRENGTHS = tuple(1 / penalty for penalty in (1000, 300, 100, 30, 10, 3, 1, 0.3, 0.1))
DRAWS = 10
FOLDS = 5
LABELS = (100, 500, 1600)


def features(model: Model, tokenizer: Tokenizer, texts: list[str], longest: int, budget: int = 16_384) -> Floats:
    """Mean hidden state of each text, all of it read: (texts, width)."""
    ids = [np.array(each or [tokenizer.eos]) for each in tokenizer.encode_batch(texts)]
    stretches = [(at, begin) for at, each in enumerate(ids) for begin in range(0, len(each), longest)]
    stretches.sort(key=lambda each: min(len(ids[each[0]]) - each[1], longest))
    sums = np.zeros((len(texts), model.config.nhid))
    with torch.no_grad():
        for group in _groups(stretches, ids, longest, budget):
            parts = [ids[at][begin : begin + longest] for at, begin in group]
            rows = torch.zeros(len(parts), max(map(len, parts)), dtype=torch.int64)
            keep = torch.zeros(rows.shape, dtype=torch.bool)
            for place, part in enumerate(parts):
                rows[place, : len(part)], keep[place, : len(part)] = torch.from_numpy(part), True
            hidden = model.base(rows, keep, causal=model.config.causal).masked_fill(~keep[..., None], 0.0).sum(1)
            np.add.at(sums, [at for at, _ in group], hidden.double().numpy())
    return sums / np.array([len(each) for each in ids])[:, None]


def _groups(
    stretches: list[tuple[int, int]], ids: list[Ints], longest: int, budget: int
) -> Iterator[list[tuple[int, int]]]:
    """Put stretches of about the same length together, as many as the budget of tokens allows."""
    group: list[tuple[int, int]] = []
    for at, begin in stretches:
        length = min(len(ids[at]) - begin, longest)
        if group and (len(group) + 1) * length > budget:
            yield group
            group = []
        group.append((at, begin))
    yield group


def probe(x: Floats, y: Ints, train: Ints, test: Ints) -> float:
    """Accuracy on `test` of a regression on `train`, its penalty chosen by five folds of `train`."""
    folds = np.empty(len(train), np.int64)
    for label in (0, 1):
        of_label = np.flatnonzero(y[train] == label)
        folds[of_label] = np.arange(len(of_label)) % FOLDS
    losses = np.zeros(len(STRENGTHS))
    for fold in range(FOLDS):
        fitted, left = train[folds != fold], train[folds == fold]
        for place, (weight, bias) in enumerate(fit_logistic(x[fitted], y[fitted], 2, STRENGTHS)):
            losses[place] += log_losses(x[left] @ weight.T + bias, y[left]).sum()
    ((weight, bias),) = fit_logistic(x[train], y[train], 2, [STRENGTHS[int(losses.argmin())]])
    return float(((x[test] @ weight.T + bias).argmax(1) == y[test]).mean())


def splits(y: Ints, labels: int) -> Iterator[tuple[Ints, Ints]]:
    """Draw labels, half of each class, and leave the others for testing; 1,600 of 2,000 are five folds."""
    chance = np.random.RandomState(0)
    by_class = [chance.permutation(np.flatnonzero(y == label)) for label in (0, 1)]
    everything = np.arange(len(y))
    if labels > len(y) // 2:
        for fold in range(FOLDS):
            test = np.concatenate([each[fold::FOLDS] for each in by_class])
            yield np.setdiff1d(everything, test), test
        return
    for _ in range(DRAWS):
        train = np.concatenate([chance.permutation(each)[: labels // 2] for each in by_class])
        yield train, np.setdiff1d(everything, train)


def measure(model: Model, tokenizer: Tokenizer, longest: int) -> list[str]:
    """Accuracy at each number of labels, as mean ± spread over the draws."""
    data = load_dataset("imdb")
    texts = data.train.texts + data.valid.texts
    y = np.array([label == ("positive",) for label in data.train.labels + data.valid.labels], np.int64)
    x = features(model, tokenizer, texts, longest)
    x = (x - x.mean(0)) / (x.std(0) + 1e-12) * (10 / x.shape[1] ** 0.5)
    shown = []
    for labels in LABELS:
        with one_thread():
            found = 100 * np.array([probe(x, y, train, test) for train, test in splits(y, labels)])
        shown.append(f"{found.mean():.1f} ± {found.std():.1f}")
    return shown


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--longest", type=int, default=256, help="tokens read at once")
    given = parser.parse_args()
    print(f"{'run':<30}" + "".join(f"{labels:>16,}" for labels in LABELS))
    for path in given.runs:
        run = load(path)
        if run.tokenizer is None:
            raise SystemExit(f"{path} has no tokenizer")
        print(f"{path!s:<30}" + "".join(f"{each:>16}" for each in measure(run.model, run.tokenizer, given.longest)))


if __name__ == "__main__":
    main()
