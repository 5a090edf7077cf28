"""What each choice of the document objective is worth: pretrain a bag with one of them changed, then probe it.

    python bench/document.py                                      # as it is
    python bench/document.py --length 10 --set SUBSAMPLE_THRESHOLD=1e-3          # with other constants
    python bench/document.py --nhid 128 --ngrams 2 --epochs 8 --seed 1
    python bench/document.py --text FILE…                         # more unlabelled text, one document a line

Pretrains on the unlabelled part of the built-in film reviews, which shares no review with the 2,000 that the probe is
fitted and tested on (see bench/probe.py). A plain loop with the learning rate falling to zero, no checkpoints and no
validation: only the objective and its optimizer are measured. CPU seconds are those of training alone.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from probe import measure

from rehead.model import Model, preset
from rehead.pretrain import document, ngram_counts
from rehead.pretrain.document import Document
from rehead.text.datasets import load_dataset
from rehead.text.documents import Document as Text
from rehead.text.store_subset import Store
from rehead.text.tokenizer import Tokenizer
from rehead.training.row_optimizer import RowAdagrad, expect_sparse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

HELD_OUT = 500


class InMemory:
    """Encoded documents, as an objective asks for them."""

    def __init__(self, documents: Sequence[Sequence[int]]) -> None:
        self.documents = [np.array(each, np.int64) for each in documents]
        self.lengths = np.array([len(each) for each in documents], np.int64)
        self.offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.lengths + 1)))

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, place: int) -> NDArray[np.int64]:
        return self.documents[place]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--text", nargs="*", type=Path, default=[], help="more text, one document a line, perhaps gzip")
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--case", action="store_true", help="tell capital from small letters")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch", type=int, default=20_480, help="tokens in a step")
    parser.add_argument("--documents", type=int, default=document.DEFAULT_DOCUMENTS, help="in a step, at most")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--floor", type=float, default=10.0, help="of the rows' sums of squares")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="constants of document.py, ngram_counts.py"
    )
    parser.add_argument("--even", action="store_true", help="frequent rows start and move like all others")
    parser.add_argument("--hashed", action="store_true", help="n-ngram_counts share rows by their hash")
    for name in ("nhid", "ngrams", "nbuckets"):
        parser.add_argument(f"--{name}", type=int)
    return parser.parse_args()


def texts(given: argparse.Namespace) -> list[str]:
    """Read what is pretrained on: nothing that the probe, or a test, will see."""
    data = load_dataset("imdb")
    labelled = {" ".join(text.split()) for part in (data.train, data.valid, data.test) for text in part.texts}
    more: list[str] = []
    for path in given.text:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            more += [line for line in file if line.strip()]
    return data.unlabelled + [line for line in more if " ".join(line.split()) not in labelled]


def change(assignments: list[str]) -> None:
    """Give constants of the objective other values."""
    for each in assignments:
        name, _, value = each.partition("=")
        module = next(module for module in (document, ngram_counts) if hasattr(module, name))
        setattr(module, name, type(getattr(module, name))(float(value)))


def main() -> None:
    """Pretrain, probe, print."""
    given = arguments()
    change(given.set)
    corpus = texts(given)
    tokenizer = Tokenizer.train(
        (Text(text, "-", 1) for text in corpus), vocab=given.vocab, lowercase=not given.case, quiet=True
    )
    encoded = [each for at in range(0, len(corpus), 1000) for each in tokenizer.encode_batch(corpus[at : at + 1000])]
    train, valid = (cast(Store, InMemory(part)) for part in (encoded[HELD_OUT:], encoded[:HELD_OUT]))
    dials = {name: getattr(given, name) for name in ("nhid", "ngrams", "nbuckets") if getattr(given, name) is not None}
    if dials.get("ngrams") == 1:
        dials["nbuckets"] = 0
    torch.manual_seed(given.seed)
    model = Model(preset("bag", ntokens=tokenizer.vocab_size, **dials))
    if given.hashed:
        document.choose_rows = lambda *_: None  # type: ignore[attr-defined]
    fresh = not given.even
    objective = Document(
        model, train, valid, time=256, batch=given.batch, seed=given.seed, fresh=fresh, max_documents=given.documents
    )
    tables = objective.row_tables()
    expect_sparse(objective, tables)
    optimizer = RowAdagrad(tables, given.lr, given.floor, objective.row_rates() if fresh else None)
    steps = int(objective.steps_in_epoch() * given.epochs)
    cpu, clock = time.process_time(), time.perf_counter()
    for step in range(steps):
        batch = objective.read(step)
        (objective(batch.tensors).losses["document"] / batch.counts["document"]).backward()
        optimizer.param_groups[0]["lr"] = given.lr * (1 - step / steps)
        optimizer.step()
        optimizer.zero_grad()
    cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
    with torch.no_grad():
        batches = list(objective.held_out())
        losses = sum(float(objective(batch.tensors).losses["document"]) for batch in batches)
    held_out = losses / sum(batch.counts["document"] for batch in batches)
    options = {name: value for name, value in vars(given).items() if value not in (None, [], False)}
    print(options)
    print(f"{len(train):,} documents, {steps:,} steps, {cpu:.0f} CPU s, {clock:.0f} s, held-out loss {held_out:.3f}")
    print(" / ".join(measure(model, tokenizer, longest=4096)), "at 100 / 500 / 1,600 labels")


if __name__ == "__main__":
    main()
